// Package rpc is what the adapters for gRPC and Connect share: it brings one unary call through an engine. It knows neither
// framework.
package rpc

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/go-idem/idem/core"
)

// requestMethod is the Request.Method of calls. It differs from the method of HTTP requests, because an engine that guards both
// must not replay the outcome of one to the other: the two stored forms differ.
const requestMethod = "RPC"

// Options are what the options of an adapter set. A nil field stands for the default.
type Options struct {
	Scope func(context.Context) string
	Skip  func(procedure string) bool
}

// Server brings calls through an engine. It is safe for concurrent use.
type Server struct {
	engine   *core.Engine
	options  Options
	keyNames []string // of the metadata that may carry a key
}

// NewServer returns a server that runs calls under e. Its engine differs from e in Key.Methods, since it guards calls and no
// HTTP methods, and in Problems, since a refusal is a status.
func NewServer(e *core.Engine, o Options) *Server {
	own := e.With(func(c *core.Config) {
		c.Key.Methods = []string{requestMethod}
		c.Problems.Render, c.Problems.Link = renderProblem, false
	})
	key := own.Config().Key
	return &Server{own, o, append([]string{key.Header}, key.Aliases...)}
}

// Call is an incoming unary call.
type Call struct {
	Procedure string                        // such as "/acme.Payments/Pay"
	Schema    protoreflect.MethodDescriptor // nil if it is not known
	Header    func(name string) []string    // returns metadata; values of binary names may have any encoding
	Message   any                           // the request
	ReadOnly  bool                          // the framework knows that the method has no side effects
}

// Reply is what a handler returns, or what takes its place.
type Reply struct {
	Header, Trailer []core.Field // values of names that end in "-bin" are in base64, without padding
	Message         any          // nil unless Status is nil
	Status          *status.Status
}

// Result says what is to be sent for a call.
type Result struct {
	// Bypassed says that the caller runs the handler as if there were no engine.
	Bypassed bool

	// First says that the handler has run, and that its own message or error is to be sent. Header and Trailer take the place of
	// those that the handler has set.
	First bool

	Reply
}

// Do takes a call through its whole life. run calls the handler, at most once, and may panic.
//
// A call with a key that could not be replayed is refused with Internal before anything runs: its method or its request is none
// of protobuf. If the reply of the handler cannot be stored, the caller gets the error that is stored in its place, so that the
// first response and the replays are the same.
func (s *Server) Do(ctx context.Context, call *Call, run func(context.Context) *Reply) Result {
	if s.isUnguarded(call) {
		return Result{Bypassed: true}
	}
	message, isMessage := call.Message.(proto.Message)
	if s.HasKey(call.Header) && (call.Schema == nil || !isMessage) {
		return Result{Reply: *internal("idem: %s has a key, but it is no method of the protobuf registry, or its request is a %T: "+
			"its response could not be replayed", call.Procedure, call.Message)}
	}
	var isRun bool // and what the handler has returned is what replays say
	result, _ := s.engine.Do(ctx, s.request(ctx, call, message), func(ctx context.Context) (*core.Response, error) {
		reply := run(ctx)
		response, err := encode(reply)
		isRun = err == nil && reply.Status == validStatus(reply.Status)
		if err != nil {
			response, err = encode(internal("idem: the response cannot be stored: %v", err))
		}
		return response, err
	})
	switch {
	case result.Bypassed:
		return Result{Bypassed: true}
	case isRun && result.Problem == "" && !result.Replayed:
		header, trailer, _, _ := split(result.Response.Header)
		return Result{First: true, Reply: Reply{Header: header, Trailer: trailer}}
	}
	return Result{Reply: *decode(result.Response, call.Schema)} // A call without a key is refused, and needs no schema.
}

// isUnguarded reports whether the handler runs without the engine, whatever metadata the call has.
func (s *Server) isUnguarded(call *Call) bool {
	return call.ReadOnly || isReadOnly(call.Schema) || s.options.Skip != nil && s.options.Skip(call.Procedure)
}

// RefuseStream returns the status of a stream that is refused because it has a key, or nil. Streams cannot be replayed. A client
// that sends a key relies on it, so the stream does not run without protection.
func (s *Server) RefuseStream(call *Call) *status.Status {
	if s.isUnguarded(call) || !s.HasKey(call.Header) {
		return nil
	}
	return &status.Status{Code: int32(code.Code_UNIMPLEMENTED), Message: fmt.Sprintf(
		"idem: %s is a stream, which cannot be guarded by an idempotency key. It did not run. Send it without a key.", call.Procedure)}
}

// HasKey reports whether the metadata has a name that carries keys. It does not look at the value: an invalid key is a key, and
// the engine refuses it.
func (s *Server) HasKey(header func(string) []string) bool {
	for _, name := range s.keyNames {
		if len(header(name)) > 0 {
			return true
		}
	}
	return false
}

// request returns what the engine reads of a call. The body is the canonical encoding of the message, so one request has one
// fingerprint however the client has encoded it.
func (s *Server) request(ctx context.Context, call *Call, message proto.Message) core.Request {
	req := core.Request{Method: requestMethod, Path: call.Procedure, Route: call.Procedure}
	req.Header = func(name string) []string {
		if strings.EqualFold(name, "Content-Type") { // says how the message was sent, and not what is in Body
			return nil
		}
		return call.Header(name)
	}
	req.Body = func(int64) ([]byte, error) { return canonical.Marshal(message) }
	if s.options.Scope != nil {
		req.Scope = func() string { return s.options.Scope(ctx) }
	}
	return req
}

// canonical encodes one message always in the same bytes, in one version of the schema and of the protobuf module.
var canonical = proto.MarshalOptions{Deterministic: true}
