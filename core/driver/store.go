// Package driver is what a store, a codec or a blob store implements. Applications do not import it: they hand such a value to
// core.New.
package driver

import (
	"context"
	"time"
)

// Store keeps one record per key and moves it through the states of the package documentation. Each verb is one
// atomic step: two verbs on one key never interleave. Implementations are safe for concurrent use.
//
// Four rules bind every Store; package storetest checks them.
//
//  1. A verb that is sent twice by one owner answers the second time as it did the first, and leaves the record as
//     the first time left it.
//  2. Extend, Complete and Fail change nothing unless the record's last claim is the caller's: same Owner and, unless
//     it is 0, same Fence; only a Fail may carry 0, and it notes its owner then. They return [ErrLost] instead. They do not look at the lease: a claim
//     is over when another one takes its place, not when a clock says so.
//  3. The fence of a new claim is greater than that of every earlier claim of the key, also after the record expired.
//  4. Durations are counted on the store's own clock.
//
// An error other than [ErrLost] and [ErrUnreadable] means that the store could not answer. The verb may or may not have
// taken effect, now or later; the engine then sends Fail, or the same verb again.
type Store interface {
	// Begin claims the key when it is absent, FAILED, or STARTED with its lease over; otherwise it says what it found.
	// The first that applies decides: the claim's own record ([Claimed] again with the same fence, [ErrLost] when its
	// owner has failed or withdrawn already: see Fail), [Expired], another fingerprint ([Mismatch]), then [Completed],
	// [InProgress] and [Unknown].
	Begin(ctx context.Context, c Claim) (Entry, error)

	// Extend starts the lease and the retention of a STARTED record anew.
	Extend(ctx context.Context, c Claim) error

	// Complete turns STARTED into COMPLETED: the outcome is kept, unchanged, for the retention. Sending the same outcome
	// again is answered like the first time; another outcome is ErrLost. It must succeed in a store that is full. A store
	// that cannot tell whether the outcome is kept, although it asked again, returns [ErrOutcomeUnknown].
	Complete(ctx context.Context, c Claim, outcome []byte) error

	// Fail turns STARTED into FAILED: the next Begin claims the key. NoEffects opens it to another request only when no run of
	// this one failed without it, or vanished. NotRun gives the attempt back. It must succeed in a store that is full.
	//
	// A Fail with Fence 0 also withdraws the Begin whose answer never came and that may be executed later: where the record
	// is absent it becomes FAILED and free, for one lease, with no attempt counted, and the answer is nil; where it is
	// STARTED or FAILED under another owner, the record notes this one and is otherwise unchanged, and the answer is
	// [ErrLost]. A claim of a FAILED record notes the owner of that. Begin answers ErrLost to every owner so noted; a record
	// notes at least the last 16, until it is COMPLETED. A store that is full may note nothing where the record is absent,
	// since it would refuse that Begin as well.
	Fail(ctx context.Context, c Claim, f Failure) error
}

// Claim is the right to run, as one run asks for it and holds it. It is plain data and made once per run.
type Claim struct {
	Key           [32]byte      // hash of scope and key: the record's name
	Owner         [16]byte      // random per run; every verb of a run carries the same
	Fingerprint   [32]byte      // what makes two requests the same; never all zero
	Lease         time.Duration // how long the claim is good for without an Extend; counted in µs
	Retention     time.Duration // how long the record lives after its last write; counted in ms
	LateRetry     time.Duration // how long a tombstone outlives an outcome; Begin then answers Expired; counted in ms
	TakeoverFence int64         // with NoTakeover: the fence of the one vanished claim that Begin takes over all the same
	NoTakeover    bool          // Begin answers Unknown, instead of taking over, when a lease ended without an outcome
	Subscribed    bool          // a Begin that answers InProgress asks to be woken: see Notifier
	WantRemaining bool          // a Begin that answers Completed tells what is left of the retention
	Steps         bool          // the run has checkpoints: Extend keeps them alive, Complete drops them; see Checkpointer

	// The answer of Begin; zero before it. A Fail that follows a Begin without an answer carries Fence 0.
	Fence    int64
	Attempt  int
	Takeover bool

	// Operation tells one operation under a key from the next: see Entry.
	Operation int64
}

// State is what Begin found.
type State string

// The states that Begin reports. ABSENT, FAILED and an ended lease show as Claimed: the caller now runs.
const (
	Claimed    State = "claimed"     // the caller holds the claim
	InProgress State = "in-progress" // STARTED by another owner whose lease runs
	Completed  State = "completed"   // COMPLETED: Entry.Outcome is what to replay
	Mismatch   State = "mismatch"    // the record belongs to a request with another fingerprint
	Unknown    State = "unknown"     // STARTED, lease over, and the claim said NoTakeover
	Expired    State = "expired"     // absent or withdrawn, but the claim said LateRetry, and one that said so was completed once
)

// Entry is the answer of Begin. Fields that do not belong to its State are zero.
type Entry struct {
	State       State
	Fence       int64         // Claimed: greater than that of any earlier claim of the key; Unknown: the vanished claim's
	Attempt     int           // Claimed: 1 for the first, counted up through failures and takeovers; one that failed with NotRun does not count
	Operation   int64         // Claimed: the fence of the first claim since the key was last absent or free, or an operator revived its message
	Takeover    bool          // Claimed: this or an earlier attempt followed an owner that vanished; its effects may have happened
	Remaining   time.Duration // Claimed, InProgress: the rest of the lease; Completed: the rest of the retention, if WantRemaining; else 0
	Fingerprint [32]byte      // Mismatch: the record's
	Outcome     []byte        // Completed: the bytes that Complete was given; the caller must not change them
}

// Failure says why a run ended without an outcome to keep.
type Failure struct {
	Cause     string // short text for operators, at most 200 bytes are kept
	NoEffects bool   // the run had no effects: the next request under the key may have another fingerprint
	NotRun    bool   // there was no run, only a claim: its attempt is given back; goes with NoEffects
}

// Notifier is an ability that a Store may have: to tell requests that wait for a run when it ends.
type Notifier interface {
	// Watch calls wake, from any goroutine, when the claim of key may have ended, until stop is called. It returns when
	// nothing that ends later can be missed: a Begin with Subscribed that follows, and answers InProgress, is followed by a wake
	// once Complete or Fail ends that claim. A wake can be lost with a connection; one too many does no harm. The engine
	// waits for Watch no longer than for any call, and for stop not at all, so both may be called from any goroutine.
	Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error)
}

// Checkpointer is an ability that a Store may have: to keep the results of a run's finished steps, so that the next run
// of the same request goes on behind them. Both verbs start the retention anew, and return [ErrLost] like Extend.
type Checkpointer interface {
	// Checkpoint keeps the result of a step, which has a name, in place of an earlier one. It must succeed in a store that is full.
	// An error that wraps errors.ErrUnsupported says that it will be refused however often it is sent. A store that returns one
	// should also have the method MayCheckpoint(context.Context, Claim) error, which asks no server: it is called before a step is
	// done, and returns that error when the result would be refused.
	Checkpoint(ctx context.Context, c Claim, step string, result []byte) error

	// Checkpoints returns the results that this run and earlier ones of the same request have kept.
	Checkpoints(ctx context.Context, c Claim) (map[string][]byte, error)
}

// SessionOpener is an ability that a Store may have: to have a session of its own open while a run lasts.
type SessionOpener interface {
	// OpenSession is called when the claim is held, before the handler. The context it returns is the handler's and that of the
	// verbs which end the run. leave is called when the run has ended, however it did, after the first of these verbs.
	OpenSession(ctx context.Context, c Claim) (run context.Context, leave func())
}
