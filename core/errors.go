package core

import "errors"

var (
	// ErrLost says that the key is no longer the claim's: another run has it, its record is gone, or the store could
	// not be reached for a whole lease. It is also the cause of a handler's cancelled context.
	ErrLost = errors.New("idem: claim lost")

	// ErrUnreadable says that the key holds something that is no record, is damaged, or was written by a newer version.
	// Nothing is overwritten, replayed or run.
	ErrUnreadable = errors.New("idem: record unreadable")

	// ErrNotDurable is what a Store returns when a write is not as safe as it was told to make it, such as on a number of
	// replicas. From Begin it refuses the request with 503 not-durable.
	ErrNotDurable = errors.New("idem: store not durable")
)

// ConfigError is one bad field of a [Config]. [New] joins as many as there are; errors.As finds the first.
type ConfigError struct {
	Field  string // as written in Go, e.g. "Lease.Duration"
	Reason string // what is wrong and what to set instead
}

// Error names the field.
func (e *ConfigError) Error() string { return "idem: Config." + e.Field + ": " + e.Reason }
