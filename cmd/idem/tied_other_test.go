//go:build !linux

package main

import "os/exec"

// startTied starts cmd. Only Linux can tie it to this process; elsewhere a killed test may leave processes behind.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }

func unprivileged(*exec.Cmd, string) error { return nil }
