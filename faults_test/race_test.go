//go:build race

package faults_test

// The race detector remembers hundreds of kilobytes of each goroutine.
func init() { raced = true }
