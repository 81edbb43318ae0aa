package fasthttptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

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
	s.seen[name] = append(s.seen[name], fmt.Sprint(ctx.Value(Tenant), " ", ctx.Value(TenantKey{})))
}

// Begin implements driver.Store. It notes the tenant in the context before it claims.
func (s *tenants) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	s.note(ctx, c)
	return s.Store.Begin(ctx, c)
}

// Complete implements driver.Store. It notes the tenant also when it fails because the store is away, so that each further call
// for the same outcome is compared as well.
func (s *tenants) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	s.note(ctx, c)
	if s.away.Load() {
		return errors.New("away")
	}
	return s.Store.Complete(ctx, c, outcome)
}

// Tenant is the name of the value that middleware sets in fasthttp's context.
const Tenant = "tenant"

// TenantKey is the key of the same value in the context that middleware makes of it.
type TenantKey struct{}

// Applications make the user's context of fasthttp's, which is another request's soon. What the engine does for a request that is
// over, since the store was away, it does with that request's values.
func TestAnOutcomeOfFiberThatIsPendingIsKeptWithTheValuesOfItsOwnRequest(t *testing.T, app App) {
	for name, send := range map[string]Handler{
		"a body":   func(_ context.Context, c *fasthttp.RequestCtx) error { c.SetBodyString("sent"); return nil },
		"a stream": sending(func() io.Reader { return strings.NewReader("sent") }, -1),
	} {
		t.Run(name, func(t *testing.T) {
			s := &tenants{Store: memstore.New(), seen: map[string][]string{}}
			var heard sync.Map
			engine, err := core.New(core.Config{Store: s, Scope: core.SingleTenant, Hooks: core.Hooks{
				StoreError: func(ctx context.Context, e core.Event) { heard.Store(fmt.Sprint(ctx.Value(Tenant)), e.Record) },
				Kept:       func(ctx context.Context, e core.Event) { heard.Store(fmt.Sprint(ctx.Value(Tenant)), e.Record) },
			}})
			require.NoError(t, err)
			url := app(t, engine, send, Outside{Tenants: true})
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
