package core_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// problemOf returns the problem that a refusal says, or none.
func problemOf(t *testing.T, result core.Result) (p core.Problem) {
	t.Helper()
	require.NotEmpty(t, result.Problem)
	require.NoError(t, json.Unmarshal(result.Response.Body, &p))
	return p
}

// by is the scope "who", or none.
func by(who string) func(*core.Config) {
	return func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return who } }
}

// PRB-06.
func TestARefusalNamesTheRecordOnceTheScopeIsKnown(t *testing.T) {
	tooLong := request("K", "B")
	tooLong.Body = func(int64) ([]byte, error) { return make([]byte, 2<<20), nil }
	cut := request("K", "B")
	cut.Body = func(int64) ([]byte, error) { return nil, errTest }
	for _, test := range []struct {
		code   string
		r      core.Request
		change func(*core.Config)
		named  bool
	}{
		{"key-missing", request("K", "B"), func(c *core.Config) { c.Key.Required, c.Key.Header = true, "X-Key" }, false},
		{"key-malformed", request("a,b", "B"), nothing, false},
		{"first-sent-unknown", request("K", "B"), func(c *core.Config) { c.Key.MaxAge = time.Minute }, false},
		{"scope-missing", request("K", "B"), by(""), false},
		{"quota-exceeded", request("K", "B"), func(c *core.Config) { c.Limits.Quota = refusesAll }, true},
		{"body-too-large", tooLong, nothing, true},
		{"body-unreadable", cut, nothing, true},
	} {
		p := problemOf(t, newFixture(t, test.change).send(test.r, made))
		assert.Equal(t, test.code, p.Code)
		assert.Equal(t, test.named, p.Instance != "", test.code)
	}
}

// PRB-06.
func TestTheInstanceIsTheRecordAndNotItsScopeOrKey(t *testing.T) {
	f := newFixture(t, by("ann"))
	instance := func(f *fixture, key string) (instance string) {
		held := f.hold(ctx, request(key, "B"), made)
		defer held.finish()
		instance = problemOf(t, f.send(request(key, "B"), made)).Instance
		assert.Equal(t, instance, problemOf(t, f.send(request(key, "other"), made)).Instance, "each refusal has the same one")
		return instance
	}
	of := instance(f, "K")
	record := ""
	for _, e := range f.heard.take() {
		record = e.Record
	}
	_, part, _ := strings.Cut(record, ".")
	assert.Equal(t, "urn:idem:"+part, of)
	part = strings.TrimPrefix(of, "urn:idem:")
	bytes, err := base64.RawURLEncoding.DecodeString(part)
	require.NoError(t, err)
	assert.Len(t, bytes, 24)
	assert.NotEqual(t, of, instance(f, "L"))
	assert.NotEqual(t, of, instance(f.with(by("bob")), "K"))
	assert.NotEqual(t, of, instance(f.with(func(c *core.Config) { c.Secret = []byte(oneSecret) }), "K"), "nobody without the secret can compare it")
}

// PRB-05: the same code says more once the engine knows of a run.
func TestANewKeyIsNotSafeAfterARun(t *testing.T) {
	said := func(t *testing.T, result core.Result, code string) *bool {
		p := problemOf(t, result)
		assert.Equal(t, code, p.Code)
		return p.SafeNewKey
	}
	inBubble(t, "the store is unavailable before a claim", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("begin", storetest.Before, 1)
		assert.Nil(t, said(t, f.send(request("K", "B"), made), "store-unavailable"))
		f.close()
	})
	inBubble(t, "the store is unavailable after the handler", func(t *testing.T) {
		f, running := silenced(t, made)
		f.store.Inject("complete", storetest.Before, always)
		result := running.finish()
		assert.Equal(t, new(false), said(t, result, "store-unavailable"))
		f.close()
	})
	inBubble(t, "the store is unavailable after a wait", func(t *testing.T) {
		f := newFixture(t, waiting(time.Minute))
		held := f.hold(ctx, request("K", "B"), made)
		waiter := f.later(ctx, request("K", "B"), made)
		f.store.Inject("begin", storetest.Before, always)
		held.finish()
		assert.Equal(t, new(false), said(t, (<-waiter).Result, "store-unavailable"))
		f.close()
	})
	inBubble(t, "too few copies", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Store = undurable{c.Store} })
		assert.Nil(t, said(t, f.send(request("K", "B"), made), "not-durable"))
		f.close()
	})
}

// undurable is a store whose claims have too few copies.
type undurable struct{ driver.Store }

func (undurable) Begin(context.Context, driver.Claim) (driver.Entry, error) {
	return driver.Entry{}, errors.Join(driver.ErrNotDurable, errTest)
}
