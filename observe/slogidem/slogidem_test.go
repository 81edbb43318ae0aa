package slogidem_test

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/observe/slogidem"
)

var ctx = context.Background()

// request is a request whose key, scope, path and body are secrets.
func request(body string) core.Request {
	return core.Request{
		Method: "POST", Path: "/secret-path", Route: "/orders/:id",
		Header: func(string) []string { return []string{"secret-key"} },
		Body:   func(int64) ([]byte, error) { return []byte("secret-body" + body), nil },
		Scope:  func() string { return "secret-scope" },
	}
}

// newEngine returns an engine that logs to the buffer, its store and a count of calls of the hook that was there before.
func newEngine(t *testing.T, change func(*core.Config)) (e *core.Engine, store *storetest.Faulty, text *bytes.Buffer, inner *int) {
	t.Helper()
	store, text, inner = storetest.NewFaulty(memstore.New()), &bytes.Buffer{}, new(int)
	logger := slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := core.Config{Store: store, Scope: core.SingleTenant, Name: "payments"}
	cfg.Hooks = slogidem.Hooks(logger, core.Hooks{Done: func(context.Context, core.Event) { *inner++ }})
	if change != nil {
		change(&cfg)
	}
	e, err := core.New(cfg)
	require.NoError(t, err)
	return e, store, text, inner
}

func responds(status int) func(context.Context) (*core.Response, error) {
	return func(context.Context) (*core.Response, error) { return &core.Response{Status: status}, nil }
}

func TestEachOperationHasALineAtTheLevelOfItsResult(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*core.Config)
		play   func(t *testing.T, e *core.Engine, store *storetest.Faulty)
		lines  string
	}{
		"a run and its replay": {nil, func(t *testing.T, e *core.Engine, _ *storetest.Faulty) {
			send(t, e, request(""), responds(201))
			send(t, e, request(""), responds(201))
		}, `INFO idem: run method=POST engine=payments route=/orders/:id end=kept record=R status=201 attempt=1 size=N took=T
INFO idem: replay method=POST engine=payments route=/orders/:id record=R status=201 size=N
`},
		"another request under the key": {nil, func(t *testing.T, e *core.Engine, _ *storetest.Faulty) {
			send(t, e, request(""), responds(500))
			send(t, e, request("another"), responds(201))
		}, `WARN idem: run method=POST engine=payments route=/orders/:id end=failed record=R status=500 attempt=1 took=T
WARN idem: mismatch method=POST engine=payments route=/orders/:id code=fingerprint-mismatch record=R status=422
`},
		"a request that passes by": {nil, func(t *testing.T, e *core.Engine, _ *storetest.Faulty) {
			r := request("")
			r.Method = "GET"
			send(t, e, r, nil)
		}, "DEBUG idem: bypass method=GET engine=payments route=/orders/:id\n"},
		"the store is away": {nil, func(t *testing.T, e *core.Engine, store *storetest.Faulty) {
			store.Inject("begin", storetest.Before, 1)
			send(t, e, request(""), responds(201))
		}, `WARN idem: the store has failed method=POST engine=payments route=/orders/:id record=R error="injected fault"
WARN idem: refused method=POST engine=payments route=/orders/:id code=store-unavailable record=R status=503
`},
		"a run without a claim": {func(c *core.Config) { c.DangerouslyFailOpen = true },
			func(t *testing.T, e *core.Engine, store *storetest.Faulty) {
				store.Inject("begin", storetest.Before, 1)
				send(t, e, request(""), responds(201))
			}, `WARN idem: the store has failed method=POST engine=payments route=/orders/:id record=R error="injected fault"
ERROR idem: unprotected method=POST engine=payments route=/orders/:id record=R status=201 took=T
`},
		"an unknown outcome": {nil, func(t *testing.T, e *core.Engine, _ *storetest.Faulty) {
			send(t, e, request(""), func(ctx context.Context) (*core.Response, error) {
				core.Decide(ctx, core.LeaveUnknown)
				return &core.Response{Status: 504}, nil
			})
		}, "ERROR idem: run method=POST engine=payments route=/orders/:id end=unknown record=R status=504 attempt=1 took=T\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e, store, text, inner := newEngine(t, test.change)
			test.play(t, e, store)
			require.NoError(t, e.Close(ctx))
			assert.Equal(t, test.lines, shortened(text.String()))
			assert.NotContains(t, text.String(), "secret")
			assert.Positive(t, *inner, "the hook that was there is called, too")
		})
	}
}

// send sends a request whose handler returns no error.
func send(t *testing.T, e *core.Engine, r core.Request, run func(context.Context) (*core.Response, error)) {
	t.Helper()
	_, err := e.Do(ctx, r, func(ctx context.Context) (*core.Response, error) {
		time.Sleep(time.Microsecond) // so that each run takes time that a clock sees
		return run(ctx)
	})
	require.NoError(t, err)
}

// shortened is a log without what differs from run to run.
func shortened(text string) string {
	for _, r := range [][2]string{
		{`time=\S+ level=`, ""}, {`msg="([^"]*)"`, "$1"}, {`record=[\w.-]+`, "record=R"}, {`took=\S+`, "took=T"}, {`size=\d+`, "size=N"},
		{`error="[^"]*"`, `error="injected fault"`},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// A level that is off costs no attributes.
func TestALevelThatIsOffWritesNothing(t *testing.T) {
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError}))
	e, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: slogidem.Hooks(logger, core.Hooks{})})
	require.NoError(t, err)
	send(t, e, request(""), responds(201))
	assert.Empty(t, text.String())
}
