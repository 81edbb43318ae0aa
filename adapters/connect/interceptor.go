package idem

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
)

// Interceptor returns an interceptor for handlers that runs unary methods under e. It is safe for concurrent use. It panics if e
// was made with a configuration that is invalid for calls. Calls of clients pass.
//
// A response is held back until its outcome is stored. What interceptors outside set is neither stored nor doubled. Streams with
// a key are refused with Unimplemented, because a stream cannot be replayed and a client that sends a key relies on it; streams
// without a key, and those of Skip, pass.
//
// A call with a key is refused with Internal if its method has no protobuf schema, or if its request is no proto.Message. The
// option Fingerprint.Headers does not see Host, which Connect hides.
func Interceptor(e *core.Engine, opts ...Option) connect.Interceptor {
	return interceptor{newServer(e, opts)}
}

// interceptor is the connect.Interceptor of a server.
type interceptor struct{ server *rpc.Server }

// WrapUnary implements connect.Interceptor.
func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		x := newExchange(ctx)
		result := i.server.Do(ctx, newCall(req.Spec(), req.Header(), req.Any()), func(ctx context.Context) *rpc.Reply {
			x.hold()
			defer x.restore()
			x.response, x.err = next(ctx, req)
			return x.reply()
		})
		if result.Bypassed {
			return next(ctx, req)
		}
		return x.send(&result)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if refused := i.server.RefuseStream(newCall(conn.Spec(), conn.RequestHeader(), nil)); refused != nil {
			return errorOf(refused, nil)
		}
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// newCall returns an incoming call.
func newCall(spec connect.Spec, header http.Header, message any) *rpc.Call {
	schema, isKnown := spec.Schema.(protoreflect.MethodDescriptor)
	if !isKnown {
		schema = rpc.Schema(spec.Procedure)
	}
	return &rpc.Call{
		Procedure: spec.Procedure, Schema: schema, Header: header.Values, Message: message,
		ReadOnly: spec.IdempotencyLevel == connect.IdempotencyNoSideEffects,
	}
}

// exchange is one call, and what its handler returns.
type exchange struct {
	header, trailer         http.Header // which the context of the handler offers; nil if it offers none
	outerHeader, outerTrail http.Header // what interceptors outside have set there
	response                connect.AnyResponse
	err                     error
}

// newExchange returns the exchange of a handler's context.
func newExchange(ctx context.Context) *exchange {
	info, isHandler := connect.CallInfoForHandlerContext(ctx)
	if !isHandler {
		return &exchange{header: http.Header{}, trailer: http.Header{}}
	}
	return &exchange{header: info.ResponseHeader(), trailer: info.ResponseTrailer()}
}

// hold hides from the handler what interceptors outside have set, so that restore can tell what the handler sets.
func (x *exchange) hold() {
	x.outerHeader, x.outerTrail = moved(x.header), moved(x.trailer)
}

// restore takes what the handler has set out of the context, since it is not sent unless it counts.
func (x *exchange) restore() {
	moved(x.header)
	moved(x.trailer)
	addAll(x.header, x.outerHeader)
	addAll(x.trailer, x.outerTrail)
}

// reply returns what the handler has set and returned. The metadata of an error counts as its trailer, except that of an error
// that another service has returned: Connect does not send it on.
func (x *exchange) reply() *rpc.Reply {
	r := &rpc.Reply{Header: fieldsOf(x.header), Trailer: fieldsOf(x.trailer), Status: statusOf(x.err)}
	switch {
	case x.err != nil:
		if failure := asError(x.err); failure != nil && !connect.IsWireError(x.err) {
			r.Trailer = append(r.Trailer, fieldsOf(failure.Meta())...)
		}
	case x.response != nil:
		r.Message = x.response.Any()
		r.Header = append(r.Header, fieldsOf(x.response.Header())...)
		r.Trailer = append(r.Trailer, fieldsOf(x.response.Trailer())...)
	}
	return r
}

// send returns the result of a call to Connect.
func (x *exchange) send(result *rpc.Result) (connect.AnyResponse, error) {
	header, trailer := headerOf(result.Header), headerOf(result.Trailer)
	switch {
	case result.First && x.err != nil:
		addAll(x.header, header)
		return nil, errorLike(x.err, trailer)
	case result.First:
		return response{x.response, x.response.Any(), header, trailer}, nil
	case result.Status != nil:
		addAll(x.header, header)
		return nil, errorOf(result.Status, trailer)
	}
	return response{connect.NewResponse(&emptypb.Empty{}), result.Message, header, trailer}, nil
}

// response is a response with a message of any type, and with header and trailer of its own.
type response struct {
	connect.AnyResponse
	message         any
	header, trailer http.Header
}

func (r response) Any() any             { return r.message }
func (r response) Header() http.Header  { return r.header }
func (r response) Trailer() http.Header { return r.trailer }
