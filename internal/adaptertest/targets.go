package adaptertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// What a client may write on the wire in more than one way, and what a framework reads from it.

// asked is a keyed POST with a request target, and lines before and behind its body, as they are.
func asked(target, before, behind string) string {
	return "POST " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + before +
		"Transfer-Encoding: chunked\r\n\r\n1\r\nB\r\n0\r\n" + behind + "\r\n"
}

const keyed = "Idempotency-Key: K\r\n"

// FRM-07: the form that clients send to proxies.
func TestARequestTargetInAbsoluteFormIsThatInOriginForm(t *testing.T, f Framework) {
	for _, perRoute := range []bool{false, true} {
		for _, same := range [][]string{
			{"/orders", "http://x/orders", "HTTP://other:8080/orders", "https://user@x/orders"},
			{"/orders?a=1&b=/c", "http://x/orders?a=1&b=/c"},
			{"/orders?to=http://y/z", "http://x/orders?to=http://y/z"},
			{"/a%2Fb;c=1/d{e'f", "http://x/a%2Fb;c=1/d{e'f"},
			{"/orders/http://y", "http://x/orders/http://y"},
		} {
			t.Run(fmt.Sprint("per route ", perRoute, " ", same[0]), func(t *testing.T) {
				for _, first := range same {
					svc := Start(t, f, memstore.New(), OK(), Setup{}, func(c *core.Config) { c.Key.PerRoute = perRoute })
					want := svc.Raw(asked(first, keyed, ""))
					require.Equal(t, 201, want.Status, first)
					for _, second := range same {
						got := svc.Raw(asked(second, keyed, ""))
						assert.True(t, got.Replayed(), first+" and "+second+": "+got.Body)
						assert.Equal(t, want.Body, got.Body)
					}
					assert.EqualValues(t, 1, svc.Runs.Load())
				}
			})
		}
	}
}

// Other spellings are other requests, in every framework: a client that repeats a request repeats its target.
func TestATargetThatIsSpeltAnotherWayIsAnotherRequest(t *testing.T, f Framework) {
	for _, other := range []string{"//orders", "/%6Frders", "/orders;a=1", "/orders/", "/./orders", "/orders?", "/orders?a", "http://x//orders", "*"} {
		t.Run(other, func(t *testing.T) {
			svc := Start(t, f, memstore.New(), OK(), Setup{}, nil)
			require.Equal(t, 201, svc.Raw(asked("/orders", keyed, "")).Status)
			want := 422
			if other == "/orders?" {
				want = 201 // an empty query is none
			}
			assert.Equal(t, want, svc.Raw(asked(other, keyed, "")).Status)
			assert.EqualValues(t, 1, svc.Runs.Load())
		})
	}
}

// KEY-19: lines behind the body.
func TestLinesBehindTheBodyAreNoHeader(t *testing.T, f Framework) {
	t.Run("a key", func(t *testing.T) {
		for _, announced := range []string{"", "Trailer: Idempotency-Key\r\n"} {
			svc := Start(t, f, memstore.New(), OK(), Setup{}, nil)
			for range 2 {
				r := svc.Raw(asked("/orders", announced, keyed))
				assert.Equal(t, 201, r.Status)
				assert.False(t, r.Replayed())
			}
			assert.EqualValues(t, 2, svc.Runs.Load())
			strict := Start(t, f, memstore.New(), OK(), Setup{}, Required)
			assert.Equal(t, 400, strict.Raw(asked("/orders", announced, keyed)).Status)
			assert.EqualValues(t, 0, strict.Runs.Load())
		}
	})
	t.Run("a second key", func(t *testing.T) {
		svc := Start(t, f, memstore.New(), OK(), Setup{}, nil)
		assert.Equal(t, 201, svc.Raw(asked("/orders", keyed, "Idempotency-Key: L\r\n")).Status)
		assert.True(t, svc.Raw(asked("/orders", keyed, "idempotency-key: M\r\n")).Replayed())
	})
	t.Run("a line of the fingerprint", func(t *testing.T) {
		svc := Start(t, f, memstore.New(), OK(), Setup{}, comparing(core.FingerprintConfig{Headers: []string{"X-Tenant"}}))
		assert.Equal(t, 201, svc.Raw(asked("/orders", keyed, "X-Tenant: a\r\n")).Status)
		assert.True(t, svc.Raw(asked("/orders", keyed, "X-Tenant: b\r\n")).Replayed())
		assert.Equal(t, 422, svc.Raw(asked("/orders", keyed+"X-Tenant: a\r\n", "")).Status)
	})
	t.Run("a scope", func(t *testing.T) {
		svc := Start(t, f, memstore.New(), OK(), Setup{Scope: "X-User"}, nil)
		assert.Equal(t, 401, svc.Raw(asked("/orders", keyed, "X-User: a\r\n")).Status)
		assert.Equal(t, 201, svc.Raw(asked("/orders", keyed+"X-User: a\r\n", "X-User: b\r\n")).Status)
		assert.True(t, svc.Raw(asked("/orders", keyed+"X-User: a\r\n", "")).Replayed())
	})
	t.Run("an age", func(t *testing.T) {
		svc := Start(t, f, memstore.New(), OK(), Setup{}, func(c *core.Config) { c.Key.MaxAge = time.Hour })
		sent := "Repeatability-First-Sent: " + time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\n"
		assert.Equal(t, 400, svc.Raw(asked("/orders", keyed, sent)).Status)
		assert.Equal(t, 201, svc.Raw(asked("/orders", keyed+sent, "")).Status)
	})
}

// keeper keeps all strings that functions of a config are given, beside copies.
type keeper struct {
	mu           sync.Mutex
	what         []string
	kept, copies []string
}

func (k *keeper) keep(what string, given ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range given {
		k.what, k.kept, k.copies = append(k.what, what), append(k.kept, s), append(k.copies, strings.Clone(s))
	}
}

func (k *keeper) request(what string, r *core.Request) {
	k.keep(what, r.Method, r.Path, r.RawQuery)
	for _, name := range []string{"Idempotency-Key", "X-Tenant", "User-Agent", "Content-Type", "Host"} {
		k.keep(what, r.Header(name)...)
	}
}

func (k *keeper) response(what string, r *core.Response) {
	for _, f := range r.Header {
		k.keep(what, f.Name, f.Value)
	}
	k.keep(what, r.Removed...)
}

// all sets every function of a config that is given strings.
func (k *keeper) all(c *core.Config) {
	hook := func(_ context.Context, e core.Event) { k.keep("hook", e.Method, e.Path, e.Record) }
	c.Scope = func(_ context.Context, r *core.Request) string { k.request("Scope", r); return r.Header("X-Tenant")[0] }
	c.Key.Aliases = []string{"X-Key"}
	c.Key.Accept = func(key string) (string, bool) { k.keep("Accept", key); return key, true }
	c.Key.MaxAge = time.Hour
	c.Key.SentAt = func(r *core.Request, key string) (time.Time, bool) {
		k.request("SentAt", r)
		k.keep("SentAt", key)
		return time.Now(), true
	}
	c.Fingerprint.Func = func(r *core.Request, body []byte) []byte { k.request("Func", r); return body }
	c.Keep.Policy = func(r *core.Response) core.Disposition { k.response("Policy", r); return core.DefaultPolicy(r) }
	c.Keep.OmitBody = func(r *core.Response) bool { k.response("OmitBody", r); return false }
	c.Limits.Quota = func(_ context.Context, scope string, r *core.Request) bool {
		k.keep("Quota", scope)
		k.request("Quota", r)
		return true
	}
	c.Hooks = core.Hooks{Begin: hook, Replay: hook, Conflict: hook, Mismatch: hook, Kept: hook, Failed: hook}
}

// FRM-08: a framework may use the memory of one request for the next.
func TestStringsThatAConfigsFunctionsAreGivenStayAsTheyAre(t *testing.T, f Framework) {
	for _, o := range []Setup{{}, {Scope: "X-Tenant"}} {
		t.Run(fmt.Sprint("scope by an option ", o.Scope != ""), func(t *testing.T) {
			k := &keeper{}
			svc := Start(t, f, memstore.New(), OK(), o, k.all)
			for i := range 20 {
				letter := string(rune('a' + i))
				for range 2 {
					svc.Send("POST", "/orders/"+letter+"?q="+letter, letter, "Idempotency-Key", strings.Repeat(letter, 9),
						"X-Tenant", strings.Repeat(letter, 5), "User-Agent", letter, "Content-Type", "text/"+letter)
				}
			}
			require.Greater(t, len(k.kept), 1000)
			for i := range k.kept {
				require.Equal(t, k.copies[i], k.kept[i], k.what[i])
			}
		})
	}
}

// FRM-08: the quota keeps the scopes that it is given as keys of a map. Each request has more header lines before X-Tenant than
// the last one, so on fasthttp, which uses its memory again, a scope that is not a copy would turn into another text.
func TestAQuotaCountsByTheScopeItWasGiven(t *testing.T, f Framework) {
	var mu sync.Mutex
	counts := map[string]int{}
	svc := Start(t, f, memstore.New(), OK(), Setup{Scope: "X-Tenant"}, func(c *core.Config) {
		c.Limits.Quota = func(_ context.Context, scope string, _ *core.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			counts[scope]++
			return counts[scope] <= 3
		}
	})
	refused := 0
	lines := []string{"X-Tenant", "aaaa"}
	for i := range 10 {
		if svc.Send("POST", "/", "B", append(lines, "Idempotency-Key", fmt.Sprint("K", i))...).Status == 429 {
			refused++
		}
		lines = append(lines, fmt.Sprint("A-Line-", i), "more") // which the client sends before
	}
	assert.Equal(t, 7, refused)
}
