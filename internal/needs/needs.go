// Package needs decides what becomes of a test that needs a program which is not there. The packages that start servers use it, and
// tests that call a program themselves.
package needs

import (
	"os"
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
