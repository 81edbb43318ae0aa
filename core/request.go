package core

import "time"

// Request is what the engine reads of an incoming request. An adapter fills it; nothing in it is kept. A function of the
// configuration that is shown one (Scope, Limits.Quota, Fingerprint.Func and others) must not call its functions once the
// request is over: with Fiber there is nothing left that they could read.
type Request struct {
	Method   string
	Path     string // as the client sent it, still escaped; Do takes a scheme and authority before it away
	RawQuery string // without the '?'

	// Header returns the values of all lines of the named header, nil when there are none. For "Host" it returns the host that
	// the request is for, in lower case, wherever the framework keeps that.
	Header func(name string) []string

	// Body reads the whole body, once, and leaves it readable for the handler. When there are more
	// than limit bytes, it returns an error that wraps *http.MaxBytesError, or more than limit bytes. The engine calls it only for a request it is going to claim.
	Body func(limit int64) ([]byte, error)

	// Scope, when set, takes the place of Config.Scope: it is how an adapter's option reads framework values.
	Scope func() string
}

// Response is an answer: what a handler produced, what a replay sends, what a refusal says. Who is shown one (a Policy, an
// OmitBody) must not change it, nor keep its body: that of a Fiber handler lies in fasthttp's memory, which the next answer gets.
type Response struct {
	Status  int
	Header  []Field  // lines that the handler added or changed, in order, repeated names included
	Removed []string // names that were set around the handler and that it deleted
	Added   []Field  // lines that stand beside those of the same name set around the handler, which Header replaces
	Body    []byte
	Trailer []Field // lines behind the body; they reach the first client and are not kept

	Sent       bool // the client has it already: there is nothing left to send
	Omitted    bool // Body is not the whole body
	Unfinished bool // it streams, and the client left, or may leave, before the end; implies Omitted. The run's context goes on
	Hijacked   bool // the handler took the connection over; there is no answer to keep
	Unrouted   bool // no handler was found for the request, as in a router's own 404 or 405: releases the key, unless the run has decided

	// Later, when set, says that the answer is made when run has returned, as that of a stream: Do returns at once, with
	// nothing to send, and the claim is held and renewed until end is called, once, from any goroutine. end takes the
	// whole answer, which is Sent, or an error when it broke off: then the same request may run again, or its outcome is
	// unknown where LeaseConfig.OnUnknown is set. An Unfinished one broke off, too, unless its handler has decided (see
	// Decide). Do calls Later once, before it returns; a run without a claim goes on without it.
	Later func(end func(*Response, error))
}

// Field is one header line.
type Field struct{ Name, Value string }

// Result says what became of a request.
type Result struct {
	// Bypassed: the request carries no protection (no key, or a method that is not guarded), or a run of the same record goes on
	// around it. Nothing was run or sent; the adapter runs the handler as if the engine were not there.
	Bypassed bool

	// Replayed: Response is a kept outcome.
	Replayed bool

	// Problem is the code of the refusal, "" when there is none.
	Problem string

	// RetryAfter says for a refusal when the same operation is worth sending again; 0: not as it is.
	RetryAfter time.Duration

	// Err says more of a refusal, or of a replay whose body is lost, than clients are told; often nil.
	Err error

	// Decision, of a task that was run now, is what became of its key by the policy or [Decide].
	Decision Disposition

	// Attempt, of a task, is how many runs there have been, this one included; of one that is Bypassed those of the run around it.
	Attempt int

	// Response is to be sent as it is. Other replays may share its lists and its body: who wants others makes copies. It is
	// nil when there is nothing to send: bypassed, or sent while it was made.
	Response *Response
}
