package driver

import "errors"

var (
	// ErrLost says that the key is no longer the claim's: another run has it, or its record is gone.
	ErrLost = errors.New("idem: claim lost")

	// ErrUnreadable says that the key holds something that is no record, is damaged, or was written by a newer version.
	// Nothing is overwritten, replayed or run.
	ErrUnreadable = errors.New("idem: record unreadable")

	// ErrNotDurable is what a Store returns when a write is not as safe as it was told to make it, such as on a number of
	// replicas. From Begin it refuses the request with 503 not-durable.
	ErrNotDurable = errors.New("idem: store not durable")

	// ErrOutcomeUnknown says that nobody can tell what became of a run: a Complete whose effect the store does not know, or
	// a LeaseConfig.OnUnknown of package core that finds nothing out.
	ErrOutcomeUnknown = errors.New("idem: outcome unknown")
)
