package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/accesslog"
)

// The recipes of the guide are those that the tests of this file run.
func TestTheRecipesOfTheGuideAreRun(t *testing.T) {
	source := readFile(t, "recipes_test.go") + readFile(t, "../internal/accesslog/accesslog.go")
	guide := readFile(t, "../docs/guide.md")
	for heading, blocks := range map[string]int{"### In an access log\n": 5, "### Uploads\n": 1} {
		_, section, found := strings.Cut(guide, heading)
		require.True(t, found, heading)
		section, _, _ = strings.Cut(section, "\n## ")
		blocksOfGuide := goBlock.FindAllStringSubmatch(section, -1)
		assert.Len(t, blocksOfGuide, blocks, heading)
		for _, block := range blocksOfGuide {
			indented := strings.ReplaceAll("\n"+strings.TrimSpace(block[1]), "\n", "\n\t")
			assert.Contains(t, source, strings.ReplaceAll(indented, "\n\t\n", "\n\n"), heading)
		}
	}
}

// withDone and logDone are the types of what accesslog.New returns.
type (
	withDone = func(context.Context) (context.Context, *atomic.Pointer[core.Event])
	logDone  = func(*atomic.Pointer[core.Event])
)

func servesHTTP(engine *core.Engine, withDone withDone, logDone logDone) http.Handler {
	accessLog := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, done := withDone(r.Context())
			next.ServeHTTP(w, r.WithContext(ctx))
			logDone(done)
		})
	}
	return accessLog(idem.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })))
}

func servesGin(engine *core.Engine, withDone withDone, logDone logDone) http.Handler {
	accessLog := func(c *gin.Context) {
		ctx, done := withDone(c.Request.Context())
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		logDone(done)
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.POST("/", accessLog, idemgin.Gin(engine), func(c *gin.Context) { c.Status(http.StatusCreated) })
	return router
}

func servesEcho(engine *core.Engine, withDone withDone, logDone logDone) http.Handler {
	accessLog := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx, done := withDone(c.Request().Context())
			c.SetRequest(c.Request().WithContext(ctx))
			err := next(c)
			logDone(done)
			return err
		}
	}
	e := echo.New()
	e.POST("/", func(c echo.Context) error { return c.NoContent(http.StatusCreated) }, accessLog, idemecho.Echo(engine))
	return e
}

func servesFiber(engine *core.Engine, withDone withDone, logDone logDone) http.Handler {
	accessLog := func(c *fiber.Ctx) error {
		ctx, done := withDone(c.UserContext())
		c.SetUserContext(ctx)
		err := c.Next()
		logDone(done)
		return err
	}
	app := fiber.New()
	app.Post("/", accessLog, idemfiber.Fiber(engine), func(c *fiber.Ctx) error { return c.SendStatus(http.StatusCreated) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, err := app.Test(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer res.Body.Close()
		w.WriteHeader(res.StatusCode)
	})
}

func TestAnAccessLogKnowsWhatTheEngineKnows(t *testing.T) {
	for framework, serves := range map[string]func(*core.Engine, withDone, logDone) http.Handler{
		"http": servesHTTP, "gin": servesGin, "echo": servesEcho, "fiber": servesFiber,
	} {
		t.Run(framework, func(t *testing.T) {
			var lines bytes.Buffer
			cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
			withDone, logDone := accesslog.New(&cfg, slog.New(slog.NewJSONHandler(&lines, nil)))
			engine, err := core.New(cfg)
			require.NoError(t, err)
			service := serves(engine, withDone, logDone)
			record := ""
			for i, want := range []struct {
				body, key string
				status    int
				line      string
			}{
				{"a", "K", 201, "1 run "},
				{"a", "K", 201, "0 replay "},
				{"b", "K", 422, "0 mismatch fingerprint-mismatch"},
				{"a", "", 201, "0 bypass "},
			} {
				r, w := httptest.NewRequest("POST", "/", strings.NewReader(want.body)), httptest.NewRecorder()
				if want.key != "" {
					r.Header.Set("Idempotency-Key", want.key)
				}
				lines.Reset()
				service.ServeHTTP(w, r)
				assert.Equal(t, want.status, w.Code)
				var line struct {
					Record, Result, Code string
					Attempt              int
				}
				require.NoError(t, json.Unmarshal(lines.Bytes(), &line), "%s", lines.String())
				assert.Equal(t, want.line, fmt.Sprint(line.Attempt, " ", line.Result, " ", line.Code))
				if i == 0 {
					record = line.Record
					assert.NotEmpty(t, record)
				}
				assert.Equal(t, want.key != "", line.Record == record, "requests with one key have one record")
			}
		})
	}
}

// form is an upload of a file as a multipart form, with a boundary of its own.
func form(t *testing.T, size int) *http.Request {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	file, err := w.CreateFormFile("receipt", "receipt.pdf")
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat([]byte("%"), size))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	r := httptest.NewRequest("POST", "/receipts", &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	return r
}

func TestAnUploadThatIsBuiltAgainIsTheSameRequest(t *testing.T) {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	mux, runs := http.NewServeMux(), 0
	upload := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseMultipartForm(1<<20))
		runs++
		w.WriteHeader(http.StatusCreated)
	})
	mux.Handle("POST /default", idem.HTTP(engine)(upload))
	uploads := engine.With(func(c *core.Config) {
		c.Fingerprint.Multipart = true  // compares the parts, and not the boundary between them
		c.Limits.RequestBody = 20 << 20 // a longer upload gets 413
	})
	mux.Handle("POST /receipts", idem.HTTP(uploads)(upload))
	send := func(path, key string, size int) (status int, replayed bool) {
		r, w := form(t, size), httptest.NewRecorder()
		r.URL.Path = path
		r.Header.Set("Idempotency-Key", key)
		mux.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Idempotent-Replayed") == "true"
	}
	for _, want := range []struct {
		path, key string
		size      int
		status    int
		replayed  bool
	}{
		{"/receipts", "A", 2 << 20, 201, false},
		{"/receipts", "A", 2 << 20, 201, true},
		{"/receipts", "A", 2<<20 + 1, 422, false},
		{"/receipts", "B", 20 << 20, 413, false},
		{"/default", "C", 1 << 10, 201, false},
		{"/default", "C", 1 << 10, 422, false},
		{"/default", "D", 1 << 20, 413, false},
	} {
		status, replayed := send(want.path, want.key, want.size)
		assert.Equal(t, []any{want.status, want.replayed}, []any{status, replayed}, "%+v", want)
	}
	assert.Equal(t, 2, runs)
}
