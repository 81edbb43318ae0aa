package core

import "github.com/go-idem/idem/core/driver"

var (
	// ErrLost says that the key is no longer the claim's: another run has it, its record is gone, or the store could
	// not be reached for a whole lease. It is also the cause of a handler's cancelled context.
	ErrLost = driver.ErrLost
)

// ConfigError is one bad field of a [Config]. [New] joins as many as there are; errors.As finds the first.
type ConfigError struct {
	Field  string // as written in Go, e.g. "Lease.Duration"
	Reason string // what is wrong and what to set instead
}

// Error names the field.
func (e *ConfigError) Error() string { return "idem: Config." + e.Field + ": " + e.Reason }
