package consumer

import "time"

// Message is one delivery of a broker.
type Message struct {
	Group   string // the consumers that share the work; two groups handle a message each on their own (EVT-05)
	ID      string // the message's own, the same at each delivery
	Payload []byte // what makes two messages with one ID the same
}

// Verdict says what became of a delivery, and what to do with it.
type Verdict string

// The verdicts.
const (
	// Done: the message was handled now, and its result is kept, or will be as soon as the store is available. With
	// core.Config.DangerouslyFailOpen it may have been handled without a claim; then nothing is kept. Acknowledge it.
	Done Verdict = "done"

	// Duplicate: an earlier delivery was handled. Acknowledge this one.
	Duplicate Verdict = "duplicate"

	// Busy: the message is in progress elsewhere, or the store or a blob is unavailable. Do not acknowledge it; deliver it again
	// after RedeliverAfter.
	Busy Verdict = "busy"

	// Failed: the message was handled without success. Do not acknowledge it; deliver it again.
	Failed Verdict = "failed"

	// Dead: the message is not to be handled again. Put it aside, then acknowledge it.
	Dead Verdict = "dead"
)

// Delivery is what [Consume] says of a message.
type Delivery[T any] struct {
	Verdict Verdict
	Result  T // Done, Duplicate: what the handler returned

	// Omitted, of a Duplicate, says that Result is not kept: it was too long, was taken away, lost or forgotten, or is the one of
	// another payload.
	Omitted bool

	Mismatch       bool          // Duplicate: of a message with another payload, see Config.SkipMismatch
	Attempt        int           // Done, Failed: how many runs of the message there have been, this one included
	RedeliverAfter time.Duration // Busy, Failed: when it is worth delivering again

	// Err says why a message is Failed or Dead; why it is Busy, unless it is in progress elsewhere; and why the Result of a
	// Duplicate is lost or cannot be read.
	Err error
}
