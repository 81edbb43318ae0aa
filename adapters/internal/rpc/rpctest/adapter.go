package rpctest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// Metadata is the header or the trailer of a call: values by names in lower case. Values of names that end in "-bin" are bytes.
type Metadata map[string][]string

// Exchange is what a handler can set besides what it returns.
type Exchange interface {
	SetHeader(name, value string)
	SetTrailer(name, value string)
}

// Handler handles every unary method. A status that is not nil takes the place of the message.
type Handler func(ctx context.Context, in *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status)

// Request is a call as a client sends it.
type Request struct {
	Method   string
	Metadata Metadata
	Message  *structpb.Struct
}

// Reply is what the client gets.
type Reply struct {
	Header, Trailer Metadata // of a failed call, both may have both
	Message         *structpb.Struct
	Status          *status.Status // never nil
}

// Adapter is an adapter under test.
type Adapter struct {
	// Start starts a server whose unary methods are handled by h under e. The server makes an Internal error of a panic, outside of
	// the engine. Call sends a unary call, and Stream a call of Watch.
	Start func(t testing.TB, e *core.Engine, h Handler, o rpc.Options) Client

	// IsJSON says that Call sends JSON, which has no fields that the schema lacks.
	IsJSON bool

	// Response is the adapter's function of that name.
	Response func(proto.Message, *status.Status) *core.Response

	// State returns what the adapter's Status returns.
	State func(e *core.Engine, o rpc.Options) func(ctx context.Context, method, key string) (rpc.State, *status.Status)
}

// OptionsOf returns the options of an adapter, which has an option for each field of rpc.Options. A nil field gets none.
func OptionsOf[Option any](
	o rpc.Options, scope func(func(context.Context) string) Option, skip func(func(procedure string) bool) Option,
) (opts []Option) {
	if o.Scope != nil {
		opts = append(opts, scope(o.Scope))
	}
	if o.Skip != nil {
		opts = append(opts, skip(o.Skip))
	}
	return opts
}

// Client calls a server.
type Client struct {
	Call, Stream func(context.Context, Request) Reply
}

// service is a server with a handler that counts its runs.
type service struct {
	t      testing.TB
	client Client
	runs   atomic.Int64

	mu     sync.Mutex
	handle Handler
}

// newService starts a service with a memory store. changes change the config of its engine, or its options.
func (a Adapter) newService(t testing.TB, handle Handler, changes ...any) *service {
	t.Helper()
	var configure []func(*core.Config)
	var options rpc.Options
	for _, change := range changes {
		switch change := change.(type) {
		case func(*core.Config):
			configure = append(configure, change)
		case rpc.Options:
			options = change
		}
	}
	s := &service{t: t, handle: handle}
	s.client = a.Start(t, NewEngine(t, configure...), s.run, options)
	return s
}

// NewEngine returns an engine with a memory store and one scope, whose config has these changes.
func NewEngine(t testing.TB, changes ...func(*core.Config)) *core.Engine {
	t.Helper()
	cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
	for _, change := range changes {
		change(&cfg)
	}
	engine, err := core.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, engine.Close(ctx))
	})
	return engine
}

// Losing is a store in which no run has its claim at its end: each was given to another run or, if IsEmpty, its record is gone.
type Losing struct {
	driver.Store
	IsEmpty bool
}

// Complete implements driver.Store.
func (l Losing) Complete(context.Context, driver.Claim, []byte) error {
	if l.IsEmpty {
		return driver.ErrGone
	}
	return driver.ErrLost
}

// NewRequest returns a request of Pay with the key "k".
func NewRequest() Request {
	return Request{Method: Pay, Metadata: Metadata{"idempotency-key": {"k"}}, Message: object("order", "tea")}
}

// run is the handler of the server.
func (s *service) run(ctx context.Context, in *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
	s.runs.Add(1)
	s.mu.Lock()
	handle := s.handle
	s.mu.Unlock()
	return handle(ctx, in, x)
}

// handleWith changes the handler.
func (s *service) handleWith(handle Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = handle
}

// pay sends a call of Pay with the key "k" and the changes.
func (s *service) pay(changes ...func(*Request)) Reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	return s.payIn(ctx, changes...)
}

// payIn is pay with a context.
func (s *service) payIn(ctx context.Context, changes ...func(*Request)) Reply {
	r := NewRequest()
	for _, change := range changes {
		change(&r)
	}
	return s.client.Call(ctx, r)
}

// keys sets the values of the key's metadata.
func keys(values ...string) func(*Request) {
	return func(r *Request) { r.Metadata["idempotency-key"] = values }
}

// noKey removes the key.
func noKey(r *Request) { delete(r.Metadata, "idempotency-key") }

// method sets the method.
func method(name string) func(*Request) { return func(r *Request) { r.Method = name } }

// order sets the request message.
func order(m *structpb.Struct) func(*Request) { return func(r *Request) { r.Message = m } }

// object returns a message with one field.
func object(name, value string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{name: structpb.NewStringValue(value)}}
}

// Accepted is a Handler that succeeds.
func Accepted(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) {
	return object("payment", "42"), nil
}

// failing returns a handler that fails with a code.
func failing(c code.Code) Handler {
	return func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) {
		return nil, &status.Status{Code: int32(c), Message: c.String()}
	}
}

// code returns the code of a reply.
func (r Reply) code() code.Code { return code.Code(r.Status.GetCode()) }

// isReplay reports whether the marker is in the metadata.
func (r Reply) isReplay() bool { return r.value("idempotent-replayed") == "true" }

// value returns one value of metadata, in the header or the trailer.
func (r Reply) value(name string) string {
	values := append(append([]string(nil), r.Header[name]...), r.Trailer[name]...)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// detail reads the first detail of the type of m into m, and reports whether there is one.
func (r Reply) detail(m proto.Message) bool {
	for _, d := range r.Status.GetDetails() {
		if d.MessageIs(m) {
			return d.UnmarshalTo(m) == nil
		}
	}
	return false
}

// assertRefused checks that a reply is a refusal with this status code and this problem code.
func (r Reply) assertRefused(t testing.TB, want code.Code, problem string) {
	t.Helper()
	assert.Equal(t, want, r.code(), "%v", r.Status)
	var info errdetails.ErrorInfo
	require.True(t, r.detail(&info), "%v", r.Status)
	assert.Equal(t, problem, info.Metadata["code"])
	assert.Equal(t, "github.com/go-idem/idem", info.Domain)
	assert.False(t, r.isReplay())
}

// assertSame checks that a replay says what the first reply said.
func assertSame(t testing.TB, first, replay Reply) {
	t.Helper()
	assert.True(t, proto.Equal(first.Message, replay.Message), "%v is not %v", replay.Message, first.Message)
	assert.True(t, proto.Equal(first.Status, replay.Status), "%v is not %v", replay.Status, first.Status)
	assert.False(t, first.isReplay())
	assert.True(t, replay.isReplay())
}
