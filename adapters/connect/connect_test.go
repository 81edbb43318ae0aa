package idem_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/connect"
	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
)

// The Redis server of the table ends with the process.
func TestMain(m *testing.M) {
	rpctest.ServeIfChild(func(e *core.Engine, h rpctest.Handler, l net.Listener) {
		server := &http.Server{Handler: newMux(h, idem.Interceptor(e)), Protocols: new(http.Protocols)}
		server.Protocols.SetUnencryptedHTTP2(true)
		_ = server.Serve(l)
	})
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/tied.startAll"),
		goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/redistest.(*Server).spawn.func1"))
}

// protocols are the protocols that a client may speak. On the server gRPC-Web differs from gRPC in framing only.
var protocols = map[string]connect.ClientOption{
	"Connect": connect.WithClientOptions(),
	"JSON":    connect.WithProtoJSON(),
	"gRPC":    connect.WithGRPC(),
}

func TestAdapter(t *testing.T) {
	for protocol, option := range protocols {
		t.Run(protocol, func(t *testing.T) {
			rpctest.Run(t, rpctest.Adapter{
				IsJSON: protocol == "JSON",
				Start: func(t testing.TB, e *core.Engine, h rpctest.Handler, o rpc.Options) rpctest.Client {
					return serve(t, h, option, idem.Interceptor(e, optionsOf(o)...))
				},
				State: func(e *core.Engine, o rpc.Options) func(context.Context, string, string) (rpc.State, *status.Status) {
					ask := idem.Status(e, optionsOf(o)...)
					return func(ctx context.Context, method, key string) (rpc.State, *status.Status) {
						found, err := ask(ctx, method, key)
						if err != nil {
							return found, failed(err).Status
						}
						return found, nil
					}
				},
				Response: func(m proto.Message, s *status.Status) *core.Response { return idem.Response(m, errorOf(s)) },
			})
		})
	}
}

// optionsOf returns the options of an adapter.
func optionsOf(o rpc.Options) []idem.Option { return rpctest.OptionsOf(o, idem.Scope, idem.Skip) }

// errorOf returns the error of a handler that fails with this status, or nil.
func errorOf(s *status.Status) error {
	if s == nil {
		return nil
	}
	failure := connect.NewError(connect.Code(s.Code), errors.New(s.Message))
	for _, d := range s.Details {
		detail, err := connect.NewErrorDetail(d)
		if err != nil {
			return err
		}
		failure.AddDetail(detail)
	}
	return failure
}

// serve starts a server of the test service and returns a client for it. The first interceptor is the outermost.
func serve(t testing.TB, h rpctest.Handler, protocol connect.ClientOption, interceptors ...connect.Interceptor) rpctest.Client {
	httpClient, url := listen(t, newMux(h, interceptors...))
	return clientOf(httpClient, url, protocol)
}

// clientOf returns a client for the test service at a URL.
func clientOf(httpClient *http.Client, url string, protocol connect.ClientOption) rpctest.Client {
	client := func(method string) *connect.Client[structpb.Struct, structpb.Struct] {
		return connect.NewClient[structpb.Struct, structpb.Struct](httpClient, url+method, protocol)
	}
	return rpctest.Client{
		Call: func(ctx context.Context, r rpctest.Request) rpctest.Reply {
			res, err := client(r.Method).CallUnary(ctx, outgoing(r))
			if err != nil {
				return failed(err)
			}
			return rpctest.Reply{
				Header: metadata(res.Header()), Trailer: metadata(res.Trailer()), Message: res.Msg, Status: &status.Status{},
			}
		},
		Stream: func(ctx context.Context, r rpctest.Request) rpctest.Reply {
			stream, err := client(r.Method).CallServerStream(ctx, outgoing(r))
			if err != nil {
				return failed(err)
			}
			defer stream.Close()
			for stream.Receive() {
			}
			if stream.Err() != nil {
				return failed(stream.Err())
			}
			return rpctest.Reply{Status: &status.Status{}}
		},
	}
}

// listen starts a server that speaks HTTP/2, and returns a client for it and its URL.
func listen(t testing.TB, h http.Handler) (client *http.Client, url string) {
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return newHTTPClient(t), server.URL
}

// newHTTPClient returns a client that speaks HTTP/2 without TLS.
func newHTTPClient(t testing.TB) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// newMux returns handlers for the methods of the test service, as generated code does.
func newMux(h rpctest.Handler, interceptors ...connect.Interceptor) *http.ServeMux {
	mux := http.NewServeMux()
	options := func(method string) connect.HandlerOption {
		return connect.WithHandlerOptions(connect.WithSchema(rpc.Schema(method)),
			connect.WithInterceptors(interceptors...), connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
				return connect.NewError(connect.CodeInternal, errors.New("panic"))
			}))
	}
	for _, method := range []string{rpctest.Pay, rpctest.Refund, rpctest.Look} {
		mux.Handle(method, connect.NewUnaryHandler(method,
			func(ctx context.Context, req *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
				info, _ := connect.CallInfoForHandlerContext(ctx)
				message, failure := h(ctx, req.Msg, exchange{info})
				return connect.NewResponse(message), errorOf(failure)
			}, options(method)))
	}
	mux.Handle(rpctest.Watch, connect.NewServerStreamHandler(rpctest.Watch,
		func(ctx context.Context, req *connect.Request[structpb.Struct], stream *connect.ServerStream[structpb.Struct]) error {
			message, _ := h(ctx, req.Msg, nil)
			return stream.Send(message)
		}, options(rpctest.Watch)))
	return mux
}

// exchange is the information of a handler's context.
type exchange struct{ info connect.CallInfo }

func (x exchange) SetHeader(name, value string) { add(x.info.ResponseHeader(), name, value) }

func (x exchange) SetTrailer(name, value string) { add(x.info.ResponseTrailer(), name, value) }

// add adds a value to a header.
func add(h http.Header, name, value string) {
	if strings.HasSuffix(name, "-bin") {
		value = connect.EncodeBinaryHeader([]byte(value))
	}
	h.Add(name, value)
}

// outgoing returns a request of a client.
func outgoing(r rpctest.Request) *connect.Request[structpb.Struct] {
	req := connect.NewRequest(r.Message)
	for name, values := range r.Metadata {
		for _, value := range values {
			req.Header().Add(name, value)
		}
	}
	return req
}

// metadata returns a header as metadata.
func metadata(h http.Header) rpctest.Metadata {
	md := rpctest.Metadata{}
	for name, values := range h {
		name = strings.ToLower(name)
		for _, value := range values {
			if decoded, err := connect.DecodeBinaryHeader(value); strings.HasSuffix(name, "-bin") && err == nil {
				value = string(decoded)
			}
			md[name] = append(md[name], value)
		}
	}
	return md
}

// failed returns the reply that a client's error stands for.
func failed(err error) rpctest.Reply {
	var failure *connect.Error
	if !errors.As(err, &failure) {
		return rpctest.Reply{Status: &status.Status{Code: int32(connect.CodeUnknown), Message: err.Error()}}
	}
	s := &status.Status{Code: int32(failure.Code()), Message: failure.Message()}
	for _, d := range failure.Details() {
		s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	meta := metadata(failure.Meta())
	return rpctest.Reply{Header: meta, Trailer: meta, Status: s}
}
