package adapters_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
)

// What routers do around the handlers.

func keyed(t *testing.T, url, contentType, body string) reply {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "K")
	req.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	r, err := read(res)
	require.NoError(t, err)
	return r
}

func TestGinAnswersUnknownRoutesAndMethodsItself(t *testing.T) {
	for path, status := range map[string]int{"/nowhere": 404, "/orders": 405} {
		for _, guarded := range []bool{false, true} {
			router := gin.New()
			router.HandleMethodNotAllowed = true
			if guarded {
				router.Use(idemgin.Gin(newEngine(t)))
			}
			router.GET("/orders", func(c *gin.Context) {})
			server := httptest.NewServer(router)
			for range 2 {
				r := keyed(t, server.URL+path, "text/plain", "B")
				assert.Equal(t, status, r.status)
				assert.NotEmpty(t, r.body)
				assert.False(t, r.replayed())
			}
			server.Close()
		}
	}
}

func TestAMiddlewareOnARouteBehindOneOnAllRoutesDoesNotConflictWithItself(t *testing.T) {
	engine := newEngine(t)
	strict := engine.With(func(c *core.Config) { c.Key.Required = true })
	var runs atomic.Int64
	router := gin.New()
	router.Use(idemgin.Gin(engine))
	router.POST("/orders", idemgin.Gin(strict), func(c *gin.Context) { runs.Add(1); c.String(201, "made") })
	server := httptest.NewServer(router)
	defer server.Close()
	assert.False(t, keyed(t, server.URL+"/orders", "text/plain", "B").replayed())
	second := keyed(t, server.URL+"/orders", "text/plain", "B")
	assert.True(t, second.replayed())
	assert.Equal(t, "made", second.body)
	assert.EqualValues(t, 1, runs.Load())
	res, err := http.Post(server.URL+"/orders", "text/plain", strings.NewReader("B"))
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	assert.Equal(t, 400, res.StatusCode, "what the inner one asks of the key counts")
	_ = res.Body.Close()
}

// fasthttp parses a form before any handler runs, and would put it together again in another order each time.
func TestFiberReplaysAFormThatIsSentAgain(t *testing.T) {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idemfiber.Fiber(newEngine(t)))
	app.Post("/", func(c *fiber.Ctx) error { return c.Status(201).SendString(c.FormValue("a")) })
	l := listen(t)
	go func() { _ = app.Listener(l) }()
	t.Cleanup(func() { _ = app.Shutdown() })
	form := func(last string) (string, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for name := range strings.SplitSeq("a b c d e f g h", " ") {
			require.NoError(t, w.WriteField(name, name))
		}
		file, err := w.CreateFormFile("file", "file.txt")
		require.NoError(t, err)
		_, _ = io.WriteString(file, last)
		require.NoError(t, w.Close())
		return w.FormDataContentType(), b.String()
	}
	contentType, body := form("content")
	url := "http://" + l.Addr().String()
	assert.Equal(t, 201, keyed(t, url, contentType, body).status)
	for range 10 {
		second := keyed(t, url, contentType, body)
		require.True(t, second.replayed(), second.body)
		assert.Equal(t, "a", second.body)
	}
	contentType, body = form("another content")
	assert.Equal(t, 422, keyed(t, url, contentType, body).status)
}

func TestADeclaredLengthCountsAsWithoutTheEngine(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "four")
			_, err := io.WriteString(w, "more")
			assert.ErrorIs(t, err, http.ErrContentLength)
		})
		want, first, second := m.post(m.bare), m.post(m.guarded), m.post(m.guarded)
		assert.Equal(t, want, first)
		assert.Equal(t, "four", second.body)
		assert.True(t, second.replayed())
	})
}
