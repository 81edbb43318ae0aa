package rpctest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// Run runs the table on an adapter.
func Run(t *testing.T, a Adapter) {
	for sentence, test := range map[string]func(*testing.T, Adapter){
		"a retry gets the stored reply":                             testReplay,
		"a stored failure is replayed with its details":             testFailure,
		"Redis holds what is replayed":                              testRedis,
		"a code is stored, tried again, or frees the key":           testCodes,
		"a call whose key is running is refused with a pause":       testInProgress,
		"another request under the key is refused":                  testMismatch,
		"a key that is none is refused":                             testKeys,
		"a call without a key passes, unless keys are required":     testNoKey,
		"a caller that nobody knows is refused":                     testScope,
		"the option Scope makes keys of two callers two keys":       testScopeOption,
		"a method without side effects passes, and a skipped one":   testUnguarded,
		"a stream with a key is refused":                            testStream,
		"a store that is away is Unavailable, and nothing runs":     testOutage,
		"an unprotected run says so":                                testFailOpen,
		"a hundred calls at once run once":                          testConcurrent,
		"a call waits for the run in progress":                      testWait,
		"a client that leaves does not end the run":                 testClientLeaves,
		"a deadline ends the run":                                   testDeadline,
		"a run that ends after the deadline is stored":              testLate,
		"a run that vanished is taken over":                         testTakeover,
		"a run that has lost its claim is refused":                  testClaimLost,
		"a run whose record is gone is refused, and not sent again": testRecordLost,
		"a panic is tried again":                                    testPanic,
		"OnUnknown can say what became of a call":                   testOnUnknown,
		"a message that is too long to store is no empty message":   testOmitted,
		"binary metadata is replayed":                               testBinaryMetadata,
		"metadata of one exchange is not replayed":                  testMetadataOfOneExchange,
		"the order of a map does not count, and unknown fields do":  testCanonical,
		"a long request is refused":                                 testLongRequest,
		"OnReplay can refuse a replay":                              testOnReplay,
		"OnReplay cannot replace a reply by what is none":           testOnReplayOfAnotherForm,
		"the key comes back, and first replies can have the marker": testEcho,
		"hooks learn what became of each call":                      testHooks,
		"a quoted key is the same key":                              testQuoted,
		"a text that is no UTF-8 is stored":                         testInvalidText,
		"a handler may decide what becomes of its key":              testDecide,
		"a reply that is no message is an error that runs again":    testNoMessage,
		"a caller learns what became of a key of its own":           testState,
		"a deadline may come before the store's timeout":            testShortDeadline,
	} {
		t.Run(sentence, func(t *testing.T) { t.Parallel(); test(t, a) })
	}
}

// described is a handler that sets header and trailer, and returns a message with a map.
func described(_ context.Context, in *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
	x.SetHeader("payment", "42")
	x.SetHeader("payment", "43")
	x.SetTrailer("cost", "7")
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"order": in.Fields["order"], "a": structpb.NewNumberValue(1), "b": structpb.NewBoolValue(true), "c": structpb.NewNullValue(),
	}}, nil
}

func assertDescribed(t *testing.T, s *service) {
	first := s.pay()
	require.Equal(t, code.Code_OK, first.code(), "%v", first.Status)
	for range 3 {
		replay := s.pay()
		assertSame(t, first, replay)
		for _, reply := range []Reply{first, replay} {
			assert.Equal(t, []string{"42", "43"}, reply.Header["payment"])
			assert.Equal(t, []string{"7"}, reply.Trailer["cost"])
			assert.Equal(t, "tea", reply.Message.GetFields()["order"].GetStringValue())
		}
	}
	assert.EqualValues(t, 1, s.runs.Load())
}

func testReplay(t *testing.T, a Adapter) {
	assertDescribed(t, a.newService(t, described))
	assertDescribed(t, a.newService(t, described, func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 }))
}

func testRedis(t *testing.T, a Adapter) {
	client := redistest.Shared(t).Client(t)
	require.NoError(t, client.FlushAll(t.Context()).Err())
	assertDescribed(t, a.newService(t, described, func(c *core.Config) { c.Store = redisstore.New(client) }))
}

func testFailure(t *testing.T, a Adapter) {
	detail, err := anypb.New(durationpb.New(time.Hour))
	require.NoError(t, err)
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/acme.Unknown", Value: []byte{1, 2, 3}} // of a type that the server lacks
	s := a.newService(t, func(_ context.Context, _ *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		x.SetHeader("account", "1")
		x.SetTrailer("account-limit", "9")
		return nil, &status.Status{
			Code: int32(code.Code_FAILED_PRECONDITION), Message: "no funds: 5 € are missing", Details: []*anypb.Any{detail, unknown},
		}
	})
	first, replay := s.pay(), s.pay()
	assertSame(t, first, replay)
	for _, reply := range []Reply{first, replay} {
		assert.Equal(t, code.Code_FAILED_PRECONDITION, reply.code())
		assert.Equal(t, "no funds: 5 € are missing", reply.Status.Message)
		require.Len(t, reply.Status.Details, 2)
		assert.True(t, proto.Equal(unknown, reply.Status.Details[1]))
		assert.Equal(t, "1", reply.value("account"))
		assert.Equal(t, "9", reply.value("account-limit"))
	}
	assert.EqualValues(t, 1, s.runs.Load())
}

func testCodes(t *testing.T, a Adapter) {
	for name, codes := range map[string][]code.Code{
		"stored": {
			code.Code_INVALID_ARGUMENT, code.Code_NOT_FOUND, code.Code_ALREADY_EXISTS, code.Code_FAILED_PRECONDITION,
			code.Code_OUT_OF_RANGE,
		},
		"tried again": {
			code.Code_CANCELLED, code.Code_UNKNOWN, code.Code_DEADLINE_EXCEEDED, code.Code_ABORTED, code.Code_UNIMPLEMENTED,
			code.Code_INTERNAL, code.Code_UNAVAILABLE, code.Code_DATA_LOSS,
		},
		"freed": {code.Code_PERMISSION_DENIED, code.Code_RESOURCE_EXHAUSTED, code.Code_UNAUTHENTICATED},
	} {
		for _, c := range codes {
			s := a.newService(t, failing(c))
			first := s.pay()
			require.Equal(t, c, first.code(), "%v", first.Status)
			assert.False(t, first.isReplay())
			s.handleWith(Accepted)
			switch name {
			case "stored":
				assertSame(t, first, s.pay())
				assert.EqualValues(t, 1, s.runs.Load(), c)
			case "tried again":
				s.pay(order(object("order", "milk"))).assertRefused(t, code.Code_FAILED_PRECONDITION, "fingerprint-mismatch")
				assert.Equal(t, code.Code_OK, s.pay().code(), c)
				assert.EqualValues(t, 2, s.runs.Load(), c)
			case "freed":
				assert.Equal(t, code.Code_OK, s.pay(order(object("order", "milk"))).code(), c)
			}
		}
	}
}

// entered is a handler that says when it runs, and goes on when it may.
func entered(handle Handler) (h Handler, running <-chan struct{}, goOn func()) {
	in, out := make(chan struct{}, 200), make(chan struct{})
	h = func(ctx context.Context, m *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		in <- struct{}{}
		<-out
		return handle(ctx, m, x)
	}
	return h, in, sync.OnceFunc(func() { close(out) })
}

func testInProgress(t *testing.T, a Adapter) {
	handle, running, goOn := entered(Accepted)
	defer goOn()
	s := a.newService(t, handle)
	first := make(chan Reply, 1)
	go func() { first <- s.pay() }()
	<-running
	second := s.pay()
	second.assertRefused(t, code.Code_ABORTED, "in-progress")
	var pause errdetails.RetryInfo
	require.True(t, second.detail(&pause))
	assert.GreaterOrEqual(t, pause.RetryDelay.AsDuration(), time.Second)
	var info errdetails.ErrorInfo
	require.True(t, second.detail(&info))
	assert.Equal(t, "IN_PROGRESS", info.Reason)
	assert.Equal(t, "false", info.Metadata["safe_new_key"])
	assert.True(t, strings.HasPrefix(info.Metadata["instance"], "urn:idem:"), info.Metadata["instance"])
	assert.Contains(t, info.Metadata["type"], "#in-progress")
	goOn()
	assertSame(t, <-first, s.pay())
	assert.EqualValues(t, 1, s.runs.Load())
}

func testMismatch(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted)
	first := s.pay()
	s.pay(order(object("order", "milk"))).assertRefused(t, code.Code_FAILED_PRECONDITION, "fingerprint-mismatch")
	s.pay(method(Refund)).assertRefused(t, code.Code_FAILED_PRECONDITION, "fingerprint-mismatch")
	assertSame(t, first, s.pay())
	assert.EqualValues(t, 1, s.runs.Load())

	perRoute := a.newService(t, Accepted, func(c *core.Config) { c.Key.PerRoute = true })
	perRoute.pay()
	assert.Equal(t, code.Code_OK, perRoute.pay(method(Refund)).code())
	assert.EqualValues(t, 2, perRoute.runs.Load())
}

func testKeys(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted)
	for problem, values := range map[string][]string{
		"key-empty": {""}, "key-repeated": {"a", "b"}, "key-malformed": {"a, b"}, "key-too-long": {strings.Repeat("k", 256)},
	} {
		s.pay(keys(values...)).assertRefused(t, code.Code_INVALID_ARGUMENT, problem)
	}
	s.pay(keys("a", "a")).assertRefused(t, code.Code_INVALID_ARGUMENT, "key-repeated")
	assert.Zero(t, s.runs.Load())
}

func testNoKey(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted)
	for range 2 {
		assert.Equal(t, code.Code_OK, s.pay(noKey).code())
	}
	assert.EqualValues(t, 2, s.runs.Load())

	required := a.newService(t, Accepted, func(c *core.Config) { c.Key.Required = true })
	required.pay(noKey).assertRefused(t, code.Code_INVALID_ARGUMENT, "key-missing")
	assert.Equal(t, code.Code_OK, required.pay(noKey, method(Look)).code())
	assert.EqualValues(t, 1, required.runs.Load())
}

func testScope(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted, func(c *core.Config) { c.Scope = core.ScopeByAdapter })
	s.pay().assertRefused(t, code.Code_UNAUTHENTICATED, "scope-missing")
	assert.Zero(t, s.runs.Load())
}

func testScopeOption(t *testing.T, a Adapter) {
	var caller atomic.Value
	caller.Store("alice")
	s := a.newService(t, Accepted, rpc.Options{Scope: func(context.Context) string { return caller.Load().(string) }},
		func(c *core.Config) { c.Scope = core.ScopeByAdapter })
	s.pay()
	assert.True(t, s.pay().isReplay())
	caller.Store("bob")
	assert.False(t, s.pay().isReplay())
	assert.EqualValues(t, 2, s.runs.Load())
}

func testUnguarded(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted, rpc.Options{Skip: func(procedure string) bool { return procedure == Refund }})
	for _, name := range []string{Look, Refund} {
		s.runs.Store(0)
		for range 2 {
			reply := s.pay(method(name))
			assert.Equal(t, code.Code_OK, reply.code())
			assert.False(t, reply.isReplay())
		}
		assert.EqualValues(t, 2, s.runs.Load(), name)
	}
}

func testStream(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted)
	r := NewRequest()
	r.Method = Watch
	refused := s.client.Stream(t.Context(), r)
	assert.Equal(t, code.Code_UNIMPLEMENTED, refused.code())
	assert.Contains(t, refused.Status.Message, "stream")
	assert.Zero(t, s.runs.Load())
	noKey(&r)
	assert.Equal(t, code.Code_OK, s.client.Stream(t.Context(), r).code())
	assert.EqualValues(t, 1, s.runs.Load())
	renamed := a.newService(t, Accepted, func(c *core.Config) { c.Key.Aliases = []string{"Request-Id"} })
	r.Metadata["request-id"] = []string{"k"}
	assert.Equal(t, code.Code_UNIMPLEMENTED, renamed.client.Stream(t.Context(), r).code())
	skipping := a.newService(t, Accepted, rpc.Options{Skip: func(string) bool { return true }})
	keys("k")(&r)
	assert.Equal(t, code.Code_OK, skipping.client.Stream(t.Context(), r).code())
}

func testOutage(t *testing.T, a Adapter) {
	store := storetest.NewFaulty(memstore.New())
	s := a.newService(t, Accepted, func(c *core.Config) { c.Store = store })
	store.Inject("begin", storetest.Before, 1)
	refused := s.pay()
	refused.assertRefused(t, code.Code_UNAVAILABLE, "store-unavailable")
	assert.True(t, refused.detail(&errdetails.RetryInfo{}))
	assert.Zero(t, s.runs.Load())
	assert.Equal(t, code.Code_OK, s.pay().code())
}

func testFailOpen(t *testing.T, a Adapter) {
	store := storetest.NewFaulty(memstore.New())
	s := a.newService(t, Accepted, func(c *core.Config) { c.Store, c.DangerouslyFailOpen = store, true })
	store.Inject("begin", storetest.Before, 1)
	reply := s.pay()
	assert.Equal(t, code.Code_OK, reply.code())
	assert.Equal(t, "true", reply.value("idempotent-unprotected"))
	assert.EqualValues(t, 1, s.runs.Load())
}

func testConcurrent(t *testing.T, a Adapter) {
	handle, running, goOn := entered(Accepted)
	s := a.newService(t, handle, waiting, func(c *core.Config) { c.Wait.MaxPerKey = 100 })
	replies := make(chan Reply, 100)
	for range cap(replies) {
		go func() { replies <- s.pay() }()
	}
	<-running
	goOn()
	firsts := 0
	for range cap(replies) {
		reply := <-replies
		assert.Equal(t, code.Code_OK, reply.code(), "%v", reply.Status)
		assert.Equal(t, "42", reply.Message.GetFields()["payment"].GetStringValue())
		if !reply.isReplay() {
			firsts++
		}
	}
	assert.Equal(t, 1, firsts)
	assert.EqualValues(t, 1, s.runs.Load())
}

func testWait(t *testing.T, a Adapter) {
	handle, running, goOn := entered(failing(code.Code_INTERNAL))
	defer goOn()
	s := a.newService(t, handle, waiting)
	first, second := make(chan Reply, 1), make(chan Reply, 1)
	go func() { first <- s.pay() }()
	<-running
	s.handleWith(Accepted)
	go func() { second <- s.pay() }()
	goOn()
	assert.Equal(t, code.Code_INTERNAL, (<-first).code())
	assert.Equal(t, code.Code_OK, (<-second).code(), "the call that waited runs after a failure")
	assert.EqualValues(t, 2, s.runs.Load())
}

// waiting makes a call wait for the run in progress, as long as that may take.
func waiting(c *core.Config) { c.Wait.Timeout = 10 * time.Second }

func testClientLeaves(t *testing.T, a Adapter) {
	left := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	s := a.newService(t, func(inner context.Context, _ *structpb.Struct, _ Exchange) (*structpb.Struct, *status.Status) {
		cancel()
		<-left
		return object("payment", "42"), statusOfContext(inner)
	}, waiting)
	reply := s.payIn(ctx)
	assert.Equal(t, code.Code_CANCELLED, reply.code())
	close(left)
	replay := s.pay()
	assert.True(t, replay.isReplay())
	assert.Equal(t, "42", replay.Message.GetFields()["payment"].GetStringValue())
	assert.EqualValues(t, 1, s.runs.Load())
}

// statusOfContext returns the status with which a handler gives up when its context has ended.
func statusOfContext(ctx context.Context) *status.Status {
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return &status.Status{Code: int32(code.Code_DEADLINE_EXCEEDED)}
	case err != nil:
		return &status.Status{Code: int32(code.Code_CANCELLED)}
	}
	return nil
}

// payPastDeadline sends the call with a deadline at which the handler runs. On a busy machine a short one ends before that.
func (s *service) payPastDeadline() {
	for timeout := 20 * time.Millisecond; s.runs.Load() == 0; timeout *= 2 {
		ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
		s.payIn(ctx)
		cancel()
	}
}

func testDeadline(t *testing.T, a Adapter) {
	s := a.newService(t, func(ctx context.Context, _ *structpb.Struct, _ Exchange) (*structpb.Struct, *status.Status) {
		<-ctx.Done()
		return nil, statusOfContext(ctx)
	}, waiting)
	s.payPastDeadline()
	before := s.runs.Load()
	s.handleWith(Accepted)
	reply := s.pay()
	assert.Equal(t, code.Code_OK, reply.code())
	assert.False(t, reply.isReplay())
	assert.Equal(t, before+1, s.runs.Load())
}

func testLate(t *testing.T, a Adapter) {
	s := a.newService(t, func(ctx context.Context, in *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		<-ctx.Done()
		return Accepted(ctx, in, x)
	}, waiting)
	s.payPastDeadline()
	assert.True(t, s.pay().isReplay())
	assert.EqualValues(t, 1, s.runs.Load())
}

// A store that hangs holds a call no longer than its deadline. Nothing has run, and the key is free.
func testShortDeadline(t *testing.T, a Adapter) {
	store := storetest.NewFaulty(memstore.New())
	s := a.newService(t, Accepted, func(c *core.Config) { c.Store, c.Limits.StoreTimeout = store, 15*time.Second })
	store.Inject("begin", storetest.Hang, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	late := []code.Code{code.Code_DEADLINE_EXCEEDED, code.Code_UNAVAILABLE} // the client sees its deadline, or the server did so first
	assert.Contains(t, late, s.payIn(ctx).code())
	assert.Eventually(t, func() bool { return store.Calls("begin") == 1 }, 10*time.Second, time.Millisecond, "the call of the store ends")
	assert.Zero(t, s.runs.Load())
	reply := s.pay()
	assert.Equal(t, code.Code_OK, reply.code())
	assert.False(t, reply.isReplay())
	assert.EqualValues(t, 1, s.runs.Load())
}

// shortLease makes the next call wait until a run that vanished is over, and that comes soon.
func shortLease(c *core.Config) {
	waiting(c)
	c.Lease.Duration = 200 * time.Millisecond
}

// vanish is a handler whose process seems to die.
func vanish(ctx context.Context, _ *structpb.Struct, _ Exchange) (*structpb.Struct, *status.Status) {
	core.Decide(ctx, core.LeaveUnknown)
	return nil, &status.Status{Code: int32(code.Code_UNAVAILABLE)}
}

func testTakeover(t *testing.T, a Adapter) {
	s := a.newService(t, vanish, shortLease)
	assert.Equal(t, code.Code_UNAVAILABLE, s.pay().code())
	runs := make(chan core.Run, 1)
	s.handleWith(func(ctx context.Context, in *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		run, _ := core.FromContext(ctx)
		runs <- run
		return Accepted(ctx, in, x)
	})
	assert.Equal(t, code.Code_OK, s.pay().code())
	run := <-runs
	assert.True(t, run.Takeover)
	assert.Equal(t, 2, run.Attempt)
}

func testClaimLost(t *testing.T, a Adapter) {
	s := a.newService(t, described, func(c *core.Config) { c.Store = Losing{Store: memstore.New()} })
	refused := s.pay()
	refused.assertRefused(t, code.Code_ABORTED, "claim-lost")
	assert.Empty(t, refused.value("payment"), "nothing of the reply that does not count reaches the client")
	assert.Empty(t, refused.value("cost"))
}

func testRecordLost(t *testing.T, a Adapter) {
	s := a.newService(t, described, func(c *core.Config) { c.Store = Losing{Store: memstore.New(), IsEmpty: true} })
	refused := s.pay()
	refused.assertRefused(t, code.Code_FAILED_PRECONDITION, "record-lost")
	assert.Empty(t, refused.value("payment"), "nothing of the reply that does not count reaches the client")
	sent := 0
	err := (&rpc.Client{}).Do(t.Context(), &rpc.Call{Header: func(string) []string { return nil }}, func(string, bool) *status.Status {
		sent++
		return refused.Status
	})
	require.NoError(t, err)
	assert.Equal(t, 1, sent, "the call would run again")
}

func testPanic(t *testing.T, a Adapter) {
	s := a.newService(t, func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) { panic("test") })
	assert.Equal(t, code.Code_INTERNAL, s.pay().code())
	s.handleWith(Accepted)
	s.pay(order(object("order", "milk"))).assertRefused(t, code.Code_FAILED_PRECONDITION, "fingerprint-mismatch")
	assert.Equal(t, code.Code_OK, s.pay().code())
}

func testOnUnknown(t *testing.T, a Adapter) {
	found := map[string]*core.Response{
		Pay:    a.Response(object("payment", "found"), nil),
		Refund: a.Response(nil, &status.Status{Code: int32(code.Code_NOT_FOUND), Message: "no such payment"}),
	}
	s := a.newService(t, vanish, shortLease, func(c *core.Config) {
		c.Lease.OnUnknown = func(_ context.Context, r *core.Request) (*core.Response, error) { return found[r.Path], nil }
	})
	s.pay()
	paid := s.pay()
	assert.Equal(t, "found", paid.Message.GetFields()["payment"].GetStringValue(), "%v", paid.Status)
	assert.True(t, s.pay().isReplay())

	refund := func() Reply { return s.pay(method(Refund), keys("r")) }
	refund()
	refunded := refund()
	assert.Equal(t, "no such payment", refunded.Status.Message)
	assert.Equal(t, code.Code_NOT_FOUND, refunded.code())
	assert.EqualValues(t, 2, s.runs.Load())
}

func testOmitted(t *testing.T, a Adapter) {
	long := object("report", strings.Repeat("x", 2000))
	s := a.newService(t, func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) { return long, nil },
		func(c *core.Config) { c.Keep.MaxBody = 1000 })
	first := s.pay()
	assert.Equal(t, code.Code_OK, first.code())
	assert.True(t, proto.Equal(long, first.Message))
	replay := s.pay()
	assert.Equal(t, code.Code_DATA_LOSS, replay.code())
	assert.Nil(t, replay.Message)
	assert.True(t, replay.isReplay())
	assert.Equal(t, "omitted", replay.value("idempotent-body"))
	var info errdetails.ErrorInfo
	require.True(t, replay.detail(&info))
	assert.Equal(t, "outcome-omitted", info.Metadata["code"])
	assert.Equal(t, "false", info.Metadata["safe_new_key"])

	s.handleWith(func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) {
		return nil, &status.Status{Code: int32(code.Code_NOT_FOUND), Message: strings.Repeat("x", 2000)}
	})
	assert.Equal(t, code.Code_NOT_FOUND, s.pay(keys("failure")).code())
	assert.Equal(t, code.Code_NOT_FOUND, s.pay(keys("failure")).code())
	assert.EqualValues(t, 2, s.runs.Load())
}

func testBinaryMetadata(t *testing.T, a Adapter) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	s := a.newService(t, func(_ context.Context, _ *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		x.SetHeader("receipt-bin", string(every))
		x.SetTrailer("trail-bin", "\r\n\x00")
		return object("payment", "42"), nil
	})
	first, replay := s.pay(), s.pay()
	assertSame(t, first, replay)
	for _, reply := range []Reply{first, replay} {
		assert.Equal(t, []string{string(every)}, reply.Header["receipt-bin"])
		assert.Equal(t, []string{"\r\n\x00"}, reply.Trailer["trail-bin"])
	}
}

func testMetadataOfOneExchange(t *testing.T, a Adapter) {
	s := a.newService(t, func(_ context.Context, _ *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		x.SetHeader("x-request-id", "1")
		x.SetTrailer("ratelimit-remaining", "9")
		x.SetTrailer("secret", "s")
		x.SetHeader("idempotent-replayed", "true")
		return object("payment", "42"), nil
	}, func(c *core.Config) { c.Keep.DenyHeaders = []string{"Secret"} })
	first, replay := s.pay(), s.pay()
	assertSame(t, first, replay)
	for name, value := range map[string]string{"x-request-id": "1", "ratelimit-remaining": "9", "secret": "s"} {
		assert.Equal(t, value, first.value(name), name)
		assert.Empty(t, replay.value(name), name)
	}
}

func testCanonical(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted)
	large := func() *structpb.Struct {
		m := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for c := 'a'; c <= 'z'; c++ {
			m.Fields[string(c)] = structpb.NewStringValue(string(c))
		}
		return m
	}
	s.pay(order(large()))
	for range 5 {
		assert.True(t, s.pay(order(large())).isReplay())
	}
	if a.IsJSON {
		return
	}
	withUnknown := func(value string) *structpb.Struct {
		m := object("order", "tea")
		m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), value))
		return m
	}
	s.pay(keys("unknown"), order(withUnknown("x")))
	assert.True(t, s.pay(keys("unknown"), order(withUnknown("x"))).isReplay())
	for _, other := range []*structpb.Struct{withUnknown("y"), object("order", "tea")} {
		s.pay(keys("unknown"), order(other)).assertRefused(t, code.Code_FAILED_PRECONDITION, "fingerprint-mismatch")
	}
	s.handleWith(func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) {
		return withUnknown("z"), nil
	})
	first := s.pay(keys("response"))
	assert.NotEmpty(t, first.Message.ProtoReflect().GetUnknown())
	assertSame(t, first, s.pay(keys("response")))
}

func testLongRequest(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted, func(c *core.Config) { c.Limits.RequestBody = 1000 })
	long := order(object("order", strings.Repeat("x", 2000)))
	s.pay(long).assertRefused(t, code.Code_INVALID_ARGUMENT, "body-too-large")
	assert.Equal(t, code.Code_OK, s.pay(long, noKey).code())
	assert.EqualValues(t, 1, s.runs.Load())
}

func testOnReplay(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted, func(c *core.Config) {
		c.Keep.OnReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error) { return nil, nil }
	})
	s.pay()
	s.pay().assertRefused(t, code.Code_PERMISSION_DENIED, "replay-refused")
	assert.EqualValues(t, 1, s.runs.Load())
}

func testOnReplayOfAnotherForm(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted, func(c *core.Config) {
		c.Keep.OnReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error) {
			return &core.Response{Status: 200, Body: []byte("hello")}, nil
		}
	})
	s.pay()
	s.pay().assertRefused(t, code.Code_UNAVAILABLE, "record-unreadable")
	assert.EqualValues(t, 1, s.runs.Load())
}

func testEcho(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted, func(c *core.Config) { c.Keep.EchoKey, c.Keep.MarkAll = true, true })
	first, replay, refused := s.pay(), s.pay(), s.pay(method(Refund))
	for _, reply := range []Reply{first, replay, refused} {
		assert.Equal(t, `"k"`, reply.value("idempotency-key"))
	}
	assert.Equal(t, []string{"false"}, first.Header["idempotent-replayed"])
	assert.Equal(t, []string{"true"}, replay.Header["idempotent-replayed"])
}

func testHooks(t *testing.T, a Adapter) {
	events := make(chan string, 10)
	s := a.newService(t, Accepted, func(c *core.Config) {
		c.Hooks.Done = func(_ context.Context, e core.Event) {
			events <- strings.Join([]string{e.Method, e.Route, e.Result, e.Code}, " ")
		}
	})
	for _, send := range []struct {
		change func(*Request)
		want   string
	}{
		{keys("k"), "RPC " + Pay + " run "},
		{keys("k"), "RPC " + Pay + " replay "},
		{method(Refund), "RPC " + Refund + " mismatch fingerprint-mismatch"},
		{keys(""), "RPC " + Pay + " refused key-empty"},
		{noKey, "RPC " + Pay + " bypass "},
	} {
		s.pay(send.change)
		assert.Equal(t, send.want, <-events)
	}
}

func testQuoted(t *testing.T, a Adapter) {
	s := a.newService(t, Accepted)
	s.pay()
	assert.True(t, s.pay(keys(`"k"`)).isReplay())
}

func testInvalidText(t *testing.T, a Adapter) {
	s := a.newService(t, func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) {
		return nil, &status.Status{Code: int32(code.Code_NOT_FOUND), Message: "no \xff"}
	})
	first, replay := s.pay(), s.pay()
	assert.Equal(t, code.Code_NOT_FOUND, first.code())
	assertSame(t, first, replay)
	assert.EqualValues(t, 1, s.runs.Load())
}

func testDecide(t *testing.T, a Adapter) {
	s := a.newService(t, func(ctx context.Context, _ *structpb.Struct, _ Exchange) (*structpb.Struct, *status.Status) {
		core.Decide(ctx, core.Keep)
		return nil, &status.Status{Code: int32(code.Code_INTERNAL), Message: "stored"}
	})
	assertSame(t, s.pay(), s.pay())
	released := a.newService(t, func(ctx context.Context, in *structpb.Struct, x Exchange) (*structpb.Struct, *status.Status) {
		core.Decide(ctx, core.Release)
		return Accepted(ctx, in, x)
	})
	released.pay()
	released.pay()
	assert.EqualValues(t, 2, released.runs.Load())
}

func testNoMessage(t *testing.T, a Adapter) {
	s := a.newService(t, func(context.Context, *structpb.Struct, Exchange) (*structpb.Struct, *status.Status) { return nil, nil })
	assert.Equal(t, code.Code_INTERNAL, s.pay().code())
	s.handleWith(Accepted)
	assert.Equal(t, code.Code_OK, s.pay().code())
	assert.EqualValues(t, 2, s.runs.Load())
}
