//go:build !linux

package sqlitestore

import "github.com/go-idem/idem/core/driver"

// checkDisk finds nothing: only Linux says what file system it is.
func checkDisk(string) []driver.Finding { return nil }
