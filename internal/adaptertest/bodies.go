package adaptertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ATT-01: a timeout outside answers, and the key is held while the handler works on.
func TestATimeoutOutsideLeavesTheKeyToTheHandler(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		var runs atomic.Int64
		g := NewGate()
		guarded := wrap(NewEngine(t), func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			<-r.Context().Done() // the deadline counts
			<-g.Leave
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "done")
		})
		url := NewServer(t, http.TimeoutHandler(guarded, 500*time.Millisecond, "slow"))
		assert.Equal(t, 503, Submit(t, url, "B").Status)
		for range 3 {
			assert.Equal(t, 409, Submit(t, url, "B").Status)
		}
		g.Open()
		var r Reply
		require.Eventually(t, func() bool { r = Submit(t, url, "B"); return r.Replayed() }, 5*time.Second, time.Millisecond)
		assert.Equal(t, "done", r.Body)
		assert.EqualValues(t, 1, runs.Load())
	})
}

// FPR-01: middleware outside has read the body, which net/http reads once. A form that it has parsed is compared by its values, and
// a body that is gone is refused: two requests that differ in it would be the same.
func TestABodyThatWasReadOutsideIsComparedOrRefused(t *testing.T, f Framework) {
	contentType, parts := Form(t, "content")
	for name, test := range map[string]readOutside{
		"a form": {
			func(r *http.Request) { _ = r.PostFormValue("amount") },
			"application/x-www-form-urlencoded", "amount=1", "amount=2", http.StatusCreated,
		},
		"a form in parts": {
			func(r *http.Request) { _ = r.ParseMultipartForm(1) },
			contentType, parts, strings.Replace(parts, "content\r", "CONTENT\r", 1), http.StatusCreated,
		},
		"a form in parts, with more behind them than its reader takes": {
			func(r *http.Request) { _ = r.ParseMultipartForm(1) },
			contentType, parts + strings.Repeat("x", 10_000), strings.Replace(parts, "content\r", "CONTENT\r", 1) + strings.Repeat("x", 10_000),
			http.StatusCreated,
		},
		"parts that were not kept": {
			func(r *http.Request) { _, _ = r.MultipartReader(); _, _ = io.Copy(io.Discard, r.Body) },
			contentType, parts, parts, http.StatusBadRequest,
		},
		"parts whose file is gone": {
			func(r *http.Request) { _ = r.ParseMultipartForm(1); _ = r.MultipartForm.RemoveAll() },
			contentType, parts, parts, http.StatusBadRequest,
		},
		"parts whose file is a directory by now": {
			func(r *http.Request) {
				_ = r.ParseMultipartForm(1)
				file, _ := r.MultipartForm.File["file"][0].Open()
				path := file.(*os.File).Name()
				_, _, _ = file.Close(), os.Remove(path), os.Mkdir(path, 0o700)
			},
			contentType, parts, parts, http.StatusBadRequest,
		},
		"another body": {
			func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, "text/plain", "a", "b", http.StatusBadRequest,
		},
	} {
		onNetHTTP(t, f, func(t *testing.T, wrap Mounter) { test.check(t, wrap, name) })
	}
}

// readOutside is a body that middleware outside reads, and another one that is not the same. The status is that of the response.
type readOutside struct {
	read                     func(*http.Request)
	contentType, body, other string
	status                   int
}

// check sends the body twice, and then the other one.
func (test *readOutside) check(t *testing.T, wrap Mounter, name string) {
	var runs atomic.Int64
	guarded := wrap(NewEngine(t), func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
	})
	url := NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		test.read(r)
		guarded.ServeHTTP(w, r)
	}))
	for i := range 2 {
		r := Submit(t, url, test.body, "Content-Type", test.contentType)
		assert.Equal(t, test.status, r.Status, name)
		assert.Equal(t, i > 0 && test.status == http.StatusCreated, r.Replayed(), name)
	}
	if test.status == http.StatusCreated {
		assert.EqualValues(t, 1, runs.Load(), name)
		assert.Equal(t, 422, Submit(t, url, test.other, "Content-Type", test.contentType).Status, name)
		return
	}
	assert.Zero(t, runs.Load(), name)
}

// FRM-03: a server of net/http removes the files of the form that it finds in its own request. The handler has parsed the form of
// a copy of that request, with the context of the run; if the engine did not hand it back, the files would stay.
func TestTheServerRemovesTheFilesOfAForm(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		files := func() int { entries, _ := os.ReadDir(dir); return len(entries) }
		server := httptest.NewServer(wrap(NewEngine(t), func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, r.ParseMultipartForm(1))
			assert.Equal(t, 1, files())
			w.WriteHeader(201)
		}))
		contentType, body := Form(t, strings.Repeat("x", 100_000))
		assert.Equal(t, 201, Submit(t, server.URL, body, "Content-Type", contentType).Status)
		server.Close()
		assert.Zero(t, files())
	})
}

// FRM-03: the handler declares ten bytes. If it writes five, the first response breaks off as without the engine, and its replay
// has no body. If it writes fifteen, the last five are errors, and the replay has the ten that were sent.
func TestABodyIsAsLongAsDeclaredOrNotReplayed(t *testing.T, f Framework) {
	for name, c := range map[string]struct {
		writes int
		broken error
		again  string
	}{"less": {5, io.ErrUnexpectedEOF, ""}, "more": {15, nil, "xxxxxxxxxx"}} {
		t.Run(name, func(t *testing.T) {
			onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
				m := Mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", "10")
					w.WriteHeader(201)
					for i := range c.writes {
						_, err := io.WriteString(w, "x")
						assert.Equal(t, i >= 10, errors.Is(err, http.ErrContentLength))
					}
				})
				_, want, wantErr := Exchange(t, m.bare, strings.NewReader("B"))
				_, first, firstErr := Exchange(t, m.Guarded, strings.NewReader("B"))
				assert.Equal(t, want, first)
				assert.Equal(t, wantErr, firstErr)
				assert.Equal(t, c.broken, firstErr)
				<-m.Kept
				second := Submit(t, m.Guarded, "B")
				assert.Equal(t, 201, second.Status)
				assert.True(t, second.Replayed())
				assert.Equal(t, c.again, second.Body)
				assert.Equal(t, c.broken != nil, second.Header.Get("Idempotent-Body") == "omitted")
			})
		})
	}
}

// FRM-03: middleware outside has set a header field that the handler sends as a trailer. A writer that merges its header into the
// one outside could send that trailer with both values, or twice.
func TestTrailersAreNotDoubled(t *testing.T, f Framework) {
	outside := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Sum", "0")
			h.ServeHTTP(w, r)
		})
	}
	for name, flush := range map[string]bool{"held back": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			h := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum, X-Early")
				w.Header().Set("X-Early", "3") // before the body already
				w.Header().Set(http.TrailerPrefix+"X-More", "5")
				_, _ = io.WriteString(w, "body")
				if flush {
					_ = http.NewResponseController(w).Flush()
				}
				w.Header().Set("X-Sum", "4")
			}
			want, _, err := Exchange(t, NewServer(t, outside(http.HandlerFunc(h))), strings.NewReader("B"))
			require.NoError(t, err)
			onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
				got, r, err := Exchange(t, NewServer(t, outside(wrap(NewEngine(t), h))), strings.NewReader("B"))
				require.NoError(t, err)
				assert.Equal(t, "body", r.Body)
				assert.Equal(t, want.Trailer, got.Trailer)
				assert.Equal(t, http.Header{"X-Sum": {"4"}, "X-Early": {"3"}, "X-More": {"5"}}, got.Trailer)
			})
		})
	}
}

// ATT-01: a deadline inside whose middleware waits for the handler.
func TestADeadlineInsideHoldsTheKeyUntilTheHandlerReturns(t *testing.T, f Framework) {
	if f.Deadline == nil {
		return
	}
	var working, runs atomic.Int64
	g := NewGate()
	url := f.Deadline(t, NewEngine(t), func(ctx context.Context) error {
		runs.Add(1)
		assert.EqualValues(t, 1, working.Add(1))
		defer working.Add(-1)
		<-ctx.Done()
		<-g.Leave
		return ctx.Err()
	})
	first := Async(func() Reply { return Submit(t, url, "B") })
	require.Eventually(t, func() bool { return runs.Load() == 1 }, 5*time.Second, time.Millisecond)
	for range 3 {
		assert.Equal(t, 409, Submit(t, url, "B").Status)
	}
	g.Open()
	assert.GreaterOrEqual(t, (<-first).Status, 400)
	assert.False(t, Submit(t, url, "B").Replayed())
}
