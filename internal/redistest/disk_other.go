//go:build !linux

package redistest

import "testing"

// FillDisk needs Linux.
func (*Server) FillDisk(tb testing.TB) {
	tb.Helper()
	tb.Skip("NO FULL DISK: only Linux can limit the files of a server that runs")
}

// FreeDisk ends a FillDisk.
func (*Server) FreeDisk(testing.TB) {}
