package main

import (
	"os"
	"testing"
)

// TestMain runs the tests; in a process that they have started, the service.
func TestMain(m *testing.M) {
	if spec := os.Getenv(crashIn); spec != "" {
		gap = crasher(spec)
		main()
		return
	}
	code := m.Run()
	stopPostgres()
	os.Exit(code)
}
