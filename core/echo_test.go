package core_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// KEY-21.

// echoes sets Keep.EchoKey.
func echoes(c *core.Config) { c.Keep.EchoKey = true }

func TestTheKeyComesBackInEachResponse(t *testing.T) {
	eachCache(t, func(t *testing.T, usual *fixture) {
		f := usual.with(echoes)
		own := answers(201, "made", line("idempotency-key", "of the handler"))
		for _, body := range []string{"B", "B", "other"} {
			result := f.send(request(`"a\"\\b"`, body), own)
			assert.Equal(t, []string{`"a\"\\b"`}, values(result.Response, "Idempotency-Key"))
		}
		for range 2 {
			usual.send(request("K", "B"), own)
			assert.Equal(t, []string{`"K"`}, values(f.send(request("K", "B"), own).Response, "Idempotency-Key"))
			assert.Empty(t, values(usual.send(request("K", "other"), own).Response, "Idempotency-Key"), "only where it is asked for")
		}
		for code, change := range map[string]func(*core.Config){
			"scope-missing": by(""), "quota-exceeded": func(c *core.Config) { c.Limits.Quota = refusesAll },
			"first-sent-unknown": func(c *core.Config) { c.Key.MaxAge = lease },
		} {
			refused := f.with(change).send(request("L", "B"), made)
			assert.Equal(t, code, refused.Problem)
			assert.Equal(t, []string{`"L"`}, values(refused.Response, "Idempotency-Key"))
		}
		assert.Empty(t, values(f.send(request("a,b", "B"), made).Response, "Idempotency-Key"), "it is no key")
		for _, asked := range []*fixture{f, f.with(func(c *core.Config) { c.Store = struct{ driver.Store }{c.Store} })} {
			assert.Empty(t, values(capture.Status(ctx, asked.Engine, request("K", "B")), "Idempotency-Key"))
		}
	})
}

func TestEachOfTwoRunsAtOnceEchoesItsOwnKey(t *testing.T) {
	f := newFixture(t, echoes)
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		fields := capture.EngineFields(ctx)
		f.send(request("L", "B"), func(ctx context.Context) (*core.Response, error) {
			assert.Equal(t, []core.Field{line(marker, ""), line("Idempotency-Key", `"L"`)}, capture.EngineFields(ctx))
			return made(ctx)
		})
		assert.Equal(t, []core.Field{line(marker, ""), line("Idempotency-Key", `"K"`)}, fields)
		return made(ctx)
	})
}

func TestARunWithoutAClaimEchoesItsKey(t *testing.T) {
	f := newFixture(t, echoes, func(c *core.Config) { c.DangerouslyFailOpen, c.Key.Header = true, "X-Key" })
	f.store.Inject("begin", storetest.Before, 1)
	result := f.send(skewed("X-Key"), func(ctx context.Context) (*core.Response, error) {
		assert.Equal(t, []core.Field{line(marker, ""), line("X-Key", `"Key"`), line("Idempotent-Unprotected", "true")}, capture.EngineFields(ctx))
		return made(ctx)
	})
	assert.Equal(t, []string{`"Key"`}, values(result.Response, "X-Key"))
	f.close()
}

// Of a key that no header field can carry, nothing is sent: neither a part of it, nor what the handler has set.
func TestAKeyThatNoFieldCanCarryIsNotEchoed(t *testing.T) {
	for _, made := range []string{"a\r\nSet-Cookie: b", "\u00fc", "\x00", "\x7f"} {
		f := newFixture(t, echoes, func(c *core.Config) { c.Key.Accept = func(string) (string, bool) { return made, true } })
		h := func(ctx context.Context) (*core.Response, error) {
			assert.Equal(t, []core.Field{line(marker, ""), line("Idempotency-Key", "")}, capture.EngineFields(ctx))
			return answers(201, "made", line("Idempotency-Key", "x"))(ctx)
		}
		assert.Empty(t, values(f.send(request("K", "B"), h).Response, "Idempotency-Key"))
		assert.Empty(t, values(f.send(request("K", "B"), h).Response, "Idempotency-Key"))
	}
}

func TestATaskEchoesNothing(t *testing.T) {
	f := newFixture(t, echoes)
	for range 2 {
		assert.Empty(t, values(f.doTask(job, made).Response, "Idempotency-Key"))
	}
}
