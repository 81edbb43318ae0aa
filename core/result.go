package core

import "time"

// Result says what became of a request or a task.
type Result struct {
	// Bypassed says that the engine did and sent nothing, and that the caller runs the handler as if there were no engine. The
	// request has no key, its method is not guarded, or a run of the same record encloses it.
	Bypassed bool

	// Replayed says that Response is a stored outcome.
	Replayed bool

	// Problem is the code of the refusal, or "" if there is none.
	Problem string

	// RetryAfter says after which time a refused operation is worth another try; 0 means that it is not.
	RetryAfter time.Duration

	// Err says more about a refusal, or about a replay whose body is lost, than clients may learn. It is often nil.
	Err error

	// Decision is what became of the key of a task that was run now, by the policy or [Decide].
	Decision Disposition

	// Attempt is how many runs of a task there have been, this one included. For a task that is Bypassed it is the attempt of
	// the enclosing run.
	Attempt int

	// Response is the response to send. It is nil if there is nothing to send, because the request was bypassed or its response
	// has already been sent. Other replays may share its slices, so a caller that changes them must copy them first.
	Response *Response
}
