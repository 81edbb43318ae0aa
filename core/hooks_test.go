package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// happenings are what can happen to K, and the hooks that hear of it, in order.
var happenings = map[string]struct {
	want   string
	happen func(t *testing.T, f *fixture)
}{
	"bypass":   {"", func(t *testing.T, f *fixture) { f.send(changed(keys()), made) }},
	"bad key":  {"", func(t *testing.T, f *fixture) { f.send(changed(keys(`"`)), made) }},
	"run":      {"begin kept", func(t *testing.T, f *fixture) { f.send(changed(), made) }},
	"5xx":      {"begin failed", func(t *testing.T, f *fixture) { f.send(changed(), answers(500, "")) }},
	"released": {"begin failed", func(t *testing.T, f *fixture) { f.send(changed(), answers(429, "")) }},
	"replay": {"begin kept replay replay", func(t *testing.T, f *fixture) {
		for range 3 {
			f.send(changed(), made)
		}
	}},
	"mismatch": {"begin kept mismatch", func(t *testing.T, f *fixture) {
		f.send(changed(), made)
		f.send(changed(body("B'", nil)), made)
	}},
	"conflict": {"begin conflict kept", func(t *testing.T, f *fixture) {
		running := f.hold(ctx, changed(), made)
		f.send(changed(), made)
		running.finish()
	}},
	"error": {"begin failed", func(t *testing.T, f *fixture) {
		_, err := f.do(ctx, changed(), func(context.Context) (*core.Response, error) { return nil, errTest })
		assert.Error(t, err)
	}},
	"panic": {"begin failed", func(t *testing.T, f *fixture) {
		assert.Panics(t, func() {
			_, _ = f.do(ctx, changed(), func(context.Context) (*core.Response, error) { panic(errTest) })
		})
	}},
	"begin without an answer": {"store-error", func(t *testing.T, f *fixture) {
		f.store.Inject("begin", storetest.Before, 1)
		f.send(changed(), made)
	}},
	"complete without an answer": {"begin store-error store-error kept", func(t *testing.T, f *fixture) {
		f.store.Inject("complete", storetest.Before, 2)
		f.send(changed(), made)
	}},
	"one extension without an answer": {"begin store-error kept", func(t *testing.T, f *fixture) {
		f.store.Inject("extend", storetest.Before, 1)
		running := f.hold(ctx, changed(), made)
		time.Sleep(lease / 2)
		running.finish()
	}},
	// A silent store is tried at a third of the lease and then at each tenth of it.
	"silence": {"begin" + strings.Repeat(" store-error", 7) + " lost kept", func(t *testing.T, f *fixture) {
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, changed(), made)
		time.Sleep(2 * lease)
		running.finish()
	}},
	"takeover": {"begin" + strings.Repeat(" store-error", 7) + " lost takeover begin kept", func(t *testing.T, f *fixture) {
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, changed(), made)
		time.Sleep(lease)
		synctest.Wait()
		f.send(changed(), made)
		f.refused(running.finish(), 409, "claim-lost")
	}},
}

func TestHooksHearWhatHappens(t *testing.T) {
	for name, c := range happenings {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			c.happen(t, f)
			f.close()
			assert.Equal(t, c.want, f.heard.names())
		})
	}
}

func TestHooksAreOptional(t *testing.T) {
	for name, c := range happenings {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, func(c *core.Config) { c.Hooks = core.Hooks{} })
			c.happen(t, f)
			f.close()
			assert.Empty(t, f.heard.names())
		})
	}
}

// losesClaims is a store that says of each claim, once it is given, that it is lost.
func losesClaims(c *core.Config) {
	c.Store = scripted{
		Store:    c.Store,
		extend:   func(context.Context, driver.Claim) error { return lostBecause("extend says so") },
		complete: func(driver.Claim) error { return lostBecause("complete says so") },
	}
}

func TestLossIsHeardOnce(t *testing.T) {
	stream := core.Response{Status: 200, Sent: true, Unfinished: true, Omitted: true}
	for name, c := range map[string]struct {
		runs     time.Duration
		response core.Response
		says     string
	}{
		"while the handler runs":                   {lease / 2, core.Response{Status: 201}, "extend says so"},
		"when it has ended":                        {0, core.Response{Status: 201}, "complete says so"},
		"while the handler of a stream runs":       {lease / 2, stream, "extend says so"},
		"when it has ended and its stream goes on": {0, stream, "complete says so"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, losesClaims)
			result := f.send(changed(), func(ctx context.Context) (*core.Response, error) {
				time.Sleep(c.runs)
				return &c.response, nil
			})
			if !c.response.Sent {
				f.refused(result, 409, "claim-lost")
			}
			events := f.heard.take()
			require.Len(t, events, 2)
			assert.Equal(t, "lost", events[1].hook)
			assert.ErrorIs(t, events[1].Err, core.ErrLost)
			assert.ErrorContains(t, events[1].Err, c.says)
		})
	}
	t.Run("by the begin itself", func(t *testing.T) {
		f := newFixture(t, beginAnswers(driver.Entry{}, lostBecause("begin says so")))
		f.send(changed(), made)
		assert.Equal(t, "lost", f.heard.names())
	})
}

func TestEventsSayWhatHappened(t *testing.T) {
	f := newFixture(t)
	f.send(changed(), answers(503, ""))
	f.send(changed(), made)
	f.send(changed(), made)
	f.send(changed(method("PATCH"), path("/other")), made)
	f.store.Inject("begin", storetest.Before, 1)
	f.send(changed(), made)
	f.close()

	events := f.heard.take()
	require.Len(t, events, 7)
	record := events[0].Record
	assert.Regexp(t, `^[\w-]{11}\.[\w-]{32}$`, record)
	first, second := events[0].Fence, events[2].Fence
	assert.Positive(t, first)
	assert.Greater(t, second, first)
	for i, want := range []struct {
		hook string
		core.Event
		err string
	}{
		{"begin", core.Event{Method: "POST", Path: "/orders", Fence: first, Attempt: 1}, ""},
		{"failed", core.Event{Method: "POST", Path: "/orders", Fence: first, Attempt: 1, Status: 503}, "status 503"},
		{"begin", core.Event{Method: "POST", Path: "/orders", Fence: second, Attempt: 2}, ""},
		{"kept", core.Event{Method: "POST", Path: "/orders", Fence: second, Attempt: 2, Status: 201}, ""},
		{"replay", core.Event{Method: "POST", Path: "/orders", Status: 201}, ""},
		{"mismatch", core.Event{Method: "PATCH", Path: "/other"}, ""},
		{"store-error", core.Event{Method: "POST", Path: "/orders"}, storetest.ErrInjected.Error()},
	} {
		got := events[i]
		assert.Equal(t, want.hook, got.hook)
		if want.err == "" {
			assert.NoError(t, got.Err)
		} else {
			assert.EqualError(t, got.Err, want.err)
		}
		assert.Equal(t, want.hook == "kept" || want.hook == "failed", got.Took > 0, want.hook)
		assert.Equal(t, want.hook == "kept" || want.hook == "replay", got.Size > 0, want.hook)
		want.Record, got.Err, got.Took, got.Size = record, nil, 0, 0
		assert.Equal(t, want.Event, got.Event, want.hook)
	}
}

// A hook may write what it hears into a log that everybody reads.
func TestEventsCarryNoSecrets(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.MinLength = len("secret-key") })
	secret := changed(keys("secret-key"), scope("secret-scope"), query("token=secret-query"), body("secret-body", nil))
	ends := errors.New("secret-error")
	_, err := f.do(ctx, secret, func(context.Context) (*core.Response, error) { return nil, ends })
	assert.Equal(t, ends, err)
	passes(t, ends, func() {
		_, _ = f.do(ctx, secret, func(context.Context) (*core.Response, error) { panic(ends) })
	})
	f.send(secret, answers(500, "secret-answer"))
	running := f.hold(ctx, secret, answers(200, "secret-answer", core.Field{Name: "X-Secret", Value: "secret-header"}))
	f.send(secret, made)
	running.finish()
	f.send(secret, made)
	body("another secret-body", nil)(&secret)
	f.send(secret, made)

	events := f.heard.take()
	assert.Len(t, events, 11)
	for _, e := range events {
		assert.NotContains(t, fmt.Sprintf("%+v", e.Event), "secret", e.hook)
	}
}

func TestHooksHearUnderAContextThatOutlivesTheClient(t *testing.T) {
	inBubble(t, "leaves", func(t *testing.T) {
		f := newFixture(t)
		client, leave := context.WithCancel(context.WithValue(ctx, tenant{}, "T"))
		running := f.hold(client, changed(), made)
		leave()
		running.finish()
		events := f.heard.take()
		assert.Len(t, events, 2)
		for _, e := range events {
			assert.NoError(t, e.ctx.Err(), e.hook)
			assert.Equal(t, "T", e.ctx.Value(tenant{}), e.hook)
		}
	})
}
