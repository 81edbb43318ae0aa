package main

import (
	"flag"
	"os"
	"testing"
	"time"
)

// TestMain runs the tests; in a process that they have started, the service.
func TestMain(m *testing.M) {
	if spec := os.Getenv(crashIn); spec != "" {
		gap = crasher(spec)
		if timeout, err := time.ParseDuration(os.Getenv(timeoutIn)); err == nil {
			longestTransaction, block = timeout, timeout/5
		}
		main()
		return
	}
	_ = flag.Set("test.parallel", "8") // Parallel tests wait most of their time. The command line may have another number.
	m.Run()
}
