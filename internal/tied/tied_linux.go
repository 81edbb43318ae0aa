// Package tied starts processes that end with the process that has started them, in whatever way that one ends.
package tied

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd, and lets the kernel send it a signal when this process ends.
func Start(cmd *exec.Cmd, signal syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
	started := make(chan error)
	starts() <- func() { started <- cmd.Start() }
	return <-started
}

// starts returns the channel of the functions that startAll calls.
var starts = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go startAll(starts)
	return starts
})

// startAll calls functions on a thread that stays as long as this process: the kernel ties a process to the thread that has
// started it.
func startAll(starts <-chan func()) {
	runtime.LockOSThread()
	for start := range starts {
		start()
	}
}
