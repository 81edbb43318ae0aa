// Package fasthttptest has tests of streams on frameworks on fasthttp, which sends a stream when the handlers have returned:
// CON-12.
package fasthttptest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/adaptertest"
)

// Handler is a handler under test. ctx is the context of its run.
type Handler func(ctx context.Context, c *fasthttp.RequestCtx) error

// Outside is what surrounds a handler and its engine. Middleware that recovers panics always does.
type Outside struct {
	Compress bool         // the framework's compression is outside
	Tenants  bool         // a middleware outside sets X-Tenant under Tenant, and under TenantKey{} in a context made of Fiber's
	TimesOut func() bool  // a middleware outside, which calls it after the handlers, times the request out
	Inner    *core.Engine // an engine inside; nil for none
}

// App starts a server in which POST to all paths leads to h under an engine.
type App func(t *testing.T, e *core.Engine, h Handler, o Outside) (url string)

// streams has the tests of streams.
var streams = []func(*testing.T, App){
	TestAStreamOfFiberThatBreaksIsNotKept,
	TestAnOutcomeOfFiberThatIsPendingIsKeptWithTheValuesOfItsOwnRequest,
	TestAStreamOfFiberWhoseClientLeavesIsNotKept,
	TestADecisionCountsIfTheClientLeavesALongStreamOfFiber,
	TestAnEventStreamOfFiberWhoseClientLeavesReleasesTheKey,
	TestAStreamOfFiberThatNobodyReadsEndsItsRun,
	TestAStreamOfFiberThatNobodyReadsAndWhoseSourcePanicsEndsItsRunAndNotTheProcess,
	TestAResponseOfFiberIsSentWhenTheStoreIsAway,
	TestAStreamOfFiberOutlastsItsLease,
}

// RunStreams runs all tests of streams.
func RunStreams(t *testing.T, app App) {
	for _, test := range streams {
		t.Run(adaptertest.NameOf(test), func(t *testing.T) { test(t, app) })
	}
}

// sending is a handler that sends a stream with a declared size; -1 for none.
func sending(source func() io.Reader, size int) Handler {
	return func(_ context.Context, c *fasthttp.RequestCtx) error {
		c.SetBodyStream(source(), size)
		return nil
	}
}

// brokenReader gives some bytes, and then does what end says.
type brokenReader struct {
	bytes  int
	end    func() error
	closed chan struct{}
}

// Read implements io.Reader. A panic of end comes out of it, into whoever reads the stream.
func (r *brokenReader) Read(p []byte) (int, error) {
	if r.bytes == 0 {
		return 0, r.end()
	}
	n := min(len(p), r.bytes)
	r.bytes -= n
	copy(p, strings.Repeat("x", n))
	return n, nil
}

// Close implements io.Closer. It panics when it is called again, since the source of a stream is closed once.
func (r *brokenReader) Close() error { close(r.closed); return nil }

func breaks(n int, end func() error) *brokenReader {
	return &brokenReader{n, end, make(chan struct{})}
}

func fails() error { return errors.New("the source is gone") }

func panics() error { panic("the source is gone") }

// firstRun is a handler whose first run sends one thing and whose others say how often it ran.
func firstRun(runs *atomic.Int64, send Handler) Handler {
	return func(ctx context.Context, c *fasthttp.RequestCtx) error {
		if n := runs.Add(1); n > 1 {
			c.SetStatusCode(201)
			c.SetBodyString(fmt.Sprint("run ", n))
			return nil
		}
		return send(ctx, c)
	}
}

// CON-12: nothing is stored of a stream whose source fails, panics or has another length than declared, so a retry runs, also
// if the handler had decided to keep the outcome. The length is unknown, under Keep.MaxBody, which the engine reads before
// anything is sent, or above it.
func TestAStreamOfFiberThatBreaksIsNotKept(t *testing.T, app App) {
	for name, send := range map[string]Handler{
		"its source fails":            sending(func() io.Reader { return breaks(10_000, fails) }, -1),
		"its source panics":           sending(func() io.Reader { return breaks(10_000, panics) }, -1),
		"a short one fails":           sending(func() io.Reader { return breaks(10, fails) }, 20),
		"a short one panics":          sending(func() io.Reader { return breaks(10, panics) }, 20),
		"less than declared":          sending(func() io.Reader { return strings.NewReader("less") }, 20),
		"more than declared":          sending(func() io.Reader { return strings.NewReader("more") }, 2),
		"a long one fails":            sending(func() io.Reader { return breaks(2<<20, fails) }, 3<<20),
		"a long one panics":           sending(func() io.Reader { return breaks(2<<20, panics) }, 3<<20),
		"a long one ends too soon":    sending(func() io.Reader { return breaks(2<<20, func() error { return io.EOF }) }, 3<<20),
		"a limited one ends too soon": sending(func() io.Reader { return &io.LimitedReader{R: strings.NewReader("less"), N: 20} }, -1),
		"its handler says so": func(ctx context.Context, c *fasthttp.RequestCtx) error {
			c.SetBodyStreamWriter(func(w *bufio.Writer) { core.Decide(ctx, core.Retry) })
			return nil
		},
	} {
		for i := range 4 {
			compressed, decided := i&1 > 0, i&2 > 0
			if compressed && strings.Contains(name, "panics") {
				continue // in a goroutine of fasthttp's compression, with or without the engine
			}
			t.Run(fmt.Sprint(name, ", compressed outside: ", compressed, ", kept by its handler: ", decided), func(t *testing.T) {
				var runs atomic.Int64
				url := app(t, adaptertest.NewEngine(t), firstRun(&runs, func(ctx context.Context, c *fasthttp.RequestCtx) error {
					if decided {
						core.Decide(ctx, core.Keep)
					}
					return send(ctx, c)
				}), Outside{Compress: compressed})
				req, err := http.NewRequest("POST", url, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				if res, err := http.DefaultClient.Do(req); err == nil {
					_, _ = adaptertest.Read(res)
				}
				var second adaptertest.Reply
				require.Eventually(t, func() bool {
					second = adaptertest.Submit(t, url, "B")
					return second.Status != http.StatusConflict
				}, 5*time.Second, time.Millisecond)
				assert.Equal(t, "run 2", second.Body)
				assert.False(t, second.Replayed())
			})
		}
	}
}

// leave sends a request, reads the beginning of its answer, and leaves.
func leave(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 1\r\n\r\nB")
	require.NoError(t, err)
	_, err = io.ReadAtLeast(conn, make([]byte, 200), 100)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())
}

// CON-12: a stream without end stops when its client leaves, and so does the context of its run. A retry runs, unless the handler
// has decided to keep the outcome: then it is replayed without the body, of which only a part was made.
func TestAStreamOfFiberWhoseClientLeavesIsNotKept(t *testing.T, app App) {
	for name, decided := range map[string]core.Disposition{
		"runs again": core.Retry, "stays where its handler has decided": core.Keep,
	} {
		t.Run(name, func(t *testing.T) {
			var runs, made atomic.Int64
			cause := make(chan error, 1)
			url := app(t, adaptertest.NewEngine(t), firstRun(&runs, func(ctx context.Context, c *fasthttp.RequestCtx) error {
				if decided == core.Keep {
					core.Decide(ctx, core.Keep)
				}
				c.SetBodyStreamWriter(func(w *bufio.Writer) {
					for {
						_, _ = w.WriteString(strings.Repeat("chunk ", 1000))
						if w.Flush() != nil {
							break
						}
						made.Add(1)
					}
					<-ctx.Done()
					cause <- ctx.Err()
				})
				return nil
			}), Outside{})
			leave(t, strings.TrimPrefix(url, "http://"))
			select {
			case err := <-cause:
				require.Error(t, err)
			case <-time.After(10 * time.Second):
				t.Fatal("the run's context goes on")
			}
			var second adaptertest.Reply
			require.Eventually(t, func() bool {
				second = adaptertest.Submit(t, url+"/orders", "B")
				return second.Status != http.StatusConflict
			}, 5*time.Second, time.Millisecond)
			assert.Equal(t, decided == core.Keep, second.Replayed())
			assert.Equal(t, decided == core.Keep, second.Header.Get("Idempotent-Body") == "omitted")
		})
	}
}

// endless is a source that gives bytes for ever.
type endless struct{}

// Read implements io.Reader. It has no end, so only the declared size or the client can end the stream.
func (endless) Read(p []byte) (int, error) { return copy(p, strings.Repeat("x", len(p))), nil }

// CON-12: the connection fails, and not the source, so the decision of the handler counts however the stream is sent.
func TestADecisionCountsIfTheClientLeavesALongStreamOfFiber(t *testing.T, app App) {
	const size = 64 << 20
	path := filepath.Join(t.TempDir(), "statement")
	require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
	for name, open := range map[string]func() io.Reader{
		"of a source": func() io.Reader { return endless{} },
		"of a file":   func() io.Reader { file, _ := os.Open(path); return file },
		"of a text":   func() io.Reader { return strings.NewReader(strings.Repeat("x", size)) },
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			url := app(t, adaptertest.NewEngine(t), firstRun(&runs, func(ctx context.Context, c *fasthttp.RequestCtx) error {
				core.Decide(ctx, core.Keep)
				return sending(open, size)(ctx, c)
			}), Outside{})
			leave(t, strings.TrimPrefix(url, "http://"))
			var second adaptertest.Reply
			require.Eventually(t, func() bool {
				second = adaptertest.Submit(t, url+"/orders", "B")
				return second.Status != http.StatusConflict
			}, 5*time.Second, time.Millisecond)
			assert.True(t, second.Replayed(), second.Body)
			assert.Equal(t, "omitted", second.Header.Get("Idempotent-Body"))
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

// MTH-07: an event stream.
func TestAnEventStreamOfFiberWhoseClientLeavesReleasesTheKey(t *testing.T, app App) {
	var runs atomic.Int64
	url := app(t, adaptertest.NewEngine(t), firstRun(&runs, func(_ context.Context, c *fasthttp.RequestCtx) error {
		c.Response.Header.Set("Content-Type", "text/event-stream")
		c.SetBodyStreamWriter(func(w *bufio.Writer) {
			for w.Flush() == nil {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", strings.Repeat("x", 5000))
			}
		})
		return nil
	}), Outside{})
	leave(t, strings.TrimPrefix(url, "http://"))
	var second adaptertest.Reply
	require.Eventually(t, func() bool {
		second = adaptertest.Submit(t, url+"/orders", "another body")
		return second.Status != http.StatusConflict && second.Status != http.StatusUnprocessableEntity
	}, 5*time.Second, time.Millisecond)
	assert.Equal(t, "run 2", second.Body)
}

// Who times a request out around the engine forgets its answer, and with it the stream.
func TestAStreamOfFiberThatNobodyReadsEndsItsRun(t *testing.T, app App) {
	var runs atomic.Int64
	source := breaks(1, fails)
	url := app(t, adaptertest.NewEngine(t), firstRun(&runs, sending(func() io.Reader { return source }, -1)), Outside{
		TimesOut: func() bool { return runs.Load() == 1 },
	})
	assert.Equal(t, 503, adaptertest.Submit(t, url, "B").Status)
	require.Eventually(t, func() bool {
		runtime.GC()
		return adaptertest.Submit(t, url, "B").Body == "run 2"
	}, 5*time.Second, time.Millisecond)
	<-source.closed
}

// closePanics is a source whose Close panics.
type closePanics struct{ strings.Reader }

// Close implements io.Closer. Where nobody reads the stream, no middleware is left to recover the panic.
func (*closePanics) Close() error { panic("in close") }

// CON-12: a timeout outside has forgotten the stream, so the garbage collector finds it and closes it. A panic of the source
// there would end the process if it were not recovered; and the claim must end all the same, or no retry ever ran.
func TestAStreamOfFiberThatNobodyReadsAndWhoseSourcePanicsEndsItsRunAndNotTheProcess(t *testing.T, app App) {
	var runs atomic.Int64
	url := app(t, adaptertest.NewEngine(t), firstRun(&runs, sending(func() io.Reader { return &closePanics{} }, -1)), Outside{
		TimesOut: func() bool { return runs.Load() == 1 },
	})
	assert.Equal(t, 503, adaptertest.Submit(t, url, "B").Status)
	require.Eventually(t, func() bool {
		runtime.GC()
		return adaptertest.Submit(t, url, "B").Body == "run 2"
	}, 5*time.Second, time.Millisecond)
}

// early is the source of a stream that only fasthttp may read, when the handlers have returned.
type early struct {
	t        *testing.T
	returned *atomic.Bool
	io.Reader
}

// Read implements io.Reader.
func (r early) Read(p []byte) (int, error) {
	assert.True(r.t, r.returned.Load(), "read too early")
	return r.Reader.Read(p)
}

// losing is a store in which a claim is lost before its run ends.
type losing struct{ driver.Store }

// Fail implements driver.Store.
func (losing) Fail(context.Context, driver.Claim, driver.Failure) error { return driver.ErrLost }

// away is a store that cannot be reached when a run begins.
func away() driver.Store {
	store := storetest.NewFaulty(memstore.New())
	store.Inject("begin", storetest.Before, 1)
	return store
}

// LSE-08: with DangerouslyFailOpen a response is sent whole although Begin has failed, and it says once that it is unprotected,
// also if fasthttp sends it past the engine. There is no claim that the end of a stream could settle. A connection that was
// hijacked gets its response also when the claim is lost.
func TestAResponseOfFiberIsSentWhenTheStoreIsAway(t *testing.T, app App) {
	var returned atomic.Bool
	hijacks := func(c *fasthttp.RequestCtx) {
		c.SetBodyStream(early{t, &returned, strings.NewReader("sent")}, 4)
		c.Hijack(func(net.Conn) {})
	}
	for name, test := range map[string]struct {
		send        func(c *fasthttp.RequestCtx)
		store       driver.Store
		body        string
		unprotected []string
	}{
		"a body":   {func(c *fasthttp.RequestCtx) { c.SetBodyString("sent") }, away(), "sent", []string{"true"}},
		"a stream": {func(c *fasthttp.RequestCtx) { c.SetBodyStream(strings.NewReader("sent"), -1) }, away(), "sent", []string{"true"}},
		"a stream that is not sent": {func(c *fasthttp.RequestCtx) {
			c.SetBodyStream(strings.NewReader(""), 0)
			c.Response.SkipBody = true
		}, away(), "", []string{"true"}},
		"one that was timed out": {func(c *fasthttp.RequestCtx) {
			c.SetBodyStream(early{t, &returned, strings.NewReader("late")}, 4)
			c.TimeoutErrorWithCode("slow", http.StatusOK)
		}, away(), "slow", []string{"true"}},
		"a hijacked connection":                     {hijacks, away(), "sent", []string{"true"}},
		"a hijacked connection whose claim is lost": {hijacks, losing{memstore.New()}, "sent", nil},
	} {
		t.Run(name, func(t *testing.T) {
			returned.Store(false)
			engine, err := core.New(core.Config{Store: test.store, Scope: core.SingleTenant, DangerouslyFailOpen: true})
			require.NoError(t, err)
			url := app(t, engine, func(_ context.Context, c *fasthttp.RequestCtx) error { test.send(c); return nil }, Outside{
				TimesOut: func() bool { returned.Store(true); return false },
			})
			r := adaptertest.Submit(t, url, "B")
			assert.Equal(t, http.StatusOK, r.Status)
			assert.Equal(t, test.body, r.Body)
			assert.Equal(t, test.unprotected, r.Header.Values("Idempotent-Unprotected"))
			require.NoError(t, engine.Close(context.Background()))
		})
	}
}

// CON-12, LSE-03: the source stays open for five leases after the handler has returned, and each retry meanwhile gets 409. An
// engine of the route inside must leave the claim, and its end, to the one outside.
func TestAStreamOfFiberOutlastsItsLease(t *testing.T, app App) {
	engine, err := core.New(core.Config{
		Store: memstore.New(), Scope: core.SingleTenant, Lease: core.LeaseConfig{Duration: 200 * time.Millisecond},
	})
	require.NoError(t, err)
	source, end := io.Pipe()
	url := app(t, engine, sending(func() io.Reader { return source }, -1), Outside{Inner: engine.With(adaptertest.Required)})
	first := adaptertest.Async(func() adaptertest.Reply { return adaptertest.Submit(t, url, "B") })
	_, err = io.WriteString(end, "streamed")
	require.NoError(t, err)
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		require.Equal(t, http.StatusConflict, adaptertest.Submit(t, url, "B").Status)
	}
	require.NoError(t, end.Close())
	assert.Equal(t, "streamed", (<-first).Body)
	second := adaptertest.Submit(t, url, "B")
	assert.True(t, second.Replayed())
	assert.Equal(t, "streamed", second.Body)
}
