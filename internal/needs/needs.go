// Package needs decides what becomes of a test that needs a program which is not there. The packages that start servers use it, and
// tests that call a program themselves.
package needs

import (
	"os"
	"sync"
	"testing"
)

// Server skips a test that needs this server if -short is set. What is no test, like a benchmark that is a program of its own, gets
// its server always.
func Server(tb testing.TB, name string) {
	tb.Helper()
	if testing.Testing() && testing.Short() {
		tb.Skip("-short: this test needs " + name)
	}
}

// Missing ends a test for which a program is missing. If CI is set, the test fails, because there a missing program is an error of
// the set-up. Elsewhere it is skipped. what begins with capitals, which stand out in the log, and says how to install the program.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("CI") != "" {
		tb.Fatal(what)
	}
	tb.Skip(what)
}

// Shared is a server that the tests of a process share. It ends with the process. The zero value is ready to use.
type Shared[T any] struct {
	mu        sync.Mutex
	isStarted bool
	server    T
}

// Get returns the server, and starts it if no test has done so. If that fails, the test ends, and the next one tries again. Get is
// safe for concurrent use.
func (s *Shared[T]) Get(tb testing.TB, start func() (T, error)) T {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStarted {
		return s.server
	}
	server, err := start()
	if err != nil {
		tb.Fatal(err)
	}
	s.server, s.isStarted = server, true
	return server
}
