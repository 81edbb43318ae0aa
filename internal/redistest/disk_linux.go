package redistest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// FillDisk leaves the server's append-only file a few bytes to grow: a write that needs more is cut short and then fails, as
// on a disk that is full. It needs no rights: what is set is the limit that the process has for its files.
func (s *Server) FillDisk(tb testing.TB) {
	tb.Helper()
	largest := int64(0)
	must(tb, filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, err error) error {
		if info, statErr := os.Stat(path); err == nil && statErr == nil && filepath.Ext(path) == ".aof" {
			largest = max(largest, info.Size())
		}
		return err
	}))
	s.limitFiles(tb, uint64(largest)+10)
}

// FreeDisk makes room again. A server that has ended because the disk was full has it when it is started again.
func (s *Server) FreeDisk(tb testing.TB) {
	tb.Helper()
	s.limitFiles(tb, unlimited)
}

const unlimited = 1<<64 - 1

func (s *Server) limitFiles(tb testing.TB, bytes uint64) {
	tb.Helper()
	limit := syscall.Rlimit{Cur: bytes, Max: unlimited}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(s.process.Pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		tb.Fatalf("redistest: the size of files can not be limited: %v", errno)
	}
}
