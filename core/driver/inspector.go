package driver

import (
	"context"
	"time"
)

// Inspector is an optional ability of a Store: operators look at records, list them, and forget them. No request needs it.
type Inspector interface {
	// Look returns what the store knows of the record with this name. Look changes nothing.
	Look(ctx context.Context, name [32]byte) (Record, error)

	// Scan calls found for each record that the filter selects, in no order, until found returns false. It reads the records in
	// batches that are small enough not to delay the requests of others. A record that is there during the whole Scan is found
	// at least once; a record that appears, changes or expires meanwhile is found as it was at some time, or not at all. found
	// is not called by two goroutines at a time, and may call the store. Scan changes nothing. After an error, records may be
	// missing.
	Scan(ctx context.Context, filter Filter, found func(Record) bool) error

	// Forget deletes a record, its steps and its tombstone, as seen in the result of Look or Scan: the next request under the
	// key is new. A run that has vanished and comes back finds that it has lost its claim. Forget changes nothing and returns
	// [ErrLost] if the record is [InProgress], [Unreadable], or no longer as it was seen. If there is nothing to delete any more,
	// it returns nil, so a repeated call returns the same. Forget must succeed in a full store.
	Forget(ctx context.Context, seen Record) error

	// Steps returns the results of steps that the next run under this name would find, by the names of the steps, as Checkpoint has
	// stored them: Record.Steps counts them. Without any the map may be nil. It belongs to the caller. Steps changes nothing.
	Steps(ctx context.Context, name [32]byte) (map[string][]byte, error)
}

// OutcomeReader is an optional ability of an Inspector: it reads an outcome without a claim. The engine tells a client the status of
// its stored response by it.
type OutcomeReader interface {
	// Outcome returns the bytes that Complete has stored under this name, or nil if the record is not Completed. Outcome changes
	// nothing.
	Outcome(ctx context.Context, name [32]byte) ([]byte, error)
}

// The states that only an Inspector returns.
const (
	Absent     State = "absent"     // there is no record
	Failed     State = "failed"     // FAILED: the next request claims the key, or finds a tombstone behind a Free record
	Unreadable State = "unreadable" // what lies under this name is no record, is damaged, or was written by a later version
)

// Record is what a store knows of one record, without its outcome. Fields that do not belong to its State are zero.
type Record struct {
	Name [32]byte // see [AppendRecordName]

	// State is Absent, InProgress, Unknown, Completed, Failed, Expired or Unreadable. InProgress and Unknown are STARTED: while
	// the lease runs, and afterwards. Unlike in the result of Begin, Expired means that there is no record, but a tombstone.
	State State

	// Version changes when another claim replaces the record's claim, and when the state changes; not when the lease is extended.
	// It is opaque, and UTF-8, so that a Record can wait as JSON for what an operator decides. Forget compares it.
	Version string

	Fence     int64     // of the last claim (InProgress, Unknown, Failed)
	ClaimedAt time.Time // when the store granted that claim, by the store's clock (InProgress, Unknown, Failed)

	Fingerprint [32]byte // of the request (InProgress, Unknown, Completed, Failed); zero if Free
	Attempt     int      // as in Entry: how many runs count, the last one included (InProgress, Unknown, Completed, Failed)
	Takeover    bool     // as in Entry: an earlier run vanished (InProgress, Unknown, Completed, Failed)
	Free        bool     // the next request may have another fingerprint (Failed)
	Cause       string   // of the failure (Failed)
	Steps       int      // how many results of steps the next run would find (InProgress, Unknown, Failed)

	Remaining time.Duration // of the lease (InProgress); negative, the time since its end (Unknown)
	Expires   time.Duration // how long the record is kept if nothing changes it; of a tombstone if Expired
	Bytes     int           // the length of the record with its outcome, as the store counts it; without steps
}

// IsReleased reports whether the record is all that remains of claims under which nothing ran. A request leaves one under its own
// name when it finds its record under an earlier name.
func (r *Record) IsReleased() bool { return r.State == Failed && r.Free && r.Attempt == 0 }

// Filter selects records. The zero value selects all.
type Filter struct {
	States []State       // nil: every state
	Scope  []byte        // nil, or the first [ScopeBytes] bytes of the names
	MinAge time.Duration // since ClaimedAt; selects no record without that if it is not 0
}

// Selects reports whether the filter selects a record. now is the time of the store's clock.
func (f *Filter) Selects(r *Record, now time.Time) bool {
	return r.State != Absent && f.hasState(r.State) &&
		(f.Scope == nil || string(f.Scope) == string(r.Name[:ScopeBytes])) &&
		(f.MinAge <= 0 || !r.ClaimedAt.IsZero() && now.Sub(r.ClaimedAt) >= f.MinAge)
}

// hasState reports whether the filter selects records of this state.
func (f *Filter) hasState(state State) bool {
	for _, selected := range f.States {
		if selected == state {
			return true
		}
	}
	return len(f.States) == 0
}
