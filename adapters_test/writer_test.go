package adapters_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// What handlers of the three net/http frameworks may do with their http.ResponseWriter: FRM-03.

// A goroutine that a handler left behind writes into no other answer.
func TestNothingIsWrittenOnceTheHandlerHasReturned(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		var left http.ResponseWriter
		m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			left = w
			_, _ = io.WriteString(w, "answer")
		})
		first := m.post(m.guarded)
		<-m.kept
		const over = "the handler has returned"
		control := http.NewResponseController(left)
		_, err := io.WriteString(left, "late")
		assert.ErrorContains(t, err, over)
		err = control.Flush()
		if _, isSilent := left.(*echo.Response); !isSilent {
			assert.ErrorContains(t, err, over)
		}
		_, _, err = control.Hijack()
		assert.ErrorContains(t, err, over)
		left.WriteHeader(http.StatusEarlyHints)
		left.Header().Set("X-Late", "late")
		second := m.post(m.guarded)
		assert.Equal(t, []string{"answer", "answer"}, []string{first.body, second.body})
		assert.Empty(t, first.header.Get("X-Late")+second.header.Get("X-Late"))
	})
}

func TestAGoroutineThatGoesOnReachesNoOtherAnswer(t *testing.T) {
	m := mount(t, mounts["http"], func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("Idempotency-Key") + ";"
		_, _ = io.WriteString(w, name)
		go func() {
			for range 1000 {
				if _, err := io.WriteString(w, name); err != nil {
					return
				}
			}
		}()
	})
	go func() {
		for range m.kept {
		}
	}()
	var all sync.WaitGroup
	for g := range 20 {
		all.Go(func() {
			for i := range 20 {
				key := fmt.Sprintf("%d-%d", g, i)
				for range 2 {
					req, _ := http.NewRequest("POST", m.guarded, nil)
					req.Header.Set("Idempotency-Key", key)
					res, err := http.DefaultTransport.RoundTrip(req)
					if !assert.NoError(t, err) {
						return
					}
					r, err := read(res)
					assert.NoError(t, err)
					if r.header.Get("Idempotent-Body") == "" {
						assert.Equal(t, strings.Repeat(key+";", strings.Count(r.body, ";")), r.body)
						assert.NotEmpty(t, r.body)
					}
				}
			}
		})
	}
	all.Wait()
}

// mounts puts a net/http handler behind the engine in each framework.
var mounts = map[string]func(*core.Engine, http.HandlerFunc) http.Handler{
	"http": func(e *core.Engine, h http.HandlerFunc) http.Handler { return idemhttp.HTTP(e)(h) },
	"gin": func(e *core.Engine, h http.HandlerFunc) http.Handler {
		router := gin.New()
		router.Use(idemgin.Gin(e))
		router.Any("/*path", func(c *gin.Context) { h(c.Writer, c.Request) })
		return router
	},
	"echo": func(e *core.Engine, h http.HandlerFunc) http.Handler {
		app := echo.New()
		app.Use(idemecho.Echo(e))
		app.Any("/*", func(c echo.Context) error { h(c.Response(), c.Request()); return nil })
		return app
	},
}

// mounted is a server with and one without the engine for the same handler.
type mounted struct {
	*testing.T
	guarded, bare string
	kept          chan struct{} // one for each outcome that was kept or failed
}

func mount(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler, h http.HandlerFunc) mounted {
	kept := make(chan struct{}, 10)
	settled := func(context.Context, core.Event) { kept <- struct{}{} }
	engine, err := core.New(core.Config{
		Store: memstore.New(), Scope: core.SingleTenant, Keep: core.KeepConfig{MaxBody: 10_000},
		Hooks: core.Hooks{Kept: settled, Failed: settled},
	})
	require.NoError(t, err)
	guarded, bare := httptest.NewServer(wrap(engine, h)), httptest.NewServer(h)
	t.Cleanup(func() { guarded.Close(); bare.Close() })
	return mounted{t, guarded.URL, bare.URL, kept}
}

func (m mounted) post(url string) reply {
	m.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader("B"))
	require.NoError(m, err)
	req.Header.Set("Idempotency-Key", "K")
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(m, err)
	r, err := read(res)
	require.NoError(m, err)
	r.header.Del("Date")
	return r
}

func eachMount(t *testing.T, test func(*testing.T, func(*core.Engine, http.HandlerFunc) http.Handler)) {
	for name, wrap := range mounts {
		t.Run(name, func(t *testing.T) { test(t, wrap) })
	}
}

func TestWritersWorkAsWithoutTheEngineAndAreReplayedWhole(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 500)
	for name, h := range map[string]http.HandlerFunc{
		"io.Copy": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, err := io.Copy(w, bytes.NewReader(large))
			assert.NoError(t, err)
		},
		"http.ServeContent": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.txt", time.Unix(0, 0), bytes.NewReader(large))
		},
		"http.Error":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 404) },
		"http.Redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) },
		"deadlines": func(w http.ResponseWriter, _ *http.Request) {
			control := http.NewResponseController(w)
			assert.NoError(t, control.SetReadDeadline(time.Now().Add(time.Minute)))
			assert.NoError(t, control.SetWriteDeadline(time.Now().Add(time.Minute)))
			assert.NoError(t, control.EnableFullDuplex())
			_, _ = io.WriteString(w, "in time")
		},
		"a status set twice": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "first")
			w.WriteHeader(202)
		},
		"a header set too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-Late", "late")
		},
		"a body where none may be": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			_, err := io.WriteString(w, "x")
			assert.ErrorIs(t, err, http.ErrBodyNotAllowed)
		},
		"no type wanted": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html>")
		},
		"small writes": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = io.WriteString(w, "<p>")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
				m := mount(t, wrap, h)
				want, first, second := m.post(m.bare), m.post(m.guarded), m.post(m.guarded)
				assert.Equal(t, want, first)
				assert.True(t, second.replayed())
				assert.Equal(t, want.status, second.status)
				assert.Equal(t, want.body, second.body)
				assert.Equal(t, want.header.Get("Content-Type"), second.header.Get("Content-Type"))
			})
		})
	}
}

func TestAFlushThroughResponseControllerKeepsTheStatus(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			assert.NoError(t, http.NewResponseController(w).Flush())
			_, _ = io.WriteString(w, "after the flush")
		})
		first := m.post(m.guarded)
		<-m.kept
		second := m.post(m.guarded)
		assert.Equal(t, 201, first.status)
		assert.Equal(t, "after the flush", first.body)
		assert.Equal(t, first.body, second.body)
		assert.Equal(t, 201, second.status)
		assert.True(t, second.replayed())
	})
}

func TestAStreamOverTheLimitIsReplayedWithoutItsBody(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream") // also one that ends: it must not run again
			for range 11 {
				_, _ = w.Write(make([]byte, 1000))
				_ = http.NewResponseController(w).Flush()
			}
		})
		assert.Len(t, m.post(m.guarded).body, 11_000)
		<-m.kept
		second := m.post(m.guarded)
		assert.True(t, second.replayed())
		assert.Empty(t, second.body)
		assert.Equal(t, "omitted", second.header.Get("Idempotent-Body"))
	})
}

func TestAStreamWhoseClientLeavesIsCancelledAndNotReplayedInPart(t *testing.T) {
	for contentType, replayed := range map[string]bool{"text/event-stream": false, "Text/Event-Stream; charset=utf-8": false} {
		t.Run(contentType, func(t *testing.T) {
			eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
				var runs atomic.Int64
				m := mount(t, wrap, func(w http.ResponseWriter, r *http.Request) {
					if runs.Add(1) > 1 {
						return
					}
					w.Header().Set("Content-Type", contentType)
					_, _ = io.WriteString(w, "part")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done() // MTH-07: a stream without end stops with its client
				})
				ctx, leave := context.WithCancel(context.Background())
				req, err := http.NewRequestWithContext(ctx, "POST", m.guarded, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				res, err := http.DefaultTransport.RoundTrip(req)
				require.NoError(t, err)
				part := make([]byte, 4)
				_, err = io.ReadFull(res.Body, part)
				require.NoError(t, err)
				leave()
				_ = res.Body.Close()
				<-m.kept
				second := m.post(m.guarded)
				assert.Equal(t, replayed, second.replayed())
				assert.Empty(t, second.body, "a part is never replayed")
			})
		})
	}
}

func TestTrailersReachTheFirstClient(t *testing.T) {
	for name, flush := range map[string]bool{"held back": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
				m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Trailer", "X-Sum")
					_, _ = io.WriteString(w, "body")
					if flush {
						_ = http.NewResponseController(w).Flush()
					}
					w.Header().Set("X-Sum", "4")
					w.Header().Set(http.TrailerPrefix+"X-More", "5")
				})
				req, err := http.NewRequest("POST", m.guarded, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				res, err := http.DefaultTransport.RoundTrip(req)
				require.NoError(t, err)
				r, err := read(res)
				require.NoError(t, err)
				assert.Equal(t, "body", r.body)
				assert.Equal(t, "4", res.Trailer.Get("X-Sum"))
				assert.Equal(t, "5", res.Trailer.Get("X-More"))
				<-m.kept
				second := m.post(m.guarded)
				assert.True(t, second.replayed())
				assert.Equal(t, "body", second.body)
				assert.Empty(t, second.header.Values("Trailer"))
				assert.Empty(t, second.header.Values("X-Sum"))
			})
		})
	}
}

func TestEarlyHintsGoOutAtOnce(t *testing.T) {
	for _, name := range []string{"http"} { // Gin and Echo take 103 for the final status by themselves
		t.Run(name, func(t *testing.T) {
			m := mount(t, mounts[name], func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(103)
				w.Header().Del("Link")
				w.WriteHeader(201)
			})
			var hints []int
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints = append(hints, code)
				assert.NotEmpty(t, h.Get("Link"))
				return nil
			}}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "POST", m.guarded, strings.NewReader("B"))
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", "K")
			res, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err)
			r, err := read(res)
			require.NoError(t, err)
			assert.Equal(t, []int{103}, hints)
			assert.Equal(t, 201, r.status)
			assert.Empty(t, r.header.Get("Link"))
		})
	}
}

func TestTheContextOfAStreamThatItsClientLeftEndsWithItsHandler(t *testing.T) {
	for _, contentType := range []string{"text/plain", "text/event-stream"} {
		eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
			run := make(chan context.Context, 1)
			engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
			require.NoError(t, err)
			server := httptest.NewServer(wrap(engine, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", contentType)
				chunk := make([]byte, 64<<10)
				for {
					if _, err := w.Write(chunk); err != nil {
						break
					}
					if err := http.NewResponseController(w).Flush(); err != nil {
						break
					}
				}
				run <- r.Context()
			}))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			_, err = conn.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 0\r\n\r\n"))
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 100))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			select {
			case <-(<-run).Done():
			case <-time.After(5 * time.Second):
				t.Error("what the handler has left behind on its context would stay for ever")
			}
		})
	}
}

// Echo's response would take an informational answer for the final status; who goes past it does without the engine, too.
func TestEarlyHintsPastEchosResponseLeaveTheFinalStatusAlone(t *testing.T) {
	m := mount(t, func(e *core.Engine, _ http.HandlerFunc) http.Handler {
		app := echo.New()
		app.POST("/", func(c echo.Context) error {
			c.Response().Writer.WriteHeader(http.StatusEarlyHints)
			return c.String(http.StatusCreated, "made")
		}, idemecho.Echo(e))
		return app
	}, nil)
	assert.Equal(t, http.StatusCreated, m.post(m.guarded).status)
	assert.Equal(t, http.StatusCreated, m.post(m.guarded).status)
}

// Each answer that is held back is its own, however many there are at once.
func TestAnswersThatAreHeldBackAtOnceDoNotMix(t *testing.T) {
	for _, f := range frameworks {
		t.Run(f.name, func(t *testing.T) {
			own := func(name string) answer {
				n := len(name) * len(name) * 40 // up to 100 kB
				return answer{status: 201, header: http.Header{"X-Kept": {name}}, body: strings.Repeat(name, n/len(name))}
			}
			svc := start(t, f, memstore.New(), func(r request) answer { return own(r.body) }, setup{}, nil)
			var all sync.WaitGroup
			for g := range 50 {
				all.Go(func() {
					name := strings.Repeat(string(rune('0'+g)), g+1)
					for i := range 20 {
						for range 2 {
							r := svc.post(fmt.Sprintf("%d-%d", g, i), name)
							assert.True(t, own(name).body == r.body, name)
							assert.Equal(t, name, r.header.Get("X-Kept"))
						}
					}
				})
			}
			all.Wait()
			assert.EqualValues(t, 50*20, svc.runs.Load())
		})
	}
}

// Whatever an answer was, nothing of it is in the next one.
func TestNothingOfAnAnswerIsInTheNextOne(t *testing.T) {
	lines := http.Header{}
	for i := range 20 {
		lines.Set(fmt.Sprint("X-Line-", i), "many")
	}
	kinds := map[string]answer{
		"of many header lines": {status: 201, header: lines, body: "many"},
		"of no body":           {status: 204, header: http.Header{"X-Other": {"none"}}},
		"of a long body":       {status: 201, body: strings.Repeat("x", 100_000)},
		"of a stream":          {status: 201, chunks: []string{"one", "two"}},
		"of an error":          {err: errors.New("refused")},
	}
	for _, f := range frameworks {
		for name, before := range kinds {
			t.Run(f.name+" "+name, func(t *testing.T) {
				plain := answer{status: 201, header: http.Header{"X-Kept": {"plain"}}, body: "plain"}
				svc := start(t, f, memstore.New(), func(r request) answer {
					if r.body == "before" {
						return before
					}
					return plain
				}, setup{}, nil)
				for i := range 10 {
					svc.post(fmt.Sprint("before-", i), "before")
					for _, replayed := range []bool{false, true} {
						r := svc.post(fmt.Sprint("plain-", i), "plain")
						require.Equal(t, 201, r.status)
						require.Equal(t, "plain", r.body)
						require.Equal(t, replayed, r.replayed())
						require.Equal(t, "plain", r.header.Get("X-Kept"))
						require.Empty(t, r.header.Get("X-Line-1")+r.header.Get("X-Other")+r.header.Get("Idempotent-Body"))
					}
				}
			})
		}
	}
}

// A connection of HTTP/2 cannot be taken over. A handler that tries all the same has not sent its response: the client gets it when
// it is stored.
func TestAHijackThatIsRefusedSendsNothing(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
		require.NoError(t, err)
		res := httptest.NewRecorder() // It is no http.Hijacker.
		req := httptest.NewRequest("POST", "/", strings.NewReader("B"))
		req.Header.Set("Idempotency-Key", "K")
		wrap(engine, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "body")
			_, _, err := http.NewResponseController(w).Hijack()
			assert.ErrorIs(t, err, http.ErrNotSupported)
			assert.Empty(t, res.Body.String(), "the outcome is not stored yet")
		}).ServeHTTP(res, req)
		assert.Equal(t, http.StatusCreated, res.Code)
		assert.Equal(t, "body", res.Body.String())
	})
}

// Middleware outside may set the Content-Type that the handler sets, too. A process without that middleware replays it all the same.
func TestTheContentTypeOfAHandlerIsReplayedWithoutTheMiddlewareThatSetItToo(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		const jsonType = "application/json"
		engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
		require.NoError(t, err)
		guarded := wrap(engine, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, `{"paid":true}`)
		})
		for _, outer := range [][]string{{jsonType}, nil, {"text/plain"}} {
			res := httptest.NewRecorder()
			res.Header()["Content-Type"] = outer
			req := httptest.NewRequest("POST", "/", strings.NewReader("B"))
			req.Header.Set("Idempotency-Key", "K")
			guarded.ServeHTTP(res, req)
			assert.Equal(t, []string{jsonType}, res.Header().Values("Content-Type"), "outside: %s", outer)
			assert.Equal(t, outer == nil || outer[0] != jsonType, res.Header().Get(marker) == "true")
		}
	})
}

// Clients may merge trailers and early hints into the header, so a handler cannot set the marker there either: RPL-25.
func TestNoTrailerAndNoEarlyHintHasTheMarker(t *testing.T) {
	for name, flush := range map[string]bool{"held back": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
				m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Trailer", marker+", X-Sum")
					w.Header().Set(http.TrailerPrefix+strings.ToLower(marker), "true")
					_, _ = io.WriteString(w, "body")
					if flush {
						_ = http.NewResponseController(w).Flush()
					}
					w.Header().Set(marker, "true")
					w.Header().Set(http.TrailerPrefix+marker, "true")
					w.Header().Set("X-Sum", "4")
				})
				res, r, err := exchange(t, m.guarded, strings.NewReader("B"))
				require.NoError(t, err)
				assert.Equal(t, "4", res.Trailer.Get("X-Sum"))
				assert.Empty(t, res.Trailer.Values(marker))
				assert.False(t, r.replayed())
			})
		})
	}
	m := mount(t, mounts["http"], func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(marker, "true")
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	})
	var hints []textproto.MIMEHeader
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { hints = append(hints, h); return nil }}
	ctx := httptrace.WithClientTrace(context.Background(), trace)
	req, err := http.NewRequestWithContext(ctx, "POST", m.guarded, strings.NewReader("B"))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "K")
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Len(t, hints, 1)
	assert.NotEmpty(t, hints[0].Get("Link"))
	assert.Empty(t, hints[0].Get(marker))
}
