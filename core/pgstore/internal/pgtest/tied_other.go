//go:build !linux

package pgtest

import "os/exec"

// startTied starts cmd, and closes ended when it has ended. Only Linux can tie it to this process; elsewhere a killed test
// may leave a server behind.
func startTied(cmd *exec.Cmd, ended chan<- struct{}) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}
