package adaptertest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// What handlers of the frameworks on net/http may do with their http.ResponseWriter: FRM-03.

// A goroutine that a handler left behind writes into no other answer.
func TestNothingIsWrittenOnceTheHandlerHasReturned(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		var left http.ResponseWriter
		m := Mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			left = w
			_, _ = io.WriteString(w, "answer")
		})
		first := m.Post(m.Guarded)
		<-m.Kept
		const over = "the handler has returned"
		control := http.NewResponseController(left)
		_, err := io.WriteString(left, "late")
		assert.ErrorContains(t, err, over)
		err = control.Flush()
		if _, reports := left.(interface{ FlushError() error }); reports {
			assert.ErrorContains(t, err, over)
		}
		_, _, err = control.Hijack()
		assert.ErrorContains(t, err, over)
		left.WriteHeader(http.StatusEarlyHints)
		left.Header().Set("X-Late", "late")
		second := m.Post(m.Guarded)
		assert.Equal(t, []string{"answer", "answer"}, []string{first.Body, second.Body})
		assert.Empty(t, first.Header.Get("X-Late")+second.Header.Get("X-Late"))
	})
}

// mounted is a server with and one without the engine for the same handler.
type mounted struct {
	*testing.T
	Guarded, bare string
	Kept          chan struct{} // one for each outcome that was kept or failed
}

// Mount starts a server with and one without the engine for the same handler.
func Mount(t *testing.T, wrap Mounter, h http.HandlerFunc) mounted {
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

// Post sends a POST with a key, and leaves out the Date of the response.
func (m mounted) Post(url string) Reply {
	m.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader("B"))
	require.NoError(m, err)
	req.Header.Set("Idempotency-Key", "K")
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(m, err)
	r, err := Read(res)
	require.NoError(m, err)
	r.Header.Del("Date")
	return r
}

// Mounter puts a net/http handler into a framework, behind the engine. Without an engine, the handler is bare.
type Mounter = func(*core.Engine, http.HandlerFunc) http.Handler

// onNetHTTP runs test if the framework is one on net/http.
func onNetHTTP(t *testing.T, f Framework, test func(*testing.T, Mounter)) {
	if f.Mount != nil {
		test(t, f.Mount)
	}
}

// FRM-03: each handler uses something that net/http offers or tolerates: copies, deadlines, a status set twice, a body after a
// 204. A writer that hides one of these from the handler gives another first response than without the engine.
func TestWritersWorkAsWithoutTheEngineAndAreReplayedWhole(t *testing.T, f Framework) {
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
			onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
				m := Mount(t, wrap, h)
				want, first, second := m.Post(m.bare), m.Post(m.Guarded), m.Post(m.Guarded)
				assert.Equal(t, want, first)
				assert.True(t, second.Replayed())
				assert.Equal(t, want.Status, second.Status)
				assert.Equal(t, want.Body, second.Body)
				assert.Equal(t, want.Header.Get("Content-Type"), second.Header.Get("Content-Type"))
			})
		})
	}
}

// FRM-03: a flush sends the header before there is a body. The status that was set before must be in it, and in the record.
func TestAFlushThroughResponseControllerKeepsTheStatus(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		m := Mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			assert.NoError(t, http.NewResponseController(w).Flush())
			_, _ = io.WriteString(w, "after the flush")
		})
		first := m.Post(m.Guarded)
		<-m.Kept
		second := m.Post(m.Guarded)
		assert.Equal(t, 201, first.Status)
		assert.Equal(t, "after the flush", first.Body)
		assert.Equal(t, first.Body, second.Body)
		assert.Equal(t, 201, second.Status)
		assert.True(t, second.Replayed())
	})
}

// RPL-27: the handler flushes 11 000 bytes, and Keep.MaxBody is 10 000. The client has all of them; the engine has dropped the
// body, but must store the rest, or the retry would run.
func TestAStreamOverTheLimitIsReplayedWithoutItsBody(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		m := Mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream") // also one that ends: it must not run again
			for range 11 {
				_, _ = w.Write(make([]byte, 1000))
				_ = http.NewResponseController(w).Flush()
			}
		})
		assert.Len(t, m.Post(m.Guarded).Body, 11_000)
		<-m.Kept
		second := m.Post(m.Guarded)
		assert.True(t, second.Replayed())
		assert.Empty(t, second.Body)
		assert.Equal(t, "omitted", second.Header.Get("Idempotent-Body"))
	})
}

// MTH-07: the client leaves in the middle of an event stream, whose handler waits for just that. The key is free, and the retry,
// which runs, gets an empty response and not the part that the first client has read.
func TestAStreamWhoseClientLeavesIsCancelledAndNotReplayedInPart(t *testing.T, f Framework) {
	for contentType, replayed := range map[string]bool{"text/event-stream": false, "Text/Event-Stream; charset=utf-8": false} {
		t.Run(contentType, func(t *testing.T) {
			onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
				var runs atomic.Int64
				m := Mount(t, wrap, func(w http.ResponseWriter, r *http.Request) {
					if runs.Add(1) > 1 {
						return
					}
					w.Header().Set("Content-Type", contentType)
					_, _ = io.WriteString(w, "part")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done() // MTH-07: a stream without end stops with its client
				})
				ctx, leave := context.WithCancel(context.Background())
				req, err := http.NewRequestWithContext(ctx, "POST", m.Guarded, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				res, err := http.DefaultTransport.RoundTrip(req)
				require.NoError(t, err)
				part := make([]byte, 4)
				_, err = io.ReadFull(res.Body, part)
				require.NoError(t, err)
				leave()
				_ = res.Body.Close()
				<-m.Kept
				second := m.Post(m.Guarded)
				assert.Equal(t, replayed, second.Replayed())
				assert.Empty(t, second.Body, "a part is never replayed")
			})
		})
	}
}

// CON-12: a client that leaves while a handler writes a response that is too long to be stored is no failure of the handler, so its
// decision counts, and a retry is told that the body is missing.
func TestADecisionCountsIfTheClientLeavesALongResponse(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		var runs atomic.Int64
		m := Mount(t, wrap, func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			core.Decide(r.Context(), core.Keep)
			for range 1000 {
				if _, err := io.WriteString(w, strings.Repeat("x", 64<<10)); err != nil {
					return
				}
			}
		})
		req, err := http.NewRequest("POST", m.Guarded, strings.NewReader("B"))
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "K")
		res, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		_, err = io.ReadFull(res.Body, make([]byte, 4))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		<-m.Kept
		second := m.Post(m.Guarded)
		assert.True(t, second.Replayed())
		assert.Equal(t, "omitted", second.Header.Get("Idempotent-Body"))
		assert.EqualValues(t, 1, runs.Load())
	})
}

// FRM-03: trailers that were announced, and ones that were not, reach the first client behind a body that is held back or
// streamed. They are not stored, so a replay announces none.
func TestTrailersReachTheFirstClient(t *testing.T, f Framework) {
	for name, flush := range map[string]bool{"held back": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
				m := Mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
					header := w.Header() // many handlers keep it
					header.Set("Trailer", "X-Sum")
					_, _ = io.WriteString(w, "body")
					if flush {
						_ = http.NewResponseController(w).Flush()
					}
					header.Set("X-Sum", "4")
					w.Header().Set(http.TrailerPrefix+"X-More", "5")
				})
				req, err := http.NewRequest("POST", m.Guarded, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				res, err := http.DefaultTransport.RoundTrip(req)
				require.NoError(t, err)
				r, err := Read(res)
				require.NoError(t, err)
				assert.Equal(t, "body", r.Body)
				assert.Equal(t, "4", res.Trailer.Get("X-Sum"))
				assert.Equal(t, "5", res.Trailer.Get("X-More"))
				<-m.Kept
				second := m.Post(m.Guarded)
				assert.True(t, second.Replayed())
				assert.Equal(t, "body", second.Body)
				assert.Empty(t, second.Header.Values("Trailer"))
				assert.Empty(t, second.Header.Values("X-Sum"))
			})
		})
	}
}

// The context of a run outlives its client (LSE-06), so the client's leaving cannot be what ends it. A handler that returns
// because its writes fail must end it, or goroutines that wait for it would stay.
func TestTheContextOfAStreamThatItsClientLeftEndsWithItsHandler(t *testing.T, f Framework) {
	for _, contentType := range []string{"text/plain", "text/event-stream"} {
		onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
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

// A connection of HTTP/2 cannot be taken over. A handler that tries all the same has not sent its response: the client gets it when
// it is stored.
func TestAHijackThatIsRefusedSendsNothing(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
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
func TestTheContentTypeOfAHandlerIsReplayedWithoutTheMiddlewareThatSetItToo(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
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
			assert.Equal(t, outer == nil || outer[0] != jsonType, res.Header().Get(Marker) == "true")
		}
	})
}

// Clients may merge trailers and early hints into the header, so a handler cannot set the marker there either: RPL-25.
func TestNoTrailerAndNoEarlyHintHasTheMarker(t *testing.T, f Framework) {
	for name, flush := range map[string]bool{"held back": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
				m := Mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
					header := w.Header()
					header.Set("Trailer", Marker+", X-Sum")
					w.Header().Set(http.TrailerPrefix+strings.ToLower(Marker), "true")
					_, _ = io.WriteString(w, "body")
					if flush {
						_ = http.NewResponseController(w).Flush()
					}
					header.Set(Marker, "true")
					header.Set(http.TrailerPrefix+Marker, "true")
					header.Set("X-Sum", "4")
				})
				res, r, err := Exchange(t, m.Guarded, strings.NewReader("B"))
				require.NoError(t, err)
				assert.Equal(t, "4", res.Trailer.Get("X-Sum"))
				assert.Empty(t, res.Trailer.Values(Marker))
				assert.False(t, r.Replayed())
			})
		})
	}
	m := Mount(t, MountHTTP, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(Marker, "true")
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	})
	var hints []textproto.MIMEHeader
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { hints = append(hints, h); return nil }}
	ctx := httptrace.WithClientTrace(context.Background(), trace)
	req, err := http.NewRequestWithContext(ctx, "POST", m.Guarded, strings.NewReader("B"))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "K")
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Len(t, hints, 1)
	assert.NotEmpty(t, hints[0].Get("Link"))
	assert.Empty(t, hints[0].Get(Marker))
}
