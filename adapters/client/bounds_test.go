package idem_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
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
)

// mortal is the store of a process that dies: nothing of what it sends arrives any more. It is told that its claim is lost, so
// that its engine ends with it.
type mortal struct {
	driver.Store
	dead atomic.Bool
}

func (m *mortal) Extend(ctx context.Context, c driver.Claim) error {
	if m.dead.Load() {
		return core.ErrLost
	}
	return m.Store.Extend(ctx, c)
}

func (m *mortal) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if m.dead.Load() {
		return core.ErrLost
	}
	return m.Store.Complete(ctx, c, outcome)
}

func (m *mortal) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	if m.dead.Load() {
		return core.ErrLost
	}
	return m.Store.Fail(ctx, c, f)
}

// CLI-02: with the defaults of both sides the client outlasts the lease of a process that died, and the run that takes over.
// Without a Retry-After from the engine, too: a proxy in between may drop it, or answer 503 while a new process starts.
func TestTheDefaultsOfClientAndServerMeet(t *testing.T) {
	for name, c := range map[string]struct {
		diesAfter, takesOver time.Duration
		away                 time.Duration // before the second process takes requests
	}{
		"the process dies at once":                   {0, 0, 0},
		"the process dies at once, and work is slow": {0, 20 * time.Second, 0},
		"the process dies at work":                   {15 * time.Second, 5 * time.Second, 0},
		"the next process is slow to start":          {0, 10 * time.Second, 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				first := &mortal{Store: store}
				var died time.Time
				var runs atomic.Int64
				one := handler(t, first, func(http.ResponseWriter, *http.Request) {
					runs.Add(1)
					time.Sleep(c.diesAfter)
					died = time.Now()
					first.dead.Store(true)
					panic(http.ErrAbortHandler)
				})
				two := handler(t, store, func(w http.ResponseWriter, _ *http.Request) {
					runs.Add(1)
					time.Sleep(c.takesOver)
					w.WriteHeader(http.StatusCreated)
				})
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					switch {
					case !first.dead.Load():
						return serve(one, req)
					case time.Since(died) < c.away:
						return nil, errCut
					}
					return serve(two, req)
				})
				status, err := post(t, &idem.Transport{Base: base})
				require.NoError(t, err)
				assert.Equal(t, http.StatusCreated, status)
				assert.EqualValues(t, 2, runs.Load())
			})
		})
	}
}

func handler(t *testing.T, store driver.Store, run http.HandlerFunc) http.Handler {
	engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
	require.NoError(t, err)
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	return idemhttp.HTTP(engine)(run)
}

// serve lets a handler answer a request; one that panics answers nothing.
func serve(h http.Handler, req *http.Request) (res *http.Response, err error) {
	defer func() {
		if recover() != nil {
			res, err = nil, errCut
		}
	}()
	w := httptest.NewRecorder()
	incoming := req.Clone(context.WithoutCancel(req.Context()))
	incoming.RequestURI = req.URL.RequestURI()
	h.ServeHTTP(w, incoming)
	return w.Result(), nil
}

// CLI-03: what a server asks for is a wait between two bounds, or the end.
func TestRetryAfterIsObeyedWithinBounds(t *testing.T) {
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		retryAfter, date   func() string
		least, most        time.Duration
		ends               bool
		maxPause, patience time.Duration
	}{
		"seconds":                                   {retryAfter: say("7"), least: 7 * time.Second, most: 7 * time.Second},
		"zero is no busy loop":                      {retryAfter: say("0"), least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		"a date in the past":                        {retryAfter: func() string { return date(-time.Hour) }, least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		"a date":                                    {retryAfter: func() string { return date(9 * time.Second) }, least: 8 * time.Second, most: 9 * time.Second},
		"a date of a clock that is ahead":           {retryAfter: func() string { return date(time.Hour + 9*time.Second) }, date: func() string { return date(time.Hour) }, least: 9 * time.Second, most: 9 * time.Second},
		"a date of a clock that is late":            {retryAfter: func() string { return date(-time.Hour + 9*time.Second) }, date: func() string { return date(-time.Hour) }, least: 9 * time.Second, most: 9 * time.Second},
		"a day":                                     {retryAfter: say("86000"), ends: true},
		"a day, with all the time in the world":     {retryAfter: say("86000"), ends: true, patience: 100 * time.Hour},
		"more seconds than a number holds":          {retryAfter: say("99999999999999999999"), ends: true, patience: 100 * time.Hour},
		"a date in a day":                           {retryAfter: func() string { return date(24 * time.Hour) }, ends: true, patience: 100 * time.Hour},
		"one second more than MaxPause":             {retryAfter: say("31"), ends: true, maxPause: 30 * time.Second},
		"as long as MaxPause":                       {retryAfter: say("30"), least: 30 * time.Second, most: 30 * time.Second, maxPause: 30 * time.Second},
		"an hour, where the caller allows for that": {retryAfter: say("3600"), least: time.Hour, most: time.Hour, maxPause: time.Hour, patience: 2 * time.Hour},
		"less than nothing":                         {retryAfter: say("-5"), least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		"nonsense":                                  {retryAfter: say("soon"), least: 50 * time.Millisecond, most: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				base := roundTripper(func(*http.Request) (*http.Response, error) {
					times = append(times, time.Now())
					header := http.Header{}
					header.Set("Retry-After", c.retryAfter())
					if c.date != nil {
						header.Set("Date", c.date())
					}
					return &http.Response{StatusCode: 503, Header: header, Body: io.NopCloser(strings.NewReader("why"))}, nil
				})
				status, err := post(t, &idem.Transport{Base: base, Attempts: 2, MaxPause: c.maxPause, MaxElapsed: c.patience})
				require.NoError(t, err)
				assert.Equal(t, 503, status)
				if c.ends {
					require.Len(t, times, 1)
					assert.Equal(t, times[0], time.Now(), "the caller is told at once")
					return
				}
				require.Len(t, times, 2)
				assert.GreaterOrEqual(t, times[1].Sub(times[0]), c.least)
				assert.LessOrEqual(t, times[1].Sub(times[0]), c.most)
			})
		})
	}
}

func say(s string) func() string { return func() string { return s } }

// CLI-03: a server that asks for no pause is not asked without a pause, whatever the caller's Pause says.
func TestAttemptsAreBoundedInNumberAndTime(t *testing.T) {
	for name, transport := range map[string]idem.Transport{
		"by default":                  {},
		"with pauses of nothing":      {Pause: quick},
		"with pauses before the last": {Pause: func(int) time.Duration { return -time.Hour }},
		"with pauses without end":     {Pause: func(int) time.Duration { return 1 << 62 }},
		"with many attempts":          {Attempts: 1 << 40, Pause: quick},
	} {
		for _, zero := range []string{"", "0"} {
			t.Run(name+", Retry-After: "+zero, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var attempts atomic.Int64
					began := time.Now()
					transport.Base = roundTripper(func(*http.Request) (*http.Response, error) {
						attempts.Add(1)
						return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {zero}}, Body: http.NoBody}, nil
					})
					status, err := post(t, &transport)
					require.NoError(t, err)
					assert.Equal(t, 503, status)
					assert.LessOrEqual(t, time.Since(began), time.Minute)
					assert.LessOrEqual(t, attempts.Load(), int64(time.Minute/(10*time.Millisecond)))
				})
			})
		}
	}
}

// CLI-02: with the defaults it is the time that ends the attempts, not their number.
func TestTheDefaultAttemptsLastAsLongAsMaxElapsed(t *testing.T) {
	for range 50 { // pauses are random
		synctest.Test(t, func(t *testing.T) {
			began, last := time.Now(), time.Time{}
			_, err := post(t, &idem.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
				last = time.Now()
				return nil, errCut
			})})
			require.ErrorIs(t, err, errCut)
			assert.GreaterOrEqual(t, last.Sub(began), 50*time.Second, "the longest pause is 10 s")
		})
	}
}

// stalled is a body that never ends, unless it is closed.
type stalled struct {
	start  io.Reader
	once   *sync.Once
	closed chan struct{}
}

func newStalled(start string) stalled {
	return stalled{strings.NewReader(start), &sync.Once{}, make(chan struct{})}
}

func (s stalled) Read(p []byte) (int, error) {
	if n, err := s.start.Read(p); err == nil {
		return n, nil
	}
	<-s.closed
	return 0, errCut
}

func (s stalled) Close() error { s.once.Do(func() { close(s.closed) }); return nil }

// CLI-03: nothing of an answer holds the next attempt up, nor the connection through the pause.
func TestAStalledBodyHoldsNothingUp(t *testing.T) {
	endless := func() io.ReadCloser {
		return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), newStalled("")))
	}
	for name, open := range map[string]func() io.ReadCloser{
		"it stalls":           func() io.ReadCloser { return newStalled("some of it") },
		"it stalls at once":   func() io.ReadCloser { return newStalled("") },
		"it waits with Close": func() io.ReadCloser { return &waiting{newStalled(""), make(chan struct{}, 1)} },
		"it is long":          endless,
		"there is none":       func() io.ReadCloser { return nil },
		"it breaks":           func() io.ReadCloser { return io.NopCloser(io.MultiReader(strings.NewReader("x"), broken{})) },
		"it ends as it must":  func() io.ReadCloser { return io.NopCloser(strings.NewReader("why")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, attempts := time.Now(), 0
				first := open()
				status, err := post(t, &idem.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
					attempts++
					if attempts > 1 {
						assert.Equal(t, 20*time.Second, time.Since(began), "Retry-After holds, what the body took included")
						return &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody}, nil
					}
					go func() {
						time.Sleep(2 * time.Second)
						if s, ok := first.(stalled); ok {
							assert.True(t, isClosed(s.closed), "the connection is held through the pause")
						}
					}()
					return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"20"}}, Body: first}, nil
				})})
				require.NoError(t, err)
				assert.Equal(t, 201, status)
				time.Sleep(2 * time.Hour) // the read that nothing could end has ended by itself
			})
		})
	}
}

// The time for which a stalled body is read counts: no attempt begins after MaxElapsed or Window.
func TestAStalledBodyDelaysNoAttemptBeyondItsBounds(t *testing.T) {
	for name, transport := range map[string]*idem.Transport{
		"MaxElapsed": {MaxElapsed: 500 * time.Millisecond}, "Window": {Window: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, attempts := time.Now(), 0
				transport.Pause = quick
				transport.Base = roundTripper(func(*http.Request) (*http.Response, error) {
					attempts++
					assert.Less(t, time.Since(began), 500*time.Millisecond, "attempt %d begins", attempts)
					return &http.Response{StatusCode: 503, Header: http.Header{}, Body: newStalled("some of it")}, nil
				})
				status, err := post(t, transport)
				require.NoError(t, err)
				assert.Equal(t, 503, status)
			})
		})
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waiting is a body whose Close waits for its Read, as that of a compressed answer in net/http does; its Read ends by itself.
type waiting struct {
	stalled
	lock chan struct{} // a mutex would keep the clock of synctest from moving
}

func (w *waiting) Read([]byte) (int, error) {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	time.Sleep(time.Hour)
	return 0, errCut
}

func (w *waiting) Close() error {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	return w.stalled.Close()
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errCut }

// CLI-03 with a real connection: a 503 whose body never comes.
func TestAStalled503OfARealServerIsGivenUp(t *testing.T) {
	for name, encoding := range map[string]string{"plain": "", "compressed": "gzip"} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int64
			gone := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if attempts.Add(1) > 1 {
					w.WriteHeader(http.StatusCreated)
					return
				}
				if encoding != "" {
					w.Header().Set("Content-Encoding", encoding)
				}
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(http.StatusServiceUnavailable)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(gone)
			}))
			defer server.Close()
			res, err := follow(t, &idem.Transport{Pause: quick}, server.URL, "")
			require.NoError(t, err)
			assert.Equal(t, http.StatusCreated, res.StatusCode)
			<-gone // its connection was closed
		})
	}
}

func TestTheLastAnswerIsWhole(t *testing.T) {
	const why = `{"code":"store-unavailable"}`
	answers := func(times int, body string, after func()) *idem.Transport {
		n := 0
		return &idem.Transport{Attempts: times, Pause: func(int) time.Duration { return time.Minute / 4 }, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			after()
			return &http.Response{StatusCode: 503, Header: http.Header{"N": {strconv.Itoa(n)}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		})}
	}
	get := func(t *testing.T, ctx context.Context, transport *idem.Transport) (string, string, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://provider.example/", strings.NewReader("payment"))
		require.NoError(t, err)
		res, err := transport.RoundTrip(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var body strings.Builder
		_, err = io.Copy(&body, res.Body)
		return res.Header.Get("N"), body.String(), err
	}
	t.Run("after the last attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, body, err := get(t, t.Context(), answers(3, why, func() {}))
			require.NoError(t, err)
			assert.Equal(t, []string{"3", why}, []string{n, body})
		})
	})
	t.Run("when the caller gives up in a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			n, body, err := get(t, ctx, answers(3, why, func() { time.AfterFunc(3*time.Second, cancel) }))
			require.NoError(t, err)
			assert.Equal(t, []string{"1", why}, []string{n, body})
			assert.Equal(t, 3*time.Second, time.Since(began), "promptly")
		})
	})
	t.Run("at once when the deadline is nearer than the next attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			n, body, err := get(t, ctx, answers(3, why, func() {}))
			require.NoError(t, err)
			assert.Equal(t, []string{"1", why}, []string{n, body})
			assert.Equal(t, began, time.Now())
		})
	})
	t.Run("but for what is too long to be set aside, which is seen to be cut", func(t *testing.T) {
		for size, cut := range map[int]bool{64 << 10: false, 64<<10 + 1: true} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, body, err := get(t, ctx, answers(3, strings.Repeat("x", size), func() { time.AfterFunc(time.Second, cancel) }))
				assert.Len(t, body, 64<<10)
				assert.Equal(t, cut, errors.Is(err, io.ErrUnexpectedEOF))
			})
		}
	})
}

// A server that does not answer at all is Base's to give up on, and then the request is sent again.
func TestAServerThatNeverAnswersIsAskedAgainAfterTheTimeoutOfBase(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var connections atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if connections.Add(1) > 1 {
					_, _ = conn.Read(make([]byte, 1024))
					_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
				}
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	base := &http.Transport{ResponseHeaderTimeout: 300 * time.Millisecond}
	defer base.CloseIdleConnections()
	res, err := follow(t, &idem.Transport{Base: base}, "http://"+listener.Addr().String(), "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusCreated, res.StatusCode)
}
