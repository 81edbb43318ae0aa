package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// storage is a fiber.Storage in memory.
type storage struct{ sync.Map }

func (s *storage) Get(key string) ([]byte, error) {
	value, _ := s.Load(key)
	stored, _ := value.([]byte)
	return stored, nil
}

func (s *storage) Set(key string, value []byte, _ time.Duration) error {
	s.Store(key, append([]byte(nil), value...))
	return nil
}
func (s *storage) Delete(key string) error { s.Map.Delete(key); return nil }
func (s *storage) Reset() error            { s.Clear(); return nil }
func (s *storage) Close() error            { return nil }

func newEngine(t *testing.T) *core.Engine {
	t.Helper()
	engine, err := core.New(core.Config{
		Store: memstore.New(), Scope: core.SingleTenant,
		Key: core.KeyConfig{Header: "X-Idempotency-Key", Aliases: []string{"Idempotency-Key"}},
	})
	require.NoError(t, err)
	return engine
}

// docs/migrate.md: Fiber's own middleware stays outside for one lifetime of its keys.
func TestMovingInFromFibersMiddleware(t *testing.T) {
	runs := 0
	pay := func(c *fiber.Ctx) error {
		runs++
		return c.SendString(fmt.Sprint("payment ", runs))
	}
	engine, old := newEngine(t), idempotency.New(idempotency.Config{Storage: &storage{}})
	send := func(middleware ...any) func(string) (int, string) {
		app := fiber.New()
		app.Use(middleware...)
		app.Post("/payments", pay)
		return func(key string) (int, string) {
			r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
			r.Header.Set("X-Idempotency-Key", key)
			response, err := app.Test(r, -1)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			return response.StatusCode, string(body)
		}
	}
	const before, during = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	alone, both, after := send(old), send(old, idemfiber.Fiber(engine)), send(idemfiber.Fiber(engine))
	for _, step := range []struct {
		name string
		send func(string) (int, string)
		key  string
		want string
	}{
		{"the old layer alone", alone, before, "payment 1"},
		{"both, and a key from before the change", both, before, "payment 1"},
		{"both, and a new key", both, during, "payment 2"},
		{"both, and its retry", both, during, "payment 2"},
		{"idem alone, and a key from the time of both", after, during, "payment 2"},
	} {
		_, body := step.send(step.key)
		assert.Equal(t, step.want, body, step.name)
	}
}

// sendTo returns what sends requests to a handler of net/http.
func sendTo(h http.Handler) func(string) (int, string) {
	return func(key string) (int, string) {
		r, w := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}")), httptest.NewRecorder()
		r.Header.Set("Idempotency-Key", key)
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
}

// docs/migrate.md: a check by SETNX refuses the keys from before the change until they expire, and then goes.
func TestMovingInFromSetNX(t *testing.T) {
	runs, seen := 0, map[string]bool{}
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		_, _ = fmt.Fprint(w, "payment ", runs)
	})
	checkBySetNX := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			if seen[key] {
				w.WriteHeader(http.StatusConflict)
				return
			}
			seen[key] = true
			next.ServeHTTP(w, r)
		})
	}
	guarded := idemhttp.HTTP(newEngine(t))(pay)
	old, both, after := sendTo(checkBySetNX(pay)), sendTo(checkBySetNX(guarded)), sendTo(guarded)
	old("before")
	status, _ := both("before")
	assert.Equal(t, http.StatusConflict, status, "a key from before the change is refused as before")
	_, during := both("during")
	assert.Equal(t, "payment 2", during)
	_, replayed := after("during")
	assert.Equal(t, during, replayed, "a key from the time of both layers is replayed")
	assert.Equal(t, 2, runs)
}

// result is a row of the table of TestMovingInFromATable.
type result struct {
	Status string
	Result []byte
}

// docs/migrate.md: the handler looks at the old table first.
func TestMovingInFromATable(t *testing.T) {
	runs, table, broken := 0, map[string]result{}, errors.New("no table")
	find := func(_ context.Context, key string) (result, error) {
		if key == "away" {
			return result{}, broken
		}
		return table[key], nil
	}
	makePayment := func(w http.ResponseWriter, _ *http.Request) {
		runs++
		_, _ = fmt.Fprint(w, "payment ", runs)
	}
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before, err := find(r.Context(), r.Header.Get("Idempotency-Key"))
		switch {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case before.Status == "INPROGRESS":
			core.Decide(r.Context(), core.Release)
			w.WriteHeader(http.StatusConflict)
		case before.Status == "COMPLETED":
			_, _ = w.Write(before.Result)
		default:
			makePayment(w, r)
		}
	})
	send := sendTo(idemhttp.HTTP(newEngine(t))(pay))
	table["done"], table["running"] = result{"COMPLETED", []byte("payment of before")}, result{Status: "INPROGRESS"}
	for key, want := range map[string]string{"done": "200 payment of before", "running": "409 ", "away": "503 ", "new": "200 payment 1"} {
		for range 2 {
			status, body := send(key)
			assert.Equal(t, want, fmt.Sprint(status, " ", body), key)
		}
	}
	table["running"], broken = result{"COMPLETED", []byte("it has ended")}, nil
	_, body := send("running")
	assert.Equal(t, "it has ended", body)
	_, body = send("away")
	assert.Equal(t, "payment 2", body, "the key is not blocked")
	clear(table)
	_, body = send("done")
	assert.Equal(t, "payment of before", body, "idem has it now")
	assert.Equal(t, 2, runs)
}
