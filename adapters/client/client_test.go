package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

var errCut = errors.New("connection cut")

// step is what a server does with one attempt.
type step struct {
	status     int
	retryAfter string
	err        error
}

// server answers the attempts of a request one by one, and notes what it sees.
type server struct {
	steps  []step
	keys   []string
	bodies []string
	times  []time.Time
	closed atomic.Int64
}

type body struct {
	io.Reader
	closed *atomic.Int64
}

func (b body) Close() error { b.closed.Add(1); return nil }

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.keys = append(s.keys, req.Header.Get("Idempotency-Key"))
	s.times = append(s.times, time.Now())
	if req.Body != nil {
		read, _ := io.ReadAll(req.Body)
		s.bodies = append(s.bodies, string(read))
	}
	next := s.steps[0]
	s.steps = s.steps[1:]
	if next.err != nil {
		return nil, next.err
	}
	header := http.Header{}
	if next.retryAfter != "" {
		header.Set("Retry-After", next.retryAfter)
	}
	return &http.Response{StatusCode: next.status, Header: header, Body: body{strings.NewReader("answer"), &s.closed}}, nil
}

func post(t *testing.T, transport *idem.Transport) (int, error) {
	t.Helper()
	return send(t, transport, context.Background(), "POST", strings.NewReader("payment"))
}

func send(t *testing.T, transport *idem.Transport, ctx context.Context, method string, payload io.Reader) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://provider.example/charges", payload)
	require.NoError(t, err)
	res, err := transport.RoundTrip(req)
	assert.Empty(t, req.Header, "a RoundTripper must not change its request")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}

func TestARequestIsRepeatedWithOneKeyAndItsWholeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{steps: []step{{err: errCut}, {status: 409, retryAfter: "7"}, {status: 503}, {status: 429, retryAfter: "1"}, {status: 201}}}
		status, err := post(t, &idem.Transport{Base: s})
		require.NoError(t, err)
		assert.Equal(t, 201, status)
		require.Len(t, s.keys, 5)
		for i := range s.keys {
			assert.NotEmpty(t, s.keys[i])
			assert.Equal(t, s.keys[0], s.keys[i])
			assert.Equal(t, "payment", s.bodies[i])
		}
		assert.Equal(t, 7*time.Second, s.times[2].Sub(s.times[1]), "as long as Retry-After says")
		assert.Equal(t, time.Second, s.times[4].Sub(s.times[3]))
		assert.EqualValues(t, 4, s.closed.Load(), "every answer is closed")
	})
}

func TestRequestsDoNotShareAKey(t *testing.T) {
	s := &server{steps: []step{{status: 201}, {status: 201}}}
	transport := &idem.Transport{Base: s}
	for range 2 {
		_, err := post(t, transport)
		require.NoError(t, err)
	}
	assert.NotEqual(t, s.keys[0], s.keys[1])
}

func TestTheCallersKeyIsUsed(t *testing.T) {
	s := &server{steps: []step{{status: 503}, {status: 201}}}
	transport := &idem.Transport{Base: s, Pause: func(int) time.Duration { return 0 }}
	_, err := send(t, transport, idem.WithKey(context.Background(), "mine"), "POST", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{`"mine"`, `"mine"`}, s.keys)

	s.steps = []step{{status: 201}}
	req := httptest.NewRequest("POST", "http://provider.example/", nil)
	req.Header.Set("Idempotency-Key", "in the header")
	_, err = transport.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "in the header", s.keys[2])
}

func TestWhatIsAnOutcomeIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		step   step
	}{
		"success":                     {"POST", step{status: 201}},
		"a mismatch":                  {"POST", step{status: 422}},
		"a conflict of the operation": {"POST", step{status: 409}},
		"a server that failed":        {"POST", step{status: 500}},
		"a method without a key":      {"GET", step{status: 503}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{steps: []step{c.step}}
			status, err := send(t, &idem.Transport{Base: s}, context.Background(), c.method, nil)
			require.NoError(t, err)
			assert.Equal(t, c.step.status, status)
			assert.Equal(t, c.method == "POST", s.keys[0] != "")
		})
	}
}

func TestAttemptsEnd(t *testing.T) {
	t.Run("after their number", func(t *testing.T) {
		s := &server{steps: []step{{status: 503}, {err: errCut}, {status: 503}}}
		status, err := post(t, &idem.Transport{Base: s, Attempts: 3, Pause: func(int) time.Duration { return 0 }})
		require.NoError(t, err)
		assert.Equal(t, 503, status)
		assert.Len(t, s.keys, 3)
	})
	t.Run("before the server forgets the key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{steps: []step{{status: 503, retryAfter: "50"}, {status: 503, retryAfter: "50"}}}
			began := time.Now()
			status, err := post(t, &idem.Transport{Base: s, Window: time.Minute})
			require.NoError(t, err)
			assert.Equal(t, 503, status)
			assert.Len(t, s.keys, 2)
			assert.Less(t, time.Since(began), time.Minute)
		})
	})
	t.Run("when the caller gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s := &server{steps: []step{{status: 503, retryAfter: "50"}}}
			status, err := send(t, &idem.Transport{Base: s}, ctx, "POST", nil)
			require.NoError(t, err)
			assert.Equal(t, 503, status, "the last answer is the caller's")
		})
	})
	t.Run("at once when the body can not be read again", func(t *testing.T) {
		s := &server{steps: []step{{status: 503}}}
		status, err := send(t, &idem.Transport{Base: s}, context.Background(), "POST", io.MultiReader(strings.NewReader("stream")))
		require.NoError(t, err)
		assert.Equal(t, 503, status)
	})
}

func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{steps: []step{{err: errCut}, {err: errCut}, {err: errCut}, {err: errCut}, {err: errCut}}}
		_, err := post(t, &idem.Transport{Base: s, Attempts: 5})
		require.ErrorIs(t, err, errCut)
		for i, longest := range []time.Duration{100, 200, 400, 800} {
			pause := s.times[i+1].Sub(s.times[i])
			assert.LessOrEqual(t, pause, longest*time.Millisecond)
			assert.GreaterOrEqual(t, pause, longest*time.Millisecond/2)
		}
	})
}

// TestAgainstTheEngine: the store loses its answer after the payment was made; the client learns the outcome all the same.
func TestAgainstTheEngine(t *testing.T) {
	store := storetest.NewFaulty(memstore.New())
	engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
	require.NoError(t, err)
	var payments atomic.Int64
	server := httptest.NewServer(idemhttp.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments.Add(1)
		w.WriteHeader(http.StatusCreated)
		if payments.Load() == 1 {
			panic(http.ErrAbortHandler) // the first answer never comes
		}
	})))
	defer server.Close()
	store.Inject("begin", storetest.After, 1)
	client := &http.Client{Transport: &idem.Transport{Pause: func(int) time.Duration { return time.Millisecond }}}
	res, err := client.Post(server.URL, "text/plain", strings.NewReader("payment"))
	require.NoError(t, err)
	defer res.Body.Close()
	assert.Equal(t, http.StatusCreated, res.StatusCode)
	assert.EqualValues(t, 2, payments.Load(), "refused while the store was away, aborted, made")
	assert.Equal(t, 3, store.Calls("begin"))
}

func TestABodyIsReadAgainOnlyForAnAttemptThatIsMade(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	transport := &idem.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
		cancel()
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody}, nil
	})}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost", strings.NewReader("B"))
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) {
		t.Error("nobody closes this one")
		return http.NoBody, nil
	}
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// CLI-04: a refund whose record vanishes while it runs may have happened, and nothing keeps a retry from running: the client sends none.
func TestARefundRunsOnceAlthoughItsRecordVanishes(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at its end": 0, "while its lease is renewed": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs, ahead := 0, atomic.Int64{} // by which the clock of the store is ahead
				clock := memstore.Clock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
				lost := make(chan error, 20)
				engine, err := core.New(core.Config{
					Store: memstore.New(clock), Scope: core.SingleTenant, Lease: core.LeaseConfig{OnUnknown: core.RefuseUnknown},
					Hooks: core.Hooks{Lost: func(_ context.Context, e core.Event) { lost <- e.Err }},
				})
				require.NoError(t, err)
				refund := idemhttp.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					ahead.Add(int64(24 * time.Hour))
					select {
					case <-r.Context().Done():
						assert.ErrorIs(t, context.Cause(r.Context()), driver.ErrGone)
					case <-time.After(takes):
					}
					w.WriteHeader(http.StatusCreated)
				}))
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					refund.ServeHTTP(w, req)
					return w.Result(), nil
				})
				req, err := http.NewRequest("POST", "http://provider.example/refunds", strings.NewReader("refund"))
				require.NoError(t, err)
				res, err := (&idem.Transport{Base: base}).RoundTrip(req)
				require.NoError(t, err)
				var problem core.Problem
				require.NoError(t, json.NewDecoder(res.Body).Decode(&problem))
				assert.Equal(t, []any{1, 409, "record-lost"}, []any{runs, res.StatusCode, problem.Code})
				assert.Empty(t, res.Header.Get("Retry-After"))
				assert.Equal(t, new(false), problem.SafeNewKey)
				assert.ErrorIs(t, <-lost, driver.ErrGone)
			})
		})
	}
}
