package core

import (
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
)

var (
	// ErrLost says that a run no longer holds its key: another run has claimed it, its record is gone ([driver.ErrGone]), or the
	// store was unavailable for a whole lease. The context of such a run's handler is cancelled with a cause that wraps ErrLost,
	// and the handler should stop then: another run may be in progress, and the store rejects what this one writes to the record.
	ErrLost = driver.ErrLost

	// ErrOutcomeUnknown is what a LeaseConfig.OnUnknown returns when it cannot tell what became of a run.
	ErrOutcomeUnknown = driver.ErrOutcomeUnknown

	// ErrNotUnknown is returned by [Engine.Resolve] for an operation that has no unknown outcome.
	ErrNotUnknown = errors.New("idem: the outcome is not unknown")
)

// The errors that hooks receive, and causes of contexts.
var (
	errNotRenewed    = fmt.Errorf("%w: no extension was confirmed for a whole lease", ErrLost)
	errCommitGivenUp = fmt.Errorf("%w: the store took nothing for ten leases", ErrLost)
	errOverdue       = fmt.Errorf("%w: the run has lasted longer than Lease.MaxRun", ErrLost)
	errBodyOmitted   = errors.New("idem: the store answers, and has refused this outcome for a whole lease: " +
		"it is kept without its body")
	errLateBegin        = fmt.Errorf("%w: begin was answered after the lease", ErrLost)
	errUnknownAlgorithm = fmt.Errorf("%w: its fingerprint was made by an algorithm that this engine does not know, "+
		"or that is weaker than its own: name it in Fingerprint.Previous", driver.ErrUnreadable)
	errBodyUnreadable = errors.New("idem: the body of the request cannot be read")
	errNoResponse     = errors.New("idem: run returned neither an error nor a response with a status from 100 to 999")
	errNotFinal       = errors.New("idem: a response that no handler has written must have a status from 200 to 999, and no connection")
)
