package redistest

import (
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// startTied starts cmd so that it dies with this process, however that dies. The kernel ties it to the thread that
// starts it, so that thread is kept.
func startTied(cmd *exec.Cmd) error {
	signal.Ignore(syscall.SIGXFSZ) // inherited: to reach the limit of FillDisk is an error, as on a full disk, and not the end
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}
