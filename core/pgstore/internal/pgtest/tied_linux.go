package pgtest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startTied starts cmd so that it ends with this process, however that ends. The kernel ties it to the thread that starts
// it, so that thread is kept until cmd has ended; ended is closed then.
func startTied(cmd *exec.Cmd, ended chan<- struct{}) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT // to the server: end at once, and take your children with you
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	return <-started
}
