package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/adaptertest"
)

// tenants is a store that finds its tenant by values of the context, and may be away when an outcome is to be kept.
type tenants struct {
	driver.Store
	away atomic.Bool
	mu   sync.Mutex
	seen map[string][]string // by the record of a claim
}

func (s *tenants) note(ctx context.Context, c driver.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := string(driver.AppendRecordName(nil, c.Key))
	s.seen[name] = append(s.seen[name], fmt.Sprint(ctx.Value("tenant"), " ", ctx.Value(tenantKey{})))
}

func (s *tenants) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	s.note(ctx, c)
	return s.Store.Begin(ctx, c)
}

func (s *tenants) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	s.note(ctx, c)
	if s.away.Load() {
		return errors.New("away")
	}
	return s.Store.Complete(ctx, c, outcome)
}

type tenantKey struct{}

// Applications make the user's context of fasthttp's, which is another request's soon. What the engine does for a request that is
// over, since the store was away, it does with that request's values.
func TestAnOutcomeOfFiberThatIsPendingIsKeptWithTheValuesOfItsOwnRequest(t *testing.T) {
	for name, send := range map[string]fiber.Handler{
		"a body":   func(c *fiber.Ctx) error { return c.SendString("sent") },
		"a stream": func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("sent")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &tenants{Store: memstore.New(), seen: map[string][]string{}}
			var heard sync.Map
			engine, err := core.New(core.Config{Store: s, Scope: core.SingleTenant, Hooks: core.Hooks{
				StoreError: func(ctx context.Context, e core.Event) { heard.Store(fmt.Sprint(ctx.Value("tenant")), e.Record) },
				Kept:       func(ctx context.Context, e core.Event) { heard.Store(fmt.Sprint(ctx.Value("tenant")), e.Record) },
			}})
			require.NoError(t, err)
			app := fiber.New(fiber.Config{DisableStartupMessage: true})
			app.Use(func(c *fiber.Ctx) error {
				tenant := strings.Clone(c.Get("X-Tenant"))
				c.Locals("tenant", tenant)
				c.SetUserContext(context.WithValue(c.Context(), tenantKey{}, tenant))
				return c.Next()
			}, idemfiber.Fiber(engine))
			app.Post("/", send)
			app.Get("/", func(c *fiber.Ctx) error { return nil })
			url := serveFiber(t, app)

			s.away.Store(true)
			assert.Equal(t, "sent", adaptertest.Submit(t, url, "B", "X-Tenant", "first").Body)
			for range 100 {
				_, _, _ = adaptertest.Exchange(t, url, nil, "X-Tenant", "second", "Idempotency-Key", "")
				time.Sleep(time.Millisecond)
			}
			s.away.Store(false)
			require.NoError(t, engine.Close(context.Background()))
			require.Len(t, s.seen, 1)
			for record, calls := range s.seen {
				assert.Greater(t, len(calls), 2, "it was sent again")
				for _, call := range calls {
					assert.Equal(t, "first first", call)
				}
				kept, _ := heard.Load("first")
				assert.Equal(t, record, kept)
			}
			_, wrong := heard.Load("second")
			assert.False(t, wrong)
		})
	}
}
