package driver

import (
	"errors"
	"fmt"
)

var (
	// ErrLost says that the claim no longer holds the key: another run has claimed it, or its record is gone.
	ErrLost = errors.New("idem: claim lost")

	// ErrGone wraps ErrLost and says which of the two it is: the key has no record. The store has lost the record, for example
	// when it was emptied, or the retention has ended during the run. Nothing keeps another request with the key from running.
	ErrGone = fmt.Errorf("%w: its record is gone", ErrLost)

	// ErrUnreadable says that the key holds something that is not a record, is damaged, or was written by a newer version. The
	// engine overwrites, replays and runs nothing then.
	ErrUnreadable = errors.New("idem: record unreadable")

	// ErrNotDurable says that a write was not confirmed as widely as the Store is configured to require, for example by a number
	// of replicas. If Begin returns it, the engine refuses the request with 503 not-durable.
	ErrNotDurable = errors.New("idem: store not durable")

	// ErrOutcomeUnknown says that the result of a run cannot be found out. Complete returns it if the store cannot tell whether
	// the outcome is stored; LeaseConfig.OnUnknown of package core may return it too.
	ErrOutcomeUnknown = errors.New("idem: outcome unknown")

	// ErrBodyTaken is returned by the Body of a core.Request if middleware outside of the engine has read the body and has not put it
	// back, so that two requests with different bodies could not be told apart.
	ErrBodyTaken = errors.New("idem: middleware outside of the engine has read the body of the request: it must put the body back")
)
