package adapters_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

func TestAGoroutineThatGoesOnReachesNoOtherAnswer(t *testing.T) {
	m := adaptertest.Mount(t, adaptertest.MountHTTP, func(w http.ResponseWriter, r *http.Request) {
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
		for range m.Kept {
		}
	}()
	var all sync.WaitGroup
	for g := range 20 {
		all.Go(func() {
			for i := range 20 {
				key := fmt.Sprintf("%d-%d", g, i)
				for range 2 {
					req, _ := http.NewRequest("POST", m.Guarded, nil)
					req.Header.Set("Idempotency-Key", key)
					res, err := http.DefaultTransport.RoundTrip(req)
					if !assert.NoError(t, err) {
						return
					}
					r, err := adaptertest.Read(res)
					assert.NoError(t, err)
					if r.Header.Get("Idempotent-Body") == "" {
						assert.Equal(t, strings.Repeat(key+";", strings.Count(r.Body, ";")), r.Body)
						assert.NotEmpty(t, r.Body)
					}
				}
			}
		})
	}
	all.Wait()
}

func TestEarlyHintsGoOutAtOnce(t *testing.T) {
	for _, name := range []string{"http"} { // Gin and Echo take 103 for the final status by themselves
		t.Run(name, func(t *testing.T) {
			m := adaptertest.Mount(t, adaptertest.MountHTTP, func(w http.ResponseWriter, _ *http.Request) {
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
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "POST", m.Guarded, strings.NewReader("B"))
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", "K")
			res, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err)
			r, err := adaptertest.Read(res)
			require.NoError(t, err)
			assert.Equal(t, []int{103}, hints)
			assert.Equal(t, 201, r.Status)
			assert.Empty(t, r.Header.Get("Link"))
		})
	}
}

// Echo's response would take an informational answer for the final status; who goes past it does without the engine, too.
func TestEarlyHintsPastEchosResponseLeaveTheFinalStatusAlone(t *testing.T) {
	m := adaptertest.Mount(t, func(e *core.Engine, _ http.HandlerFunc) http.Handler {
		app := echo.New()
		app.POST("/", func(c echo.Context) error {
			c.Response().Writer.WriteHeader(http.StatusEarlyHints)
			return c.String(http.StatusCreated, "made")
		}, idemecho.Echo(e))
		return app
	}, nil)
	assert.Equal(t, http.StatusCreated, m.Post(m.Guarded).Status)
	assert.Equal(t, http.StatusCreated, m.Post(m.Guarded).Status)
}
