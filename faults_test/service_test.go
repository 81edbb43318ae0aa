// Package faults_test breaks what a service stands on, the server, the network, its own process, and shows what its clients
// and the world see. docs/faults.md lists the faults. Each test proves that its fault has happened.
package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/redistest"
)

var ctx = context.Background()

// work is what a handler does between the start and the end of its effect.
type work func(context.Context, core.Run) (status int)

func quick(context.Context, core.Run) int { return http.StatusCreated }

// service is one handler behind an engine on a store.
type service struct {
	tb     testing.TB
	engine *core.Engine
	http   *httptest.Server
	ledger *ledger
	lease  time.Duration

	mu      sync.Mutex
	do      work
	answers map[string][]answer
	errors  []error // of the store
	losses  []error
	kept    map[int64]bool // fences of the runs whose outcomes are stored
}

// answer is what a client saw.
type answer struct {
	status   int
	header   http.Header // what is to be the same in a replay
	body     string
	code     string // of a refusal
	replayed bool
	retry    string // the Retry-After line
	at       time.Time
}

// newService starts a service with a lease of two seconds and a store timeout of half a one, unless change says otherwise.
func newService(tb testing.TB, store driver.Store, change ...func(*core.Config)) *service {
	tb.Helper()
	s := &service{tb: tb, ledger: newLedger(tb), do: quick, answers: map[string][]answer{}, kept: map[int64]bool{}}
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	cfg.Lease.Duration, cfg.Limits.StoreTimeout = 2*time.Second, 500*time.Millisecond
	cfg.Hooks.StoreError = func(_ context.Context, e core.Event) { s.note(&s.errors, e.Err) }
	cfg.Hooks.Lost = func(_ context.Context, e core.Event) { s.note(&s.losses, e.Err) }
	cfg.Hooks.Kept = func(_ context.Context, e core.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept[e.Fence] = true
	}
	for _, f := range change {
		f(&cfg)
	}
	s.lease = cfg.Lease.Duration
	var err error
	s.engine, err = core.New(cfg)
	require.NoError(tb, err)
	s.http = httptest.NewServer(idem.HTTP(s.engine)(http.HandlerFunc(s.handle)))
	tb.Cleanup(func() {
		s.http.Close()
		closing, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = s.engine.Close(closing)
	})
	return s
}

func (s *service) note(list *[]error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, err)
}

// works replaces what the handler does.
func (s *service) works(do work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do = do
}

func (s *service) handle(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	do := s.do
	s.mu.Unlock()
	run, _ := core.FromContext(r.Context())
	perform(w, r, s.ledger, run, do)
}

// perform writes an effect down, works in between, and answers.
func perform(w http.ResponseWriter, r *http.Request, l *ledger, run core.Run, do work) {
	e := effect{Key: r.Header.Get("Idempotency-Key"), Fence: run.Fence, Attempt: run.Attempt, Takeover: run.Takeover, Start: time.Now()}
	e.Body = fmt.Sprintf("%s fence %d attempt %d takeover %t", e.Key, e.Fence, e.Attempt, e.Takeover)
	l.write(e)
	status := do(r.Context(), run)
	e.End = time.Now()
	l.write(e)
	w.Header()["Effect"] = []string{e.Body, fmt.Sprint(e.End.UnixNano())}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, e.Body)
}

// post sends a keyed request and keeps the answer.
func (s *service) post(key string) answer {
	s.tb.Helper()
	return s.postTo(s.http.URL, key)
}

func (s *service) postTo(url, key string) answer {
	s.tb.Helper()
	a, err := send(url, key)
	require.NoError(s.tb, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[key] = append(s.answers[key], a)
	return a
}

func send(url, key string) (answer, error) {
	req, err := http.NewRequest("POST", url+"/payments", strings.NewReader(`{"amount":100}`))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(res)
}

func readAnswer(res *http.Response) (answer, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, body: string(body), replayed: res.Header.Get("Idempotent-Replayed") != "", retry: res.Header.Get("Retry-After"), at: time.Now()}
	a.header = res.Header.Clone()
	a.header.Del("Idempotent-Replayed")
	a.header.Del("Date")
	if bytes.HasPrefix(body, []byte("{")) {
		var problem struct{ Code string }
		_ = json.Unmarshal(body, &problem)
		a.code = problem.Code
	}
	return a, err
}

func (s *service) answersTo(key string) []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.answers[key])
}

// begun sends a request in the background and returns when its handler works; the handler goes on when finish is called.
func (s *service) begun(key string) (finish func() answer) {
	s.tb.Helper()
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan answer, 1)
	s.works(func(context.Context, core.Run) int {
		close(entered)
		<-leave
		return http.StatusCreated
	})
	go func() { done <- s.post(key) }()
	<-entered
	s.works(quick)
	open := sync.OnceFunc(func() { close(leave) })
	s.tb.Cleanup(open) // also when the test ends early
	return func() answer {
		open()
		return <-done
	}
}

// created checks a first answer, replay one that is repeated.
func (s *service) created(a answer) {
	s.tb.Helper()
	assert.Equal(s.tb, 201, a.status, a.body)
	assert.False(s.tb, a.replayed)
}

func (s *service) replays(key string) {
	s.tb.Helper()
	a := s.post(key)
	assert.Equal(s.tb, 201, a.status, a.body)
	assert.True(s.tb, a.replayed)
}

// away checks the refusal that stands for a store which can not answer.
func (s *service) away(a answer) {
	s.tb.Helper()
	s.refused(a, "store-unavailable")
}

// refused checks a refusal that asks the client to come again.
func (s *service) refused(a answer, code string) {
	s.tb.Helper()
	assert.Equal(s.tb, 503, a.status, a.body)
	assert.Equal(s.tb, code, a.code)
	assert.NotEmpty(s.tb, a.retry)
}

func (s *service) ran(key string, times int) {
	s.tb.Helper()
	assert.Equal(s.tb, times, s.ledger.count(s.tb, key), "%s: effects", key)
}

// wasKept tells whether an outcome of a key was ever stored before its last run.
func (s *service) wasKept(key string) bool {
	s.tb.Helper()
	runs := s.ledger.effects(s.tb)[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(runs[:len(runs)-1], func(e effect) bool { return s.kept[e.Fence] })
}

// heard tells whether an error of the store had a text in it.
func (s *service) heard(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.errors, func(err error) bool { return strings.Contains(err.Error(), text) })
}

// soon sends a request until it is answered 201.
func (s *service) soon(key string, within time.Duration) (a answer) {
	s.tb.Helper()
	if a = s.post(key); a.status == http.StatusCreated {
		return a
	}
	require.Eventually(s.tb, func() bool {
		a = s.post(key)
		return a.status == http.StatusCreated
	}, within, 20*time.Millisecond)
	return a
}

// onNetwork is a service on a server of its own, with a network between.
func onNetwork(tb testing.TB, change ...func(*core.Config)) (*service, *badnet.Net, *redistest.Server) {
	return storeOnNetwork(tb, nil, change...)
}

// storeOnNetwork is onNetwork with options of the store.
func storeOnNetwork(tb testing.TB, opts []redisstore.Option, change ...func(*core.Config)) (*service, *badnet.Net, *redistest.Server) {
	server := redistest.Start(tb)
	network := badnet.New(time.Now().UnixNano())
	client := server.Client(tb, func(o *redis.Options) { o.Dialer = network.Dial })
	s := newService(tb, redisstore.New(client, opts...), change...)
	s.created(s.post("warm")) // connections are made, scripts are there
	return s, network, server
}

// onServer is a service on a server of its own.
func onServer(tb testing.TB, args ...string) (*service, *redistest.Server, *redis.Client) {
	server := redistest.Start(tb, args...)
	s := newService(tb, redisstore.New(server.Client(tb)))
	return s, server, server.Client(tb)
}

// executions returns how often the server has executed a script.
func executions(tb testing.TB, server *redistest.Server) int {
	tb.Helper()
	var n int
	_, _ = fmt.Sscanf(server.Info(tb, "cmdstat_evalsha"), "calls=%d", &n)
	return n
}

// recordOf returns the only key that a store has written.
func recordOf(tb testing.TB, client *redis.Client) string {
	tb.Helper()
	keys, err := client.Keys(ctx, "idem:*").Result()
	require.NoError(tb, err)
	require.Len(tb, keys, 1)
	return keys[0]
}
