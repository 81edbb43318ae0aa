package core_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// What the options of Config change, each beside its default.

// named is a request whose header lines come under several names.
func named(lines map[string]string) core.Request {
	r := request("", "B")
	r.Header = func(name string) []string {
		if value, ok := lines[name]; ok {
			return []string{value}
		}
		return nil
	}
	return r
}

// KEY-20.
func TestAKeyMayComeUnderAnAliasButNotAsTwoKeys(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.Required, c.Key.Aliases = true, []string{"X-Idempotency-Key", "X-Key"} })
	f.sends(f.send(named(map[string]string{"X-Key": "K"}), made), 201, "made")
	for _, same := range []map[string]string{
		{"Idempotency-Key": `"K"`},
		{"Idempotency-Key": "K", "X-Idempotency-Key": "K"},
	} {
		f.replayed(f.send(named(same), made), 201, "made")
	}
	f.refused(f.send(named(map[string]string{"Idempotency-Key": "K", "X-Key": "L"}), made), 400, "key-repeated")
	f.refused(f.send(named(map[string]string{"Idempotency-Key": "K", "X-Key": ""}), made), 400, "key-empty")
	f.refused(f.send(named(nil), made), 400, "key-missing")
	f.ran(1)
}

// KEY-07, KEY-09.
func TestStrictTakesStructuredFieldStringsOnly(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.Strict = true })
	for _, bare := range []string{"8e03978e-40d5-43e8-bc93-6894a57f9324", ":YWJj:", "?1", "42", "token"} {
		f.refused(f.send(request(bare, "B"), made), 400, "key-malformed")
	}
	f.refused(f.send(request("", "B"), made), 400, "key-empty")
	f.ran(0)
	assert.Zero(t, f.calls())
	f.sends(f.send(request(`"K";v=1`, "B"), made), 201, "made")
}

// KEY-17, KEY-18.
func TestUUIDKeyTakesUUIDsInAnyCaseForTheSame(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.Accept = core.UUIDKey })
	const uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	for _, bad := range []string{"not-a-uuid", uuid[:35], uuid + "0", strings.ReplaceAll(uuid, "-", "0"), strings.Replace(uuid, "8", "g", 1), "-" + uuid[1:]} {
		f.refused(f.send(request(bad, "B"), made), 400, "key-refused")
	}
	f.ran(0)
	assert.Zero(t, f.calls(), "KEY-18: no look-up")
	f.sends(f.send(request(uuid, "B"), made), 201, "made")
	f.replayed(f.send(request(strings.ToUpper(uuid), "B"), made), 201, "made")
}

// KEY-18.
func TestAcceptRefusesAKeyAndCannotMakeItEmpty(t *testing.T) {
	for name, accept := range map[string]func(string) (string, bool){
		"refused":         func(key string) (string, bool) { return key, false },
		"accepted, empty": func(string) (string, bool) { return "", true },
	} {
		f := newFixture(t, func(c *core.Config) { c.Key.Accept = accept })
		result := f.send(request("K", "B"), made)
		assert.Equal(t, "key-refused", result.Problem, name)
		f.ran(0)
	}
}

// FPR-03.
func TestPerRouteMakesAKeyAnotherOnEachRoute(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.PerRoute = true })
	orders, refunds, patch := request("K", "B"), request("K", "B"), request("K", "B")
	orders.Path, refunds.Path, patch.Path, patch.Method = "/orders", "/refunds", "/orders", "PATCH"
	for _, r := range []core.Request{orders, refunds, patch} {
		f.sends(f.send(r, made), 201, "made")
	}
	f.ran(3)
	f.replayed(f.send(refunds, made), 201, "made")
	refunds.RawQuery = "a=1"
	f.refused(f.send(refunds, made), 422, "fingerprint-mismatch")
}

// RPL-30, RPL-28.
func TestOmitBodyKeepsTheStatusAndTheHeader(t *testing.T) {
	secret := answers(201, "secret", core.Field{Name: "Cache-Control", Value: "private, No-Store"}, core.Field{Name: "Location", Value: "/keys/1"})
	for name, c := range map[string]struct {
		omit    func(*core.Response) bool
		handler handler
		want    string
	}{
		"always":                  {func(*core.Response) bool { return true }, made, ""},
		"no-store":                {core.OmitNoStore, secret, ""},
		"no-store on another":     {core.OmitNoStore, made, "made"},
		"nothing, by default":     {nil, secret, "secret"},
		"an event stream's whole": {func(*core.Response) bool { return true }, answers(201, "data: 1", core.Field{Name: "Content-Type", Value: "text/event-stream"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c2 *core.Config) { c2.Keep.OmitBody = c.omit })
			first := f.send(request("K", "B"), c.handler)
			assert.NotEmpty(t, first.Response.Body, "the first client gets it")
			second := f.send(request("K", "B"), c.handler)
			f.replayed(second, 201, c.want)
			assert.Equal(t, c.want == "", value(second.Response, "Idempotent-Body") == "omitted")
			f.ran(1)
		})
	}
}

// RPL-33: the record is as without the option, so that another process replays it as it wants.
func TestAReplayWithoutItsBodyHasTheStatusForThat(t *testing.T) {
	for name, change := range map[string]func(*core.Config){
		"omitted on purpose":   func(c *core.Config) { c.Keep.OmitBody = func(*core.Response) bool { return true } },
		"too long":             func(c *core.Config) { c.Keep.MaxBody = 1 },
		"and replayed locally": func(c *core.Config) { c.Keep.MaxBody, c.Keep.LocalReplays = 1, 1<<20 },
	} {
		t.Run(name, func(t *testing.T) {
			usual := newFixture(t, change)
			f := usual.with(func(c *core.Config) { c.Keep.OmittedStatus = 413 })
			f.answered(f.send(request("K", "B"), made), 201, "made")
			for range 2 {
				replay := f.send(request("K", "B"), made)
				f.replayed(replay, 413, "")
				assert.Equal(t, "omitted", value(replay.Response, "Idempotent-Body"))
				usual.replayed(usual.send(request("K", "B"), made), 201, "")
			}
			f.send(request("empty", "B"), answers(204, ""))
			f.replayed(f.send(request("empty", "B"), made), 204, "")
			f.ran(2)
		})
	}
	whole := newFixture(t, func(c *core.Config) { c.Keep.OmittedStatus = 413 })
	whole.send(request("K", "B"), made)
	whole.replayed(whole.send(request("K", "B"), made), 201, "made")
}

// RPL-33: a task reads the status, and so does the verdict about a message.
func TestATaskWithoutItsBodyKeepsItsStatus(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Keep.MaxBody, c.Keep.OmittedStatus = 1, 413 })
	dead := func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.Keep)
		return answers(500, "dead")(ctx)
	}
	f.doTask(job, dead)
	f.replayed(f.doTask(job, made), 500, "")
}

// ERR-05.
func TestTheHandlersDecisionWinsOverTheStatus(t *testing.T) {
	decides := func(d core.Disposition, status int) handler {
		return func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.Retry)
			core.Decide(ctx, d) // the last word counts
			return &core.Response{Status: status, Body: []byte("decided")}, nil
		}
	}
	t.Run("a final 500 is kept", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), decides(core.Keep, 500))
		f.replayed(f.send(request("K", "B"), made), 500, "decided")
	})
	t.Run("a retryable 200 runs again, for the same request only", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), decides(core.Retry, 200))
		f.refused(f.send(request("K", "other"), made), 422, "fingerprint-mismatch")
		f.sends(f.send(request("K", "B"), made), 201, "made")
	})
	t.Run("a released 422 lets another request in", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), decides(core.Release, 422))
		f.sends(f.send(request("K", "other"), made), 201, "made")
	})
	t.Run("outside of a run it does nothing", func(*testing.T) { core.Decide(ctx, core.Keep) })
}

// LSE-08.
func TestFailOpenRunsWithoutProtectionAndSaysSo(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.DangerouslyFailOpen = true })
	for _, fault := range []storetest.Fault{storetest.Before, storetest.After} {
		f.store.Inject("begin", fault, 1)
		result := f.send(request("K", "B"), answers(201, "made", core.Field{Name: marker, Value: "true"}))
		f.answered(result, 201, "made")
		assert.Equal(t, "true", value(result.Response, "Idempotent-Unprotected"))
		assert.Empty(t, value(result.Response, marker))
		f.close()
	}
	assert.Equal(t, "store-error unprotected store-error unprotected", f.heard.names())
	f.ran(2)
	protected := f.send(request("K", "B"), made)
	assert.Empty(t, value(protected.Response, "Idempotent-Unprotected"), "the store is back")
}

func TestFailOpenPassesErrorsOnAndHidesNoDamage(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.DangerouslyFailOpen = true })
	f.store.Inject("begin", storetest.Before, 1)
	for name, c := range map[string]struct {
		response *core.Response
		err      error
		want     string
	}{
		"an error":                  {nil, errTest, "test"},
		"an error beside an answer": {&core.Response{Status: 200}, errTest, "test"},
		"neither":                   {nil, nil, "neither"},
		"an answer without status":  {&core.Response{}, nil, "neither"},
		"a status that is none":     {&core.Response{Status: 1000}, nil, "neither"},
	} {
		f.store.Inject("begin", storetest.Before, 1)
		result, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) { return c.response, c.err })
		require.ErrorContains(t, err, c.want, name)
		assert.Equal(t, core.Result{}, result, name)
		f.close()
	}

	damaged := newFixture(t, func(c *core.Config) {
		c.DangerouslyFailOpen, c.Store = true, scripted{begin: func(driver.Claim) (driver.Entry, error) { return driver.Entry{}, driver.ErrUnreadable }}
	})
	damaged.refused(damaged.send(request("K", "B"), made), 503, "record-unreadable")
	damaged.ran(0)
}

func TestChildKeyIsTheSameForTheSameStepOfTheSameOperation(t *testing.T) {
	f := newFixture(t)
	child := func(key, step string, status int) (made string) {
		f.send(request(key, "B"), func(ctx context.Context) (*core.Response, error) {
			made = core.ChildKey(ctx, step)
			return &core.Response{Status: status}, nil
		})
		return made
	}
	first := child("K", "charge", 500)
	assert.Regexp(t, `^[0-9a-f]{64}$`, first)
	assert.Equal(t, first, child("K", "charge", 500), "a retry of the run")
	assert.NotEqual(t, first, child("K", "mail", 200))
	assert.NotEqual(t, first, child("L", "charge", 200))
	assert.Empty(t, core.ChildKey(ctx, "charge"), "outside of a run")
}
