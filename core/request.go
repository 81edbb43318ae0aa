package core

// Request is what the engine reads of an incoming request. An adapter fills it, and the engine keeps nothing of it. Functions of
// the configuration that receive a Request, such as Scope, Limits.Quota and Fingerprint.Func, must not call its functions once
// the request is over, because on Fiber its memory is reused then.
type Request struct {
	Method   string
	Path     string // as the client sent it, still escaped; Do removes a scheme and authority
	RawQuery string // without the '?'

	// Header returns all values of the named header field, or nil if there is none. For "Host" it returns the host of the
	// request in lower case, wherever the framework keeps that.
	Header func(name string) []string

	// Body reads the whole body and leaves it readable for the handler. For a body of more than limit bytes, it returns an error
	// that wraps *http.MaxBytesError, or more than limit bytes. The engine calls Body at most once: for a request that it is going
	// to claim, or before that if a function of the configuration calls Body. The Request of such a function has a Body that can be
	// called again. It reads up to Limits.RequestBody bytes, whatever limit it gets. A form that was parsed before, as Fiber does by
	// default, has other bytes than were sent: they stand for its names and values.
	Body func(limit int64) ([]byte, error)

	// Route is the router's pattern for the path, such as "/payments/:id", if it is known before the handler runs. Events have it.
	Route string

	// Scope, if not nil, replaces Config.Scope. The Scope options of adapters use it, since they read values of the framework.
	Scope func() string
}

// Response is a response that a handler made, that a replay sends, or that refuses a request. Functions that receive a Response,
// such as a Policy or an OmitBody, must not change it or keep its body, because on Fiber the next response reuses its memory.
type Response struct {
	Status  int
	Header  []Field  // the header fields that the handler added or changed, in order; a name may occur several times
	Removed []string // the names of header fields that outer middleware set and the handler removed
	Added   []Field  // header fields to send beside those of outer middleware with the same name, which Header replaces
	Body    []byte
	Trailer []Field // trailer fields, which reach the first client and are not stored

	Sent       bool // the client has the response already: there is nothing left to send
	Omitted    bool // Body is not the whole body
	Unfinished bool // the response streams, and its client left before the end, or may leave; implies Omitted; the run goes on
	Hijacked   bool // the handler took over the connection: there is no response to store
	Unrouted   bool // a router's own 404 or 405: no handler ran, so the key is released unless the run has decided otherwise

	// Route is the router's pattern for the path, if it is known only now. The Done event of the run has it.
	Route string

	origin string // of a stored outcome: see KeepConfig.Origin

	// Later, if not nil, says that the response is made after run has returned, as Fiber's streams are. Do calls Later once and
	// then returns at once, with nothing to send. The claim is held and renewed until end is called, once, from any goroutine.
	// The arguments of end are the whole response, which is Sent, or an error if the stream broke off. After an error, the same
	// request may run again, or its outcome is unknown if LeaseConfig.OnUnknown is set; an Unfinished response counts as an
	// error, unless the handler has called Decide. A run without a claim goes on without Later.
	Later func(end func(*Response, error))
}

// Field is one header field.
type Field struct{ Name, Value string }

// The header fields that say what a response lacks.
const (
	bodyHeader        = "Idempotent-Body"
	unprotectedHeader = "Idempotent-Unprotected"
)
