// Package driver defines what stores, codecs and blob stores implement, and what adapters share with the engine. Applications need
// not import it:
// they pass an implementation to core.New.
package driver

import (
	"context"
	"time"
)

// Store holds one record per key and moves it through the states that package core documents. Each call is one atomic step:
// two calls on one key never interleave. A Store must be safe for concurrent use.
//
// Four rules bind every Store; package storetest checks them.
//
//  1. A call that one owner repeats returns the same result the second time, and leaves the record as the first call left it. So
//     a repeated Begin, Complete or Fail renews neither the lease nor the retention. A repeated Extend or call of a
//     [Checkpointer] renews them once more.
//  2. Extend, Complete, Fail and the calls of a [Checkpointer] change the record only if its last claim is the caller's: it has
//     the same Owner and the same Fence. Otherwise they return [ErrLost], and [ErrGone] if the record is absent. A claim with
//     the Fence 0 is nobody's, so its calls return ErrLost, with one exception: a Fail may have the Fence 0, which matches
//     every Fence of its Owner, and then notes its owner as described there. The calls do not look at the lease: a claim ends
//     when another claim replaces it, and not when its time is over.
//  3. The fence of a new claim is greater than that of every earlier claim of the key, even after the record has expired.
//  4. Durations are counted on the store's own clock. A store may round them to the units that [Claim] names, retentions only
//     up. The shortest durations are valid: they end at once, or after one unit.
//
// If the context of a call has ended before the call begins, the call changes nothing, and returns an error that is none of
// [ErrLost], [ErrUnreadable] and [ErrOutcomeUnknown]. So it does not return context.Cause, which wraps ErrLost in a run that has
// lost its claim.
//
// A store copies the slices that it keeps: after a call without an error the caller may change what it passed. After an error it
// must not, because the call may still take effect. A slice that a call returned is never changed, neither by the caller nor by
// the store, so a store may return its own slices, and to many callers.
//
// After an error other than [ErrLost], [ErrUnreadable] and [ErrOutcomeUnknown], the call may have taken effect, may do so later,
// or may never do so. The engine then calls Fail, or repeats the call.
type Store interface {
	// Begin claims the key if it is absent, FAILED, or STARTED with an ended lease. Otherwise it reports what it found. The first
	// of these that applies decides: the record is STARTED by this very claim ([Claimed] again with the same fence); the owner
	// has failed or withdrawn it ([ErrLost], see Fail); [Expired]; another fingerprint ([Mismatch]); [Completed];
	// [InProgress]; [Unknown].
	Begin(ctx context.Context, c Claim) (Entry, error)

	// Extend restarts the lease and the retention of a STARTED record.
	Extend(ctx context.Context, c Claim) error

	// Complete turns STARTED into COMPLETED: the outcome is stored unchanged for the retention. If the record is COMPLETED with
	// the same outcome, Complete returns nil; with another outcome it returns [ErrLost]. It must succeed in a full store. A store
	// that cannot find out whether the outcome is stored, even by asking again, returns [ErrOutcomeUnknown].
	//
	// With a LateRetry, Complete also leaves a tombstone. It is not seen before the retention of the outcome is over, and lasts
	// for LateRetry from then on. A record that is not COMPLETED when its retention ends leaves no new tombstone.
	Complete(ctx context.Context, c Claim, outcome []byte) error

	// Fail turns STARTED into FAILED: the next Begin claims the key. With NoEffects, another request may claim it, unless an
	// earlier run of this one failed without NoEffects or vanished. With NotRun, the attempt does not count. Fail must succeed in
	// a full store.
	//
	// A Fail with Fence 0 also withdraws a Begin that returned no result and that the store may still execute later. If the
	// record is absent, it becomes FAILED for one lease, free for every request and without a counted attempt, and Fail returns
	// nil. If it is STARTED or FAILED under another owner, the record notes the withdrawn owner, and Fail returns [ErrLost]. A
	// record that is free for every request then lives for at least one lease of the withdrawn claim more; any other record is
	// otherwise unchanged. A claim of a FAILED record notes the owner of that record. Begin returns ErrLost to every noted owner.
	// A record notes at least the last 16 owners, until it is COMPLETED or absent. If the record is absent, a full store may note
	// nothing, since it would refuse that Begin as well.
	Fail(ctx context.Context, c Claim, f Failure) error
}

// Claim is the right to run, as a run requests it and holds it. It is plain data. Each run makes one.
type Claim struct {
	Key           [32]byte      // hash of scope and key: the name of the record
	Owner         [16]byte      // random per run; all calls of one run carry the same
	Fingerprint   [32]byte      // identifies the request; never all zero
	Lease         time.Duration // how long the claim lasts without an Extend; counted in microseconds, and up to 1 ms longer
	Retention     time.Duration // how long the record lives after its last write; counted in milliseconds
	LateRetry     time.Duration // how long a tombstone outlives an outcome, so that Begin returns Expired; counted in milliseconds
	TakeoverFence int64         // with NoTakeover: the fence of the one vanished claim that Begin takes over nevertheless
	NoTakeover    bool          // if a lease has ended without an outcome, Begin returns Unknown and does not take over
	Subscribed    bool          // the caller of a Begin that returns InProgress wants to be notified: see Notifier
	WantRemaining bool          // a Begin that returns Completed reports the rest of the retention
	Steps         bool          // the run has checkpoints, which Extend keeps alive and Complete deletes: see Checkpointer

	// What Begin returned; zero before that. A Fail after a Begin without a result has Fence 0.
	Fence    int64
	Attempt  int
	Takeover bool

	// Operation distinguishes one operation under the key from the next: see Entry.
	Operation int64
}

// State says what Begin found.
type State string

// The states that Begin returns. A record that was absent, FAILED, or had an ended lease is returned as Claimed, since the caller
// now holds the claim.
const (
	Claimed    State = "claimed"     // the caller holds the claim
	InProgress State = "in-progress" // STARTED by another owner, and the lease runs
	Completed  State = "completed"   // COMPLETED: Entry.Outcome is to be replayed
	Mismatch   State = "mismatch"    // the record belongs to a request with another fingerprint
	Unknown    State = "unknown"     // STARTED, the lease has ended, and the claim has NoTakeover
	Expired    State = "expired"     // absent or withdrawn, the claim has LateRetry, and a claim with LateRetry was completed before
)

// Entry is the result of Begin. Fields that do not belong to its State are zero.
type Entry struct {
	State State

	// Fence is greater than that of every earlier claim of the key (Claimed), or that of the vanished claim (Unknown).
	Fence int64

	// Attempt (Claimed) counts the runs of the request, failed and vanished ones included, from 1. A claim that ended with NotRun
	// does not count.
	Attempt int

	// Operation (Claimed) is the fence of the first claim since the key was last absent or free, or since an operator revived
	// its message.
	Operation int64

	// Takeover (Claimed) says that this or an earlier attempt followed a run that vanished, whose effects may have happened.
	Takeover bool

	// Remaining is the rest of the lease (Claimed, InProgress), or of the retention (Completed, if the claim has WantRemaining).
	Remaining time.Duration

	// Fingerprint (Mismatch) is that of the record.
	Fingerprint [32]byte

	// Outcome (Completed) has the bytes that Complete stored. The caller must not change them.
	Outcome []byte
}

// MaxCauseBytes is how many bytes of a Failure's Cause a store keeps.
const MaxCauseBytes = 200

// Failure says why a run ended without an outcome to store.
type Failure struct {
	Cause     string // a short text for operators; the first MaxCauseBytes of it are stored
	NoEffects bool   // the run had no effects: the next request under the key may have another fingerprint
	NotRun    bool   // there was a claim and no run, so the attempt does not count; requires NoEffects
}

// Notifier is an optional ability of a Store: it notifies waiting requests when a run ends.
type Notifier interface {
	// Watch calls wake, from any goroutine, when the claim of key may have ended, until stop is called. It returns once it is
	// ready: if a later Begin with Subscribed returns InProgress, and Complete, Fail or Forget then ends that claim, wake is
	// called. A wake may be lost with a connection, and extra calls of wake do no harm, even while stop runs. The store calls
	// wake without a lock that its own calls need, so wake may call the store. wake must return soon, because other requests may
	// wait for it.
	//
	// The engine waits for Watch no longer than for any other call, and does not wait for stop at all, so both may be called
	// from any goroutine.
	Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error)
}

// Checkpointer is an optional ability of a Store: it stores the results of a run's finished steps, so that the next run of the
// same request skips these steps. Both calls restart the retention, and return [ErrLost] like Extend.
type Checkpointer interface {
	// Checkpoint stores the result of the named step, in place of an earlier result. It must succeed in a full store. An error
	// that wraps errors.ErrUnsupported says that the store will never accept this result. A store that returns such an error
	// should also have the method MayCheckpoint(context.Context, Claim) error, which calls no server. The engine calls it before
	// a step runs; it returns the error if the result would be refused.
	Checkpoint(ctx context.Context, c Claim, step string, result []byte) error

	// Checkpoints returns the results that this run and earlier runs of the same operation have stored, by the names of the
	// steps. An operation, and with it the steps, ends when the record is COMPLETED, free for another request, or absent. The map
	// belongs to the caller, and may be nil if there are no steps.
	Checkpoints(ctx context.Context, c Claim) (map[string][]byte, error)
}

// SessionOpener is an optional ability of a Store: it keeps a session open while a run lasts, such as a database transaction.
type SessionOpener interface {
	// OpenSession is called once the claim is held, before the handler. The returned context is that of the handler, and of the
	// calls that end the run. leave is called once the run has ended, in whichever way, after the first of these calls.
	OpenSession(ctx context.Context, c Claim) (run context.Context, leave func())
}
