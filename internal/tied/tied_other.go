//go:build !linux

// Package tied starts processes that end with the process that has started them, where the system can do that.
package tied

import (
	"os/exec"
	"syscall"
)

// Start starts cmd. Only Linux can tie it to this process; elsewhere a process that is killed may leave others behind.
func Start(cmd *exec.Cmd, _ syscall.Signal) error { return cmd.Start() }
