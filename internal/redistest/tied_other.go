//go:build !linux

package redistest

import "os/exec"

// startTied starts cmd. Only Linux can tie it to this process; elsewhere a killed test may leave a server behind.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }
