package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a fixture's engine works with unless a test changes it.
const (
	lease        = 30 * time.Second
	storeTimeout = time.Second
	retention    = time.Hour
	marker       = "Idempotent-Replayed"
)

// always is more calls of a store than a test makes.
const always = 1000

var (
	ctx     = context.Background()
	errTest = errors.New("test")
)

// handler is the run of one request.
type handler = func(context.Context) (*core.Response, error)

// fixture is an engine over a memory store that fails when it is told to. It counts the runs and keeps what hooks hear.
type fixture struct {
	*core.Engine
	tb    testing.TB
	inner driver.Store // never fails
	store *storetest.Faulty
	heard *eventLog
	ends  *doneLog // nil, unless a test sets it
	runs  *atomic.Int64

	settings consumer.Config
	consumer *consumer.Consumer // of Engine, with these settings
}

func newFixture(tb testing.TB, changes ...func(*core.Config)) *fixture {
	tb.Helper()
	f := &fixture{tb: tb, inner: memstore.New(), heard: &eventLog{}, runs: &atomic.Int64{}}
	f.store = storetest.NewFaulty(f.inner)
	cfg := core.Config{Store: f.store, Scope: core.SingleTenant, Hooks: f.heard.hooks()}
	cfg.Lease.Duration, cfg.Limits.StoreTimeout, cfg.Keep.Retention = lease, storeTimeout, retention
	for _, change := range changes {
		change(&cfg)
	}
	var err error
	f.Engine, err = core.New(cfg)
	require.NoError(tb, err)
	return f.consuming(consumer.Config{})
}

// consuming is newFixture with the settings of a consumer.
func consuming(tb testing.TB, settings consumer.Config, changes ...func(*core.Config)) *fixture {
	tb.Helper()
	return newFixture(tb, changes...).consuming(settings)
}

// consuming is the fixture of another consumer on the same engine.
func (f *fixture) consuming(settings consumer.Config) *fixture {
	f.tb.Helper()
	other := *f
	var err error
	other.settings = settings
	other.consumer, err = consumer.New(f.Engine, settings)
	require.NoError(f.tb, err)
	return &other
}

// with is the fixture of a derived engine: on the same store, with the same counts.
func (f *fixture) with(change func(*core.Config)) *fixture {
	derived := *f
	derived.Engine = f.With(change)
	return derived.consuming(f.settings)
}

// healed is the fixture of an engine whose store answers again.
func (f *fixture) healed() *fixture {
	return f.with(func(c *core.Config) { c.Store = f.inner })
}

// do sends r through the engine and counts the run.
func (f *fixture) do(ctx context.Context, r core.Request, h handler) (core.Result, error) {
	return f.Do(ctx, r, func(ctx context.Context) (*core.Response, error) {
		f.runs.Add(1)
		return h(ctx)
	})
}

// send is do for a client that stays and a handler without an error.
func (f *fixture) send(r core.Request, h handler) core.Result {
	f.tb.Helper()
	result, err := f.do(ctx, r, h)
	require.NoError(f.tb, err)
	return result
}

// close waits for what is written in the background.
func (f *fixture) close() {
	f.tb.Helper()
	require.NoError(f.tb, f.Close(ctx))
}

func (f *fixture) ran(times int64) {
	f.tb.Helper()
	assert.Equal(f.tb, times, f.runs.Load(), "runs")
}

// calls is how often the store was called.
func (f *fixture) calls() (n int) {
	for _, verb := range []string{"begin", "extend", "complete", "fail"} {
		n += f.store.Calls(verb)
	}
	return n
}

// seen tells the run that ctx belongs to.
func (f *fixture) seen(ctx context.Context) core.Run {
	f.tb.Helper()
	run, ok := core.FromContext(ctx)
	assert.True(f.tb, ok, "the context belongs to no run")
	return run
}

// runsAgain sends r, which must run at once, and returns what its handler knows.
func (f *fixture) runsAgain(r core.Request) (run core.Run) {
	f.tb.Helper()
	result := f.send(r, func(ctx context.Context) (*core.Response, error) {
		run = f.seen(ctx)
		return made(ctx)
	})
	f.answered(result, 201, "made")
	return run
}

// answered: result is the handler's own answer.
func (f *fixture) answered(result core.Result, status int, body string) {
	f.tb.Helper()
	assert.Empty(f.tb, result.Problem)
	assert.False(f.tb, result.Replayed)
	f.sends(result, status, body)
	assert.Empty(f.tb, values(result.Response, marker), "a first answer carries no marker")
}

// replayed: result is a kept outcome.
func (f *fixture) replayed(result core.Result, status int, body string) {
	f.tb.Helper()
	assert.Empty(f.tb, result.Problem)
	assert.True(f.tb, result.Replayed)
	f.sends(result, status, body)
	assert.Equal(f.tb, []string{"true"}, values(result.Response, marker))
}

// refused: result is the refusal of the given code.
func (f *fixture) refused(result core.Result, status int, code string) {
	f.tb.Helper()
	assert.Equal(f.tb, code, result.Problem)
	assert.False(f.tb, result.Replayed)
	require.NotNil(f.tb, result.Response)
	assert.Equal(f.tb, status, result.Response.Status)
	assert.Equal(f.tb, []string{"application/problem+json"}, values(result.Response, "Content-Type"))
}

func (f *fixture) sends(result core.Result, status int, body string) {
	f.tb.Helper()
	require.NotNil(f.tb, result.Response)
	assert.Equal(f.tb, status, result.Response.Status)
	assert.Equal(f.tb, body, string(result.Response.Body))
}

// held is a request whose handler waits.
type held struct {
	f      *fixture
	run    context.Context // the handler's
	letGo  chan struct{}
	done   chan struct{}
	result core.Result
	err    error
}

// hold sends r and returns once its handler runs.
func (f *fixture) hold(ctx context.Context, r core.Request, h handler) *held {
	f.tb.Helper()
	w := &held{f: f, letGo: make(chan struct{}), done: make(chan struct{})}
	entered := make(chan struct{})
	go func() {
		defer close(w.done)
		w.result, w.err = f.do(ctx, r, func(ctx context.Context) (*core.Response, error) {
			w.run = ctx
			close(entered)
			<-w.letGo
			return h(ctx)
		})
	}()
	select {
	case <-entered:
	case <-w.done:
		f.tb.Fatalf("the handler did not run: %+v", w.result)
	}
	return w
}

// finish lets the handler answer and returns what the client gets.
func (w *held) finish() core.Result {
	w.f.tb.Helper()
	close(w.letGo)
	<-w.done
	require.NoError(w.f.tb, w.err)
	return w.result
}

// request is POST /orders with a key and a body.
func request(key, body string) core.Request {
	header := http.Header{}
	header.Set("Idempotency-Key", key)
	return core.Request{
		Method: "POST",
		Path:   "/orders",
		Header: header.Values,
		Body:   func(int64) ([]byte, error) { return []byte(body), nil },
	}
}

func answers(status int, body string, header ...core.Field) handler {
	return func(context.Context) (*core.Response, error) {
		return &core.Response{Status: status, Header: append([]core.Field{}, header...), Body: []byte(body)}, nil
	}
}

// made is the handler of tests that do not care.
var made = answers(201, "made")

// values returns the values of all lines named name.
func values(r *core.Response, name string) (values []string) {
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// value returns the value of the first line named name; "" when there is none.
func value(r *core.Response, name string) string {
	return strings.Join(append(values(r, name), "")[:1], "")
}

// eventLog keeps what hooks are told.
type eventLog struct {
	mu     sync.Mutex
	events []heard
}

// heard is one call of a hook.
type heard struct {
	hook string
	core.Event
	ctx context.Context
}

func (l *eventLog) hooks() core.Hooks {
	return core.Hooks{
		Begin: l.on("begin"), Takeover: l.on("takeover"), Replay: l.on("replay"), Conflict: l.on("conflict"), Mismatch: l.on("mismatch"),
		Kept: l.on("kept"), Failed: l.on("failed"), Lost: l.on("lost"), Unknown: l.on("unknown"), StoreError: l.on("store-error"),
		Unprotected: l.on("unprotected"),
	}
}

func (l *eventLog) on(hook string) core.Hook {
	return func(ctx context.Context, e core.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, heard{hook, e, ctx})
	}
}

// take returns what was heard since it was last called.
func (l *eventLog) take() []heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

// names is take, in short: "begin kept".
func (l *eventLog) names() string { return namesOf(l.take()) }

// namesOf returns the names of the hooks that were called.
func namesOf(events []heard) string {
	var names []string
	for _, e := range events {
		names = append(names, e.hook)
	}
	return strings.Join(names, " ")
}

// scripted is a store some of whose calls are replaced.
type scripted struct {
	driver.Store
	begin    func(driver.Claim) (driver.Entry, error)
	extend   func(context.Context, driver.Claim) error
	complete func(driver.Claim) error
}

func (s scripted) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if s.begin == nil {
		return s.Store.Begin(ctx, c)
	}
	return s.begin(c)
}

func (s scripted) Extend(ctx context.Context, c driver.Claim) error {
	if s.extend == nil {
		return s.Store.Extend(ctx, c)
	}
	return s.extend(ctx, c)
}

func (s scripted) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if s.complete == nil {
		return s.Store.Complete(ctx, c, outcome)
	}
	return s.complete(c)
}

// inBubble runs a test in which time passes only when everything waits.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

var bubble = regexp.MustCompile(`synctest bubble \d+\b`)

// goroutines counts those of the caller's bubble, when all of them wait. Others are the business of others.
func goroutines(tb testing.TB) (n int) {
	tb.Helper()
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	all := bubble.FindAllString(string(stacks[:runtime.Stack(stacks, true)]), -1)
	require.NotEmpty(tb, all, "the caller, who is the first, is in no bubble")
	for _, one := range all {
		if one == all[0] {
			n++
		}
	}
	return n
}

// ended waits for the end of ctx and returns its cause.
func ended(tb testing.TB, ctx context.Context) error {
	tb.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		tb.Error("the context does not end")
	}
	return context.Cause(ctx)
}

// elapsed is how long f takes.
func elapsed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func lostBecause(text string) error { return fmt.Errorf("%w: %s", core.ErrLost, text) }
