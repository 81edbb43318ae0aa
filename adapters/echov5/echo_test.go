package idem_test

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/echov5"
	"github.com/go-idem/idem/internal/adaptertest"
)

func TestTheSuiteOfAllAdapters(t *testing.T) { adaptertest.Run(t, framework) }

func TestWhatASilentErrorHandlerLeavesIsNotKept(t *testing.T) {
	var runs atomic.Int64
	app := echo.New()
	app.HTTPErrorHandler = func(*echo.Context, error) {}
	app.Use(idem.Echo(adaptertest.NewEngine(t)))
	app.POST("/", func(*echo.Context) error { runs.Add(1); return errors.New("no database") })
	url := adaptertest.NewServer(t, app)
	for range 2 {
		assert.False(t, adaptertest.Submit(t, url, "B").Replayed())
	}
	assert.EqualValues(t, 2, runs.Load())
}

func TestABodyThatIsLongerThanBodyLimitAllowsIsTooLarge(t *testing.T) {
	app := echo.New()
	app.Use(middleware.BodyLimit(1024), idem.Echo(adaptertest.NewEngine(t)))
	app.POST("/", func(c *echo.Context) error { return c.NoContent(201) })
	chunked := io.MultiReader(strings.NewReader(strings.Repeat("x", 2000))) // BodyLimit itself refuses a declared length.
	_, r, err := adaptertest.Exchange(t, adaptertest.NewServer(t, app), chunked)
	require.NoError(t, err)
	assert.Equal(t, 413, r.Status, r.Body)
}

// An early hint that goes past echo.Response leaves the final status alone, as it does without the engine. Compression outside puts a
// writer of its own around the outer echo.Response.
func TestEarlyHintsPastTheResponseLeaveTheFinalStatusAlone(t *testing.T) {
	for name, outside := range map[string][]echo.MiddlewareFunc{"bare": nil, "compressed": {middleware.Gzip()}} {
		t.Run(name, func(t *testing.T) {
			app := echo.New()
			app.Use(outside...)
			app.POST("/", func(c *echo.Context) error {
				r, err := echo.UnwrapResponse(c.Response())
				require.NoError(t, err)
				r.ResponseWriter.WriteHeader(http.StatusEarlyHints)
				return c.String(http.StatusCreated, adaptertest.Text)
			}, idem.Echo(adaptertest.NewEngine(t)))
			url := adaptertest.NewServer(t, app)
			for _, isReplay := range []bool{false, true} {
				r := adaptertest.Submit(t, url, "B", "Accept-Encoding", "gzip")
				assert.Equal(t, http.StatusCreated, r.Status)
				assert.Equal(t, isReplay, r.Replayed())
				if outside == nil {
					assert.Equal(t, adaptertest.Text, r.Body)
					continue
				}
				unzipped, err := gzip.NewReader(strings.NewReader(r.Body))
				require.NoError(t, err)
				text, err := io.ReadAll(unzipped)
				require.NoError(t, err)
				assert.Equal(t, adaptertest.Text, string(text))
			}
		})
	}
}

// The application's own handlers for unknown routes: that of a route is a handler like any other, and that of the router is the
// router's.
func TestHandlersOfUnknownRoutes(t *testing.T) {
	own := func(c *echo.Context) error { return c.String(http.StatusNotFound, "own page") }
	for name, test := range map[string]struct {
		app    func() *echo.Echo
		isKept bool
	}{
		"of a route": {func() *echo.Echo {
			app := echo.New()
			app.RouteNotFound("/*", own)
			return app
		}, true},
		"of the router": {func() *echo.Echo {
			return echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{NotFoundHandler: own})})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			app := test.app()
			app.Use(idem.Echo(adaptertest.NewEngine(t)))
			url := adaptertest.NewServer(t, app) + "/elsewhere"
			for _, isSecond := range []bool{false, true} {
				r := adaptertest.Submit(t, url, "B")
				assert.Equal(t, "own page", r.Body)
				assert.Equal(t, isSecond && test.isKept, r.Replayed())
			}
		})
	}
}
