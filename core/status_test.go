package core_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/seal"
	"github.com/go-idem/idem/core/storetest"
)

// OPR-07.

// status asks what became of a key, and returns the HTTP status and the state, or the code of a problem.
func (f *fixture) status(r core.Request) (int, string) {
	f.tb.Helper()
	r.Method, r.Body = "GET", func(int64) ([]byte, error) { panic("the body is not read") }
	response := capture.Status(ctx, f.Engine, r)
	assert.Equal(f.tb, []string{"no-store"}, values(response, "Cache-Control"))
	var said struct{ State, Code string }
	require.NoError(f.tb, json.Unmarshal(response.Body, &said), "%s", response.Body)
	assert.NotContains(f.tb, string(response.Body), "made")
	assert.True(f.tb, said.State == "completed" || !strings.Contains(string(response.Body), `"status":2`), "%s", response.Body)
	return response.Status, said.State + said.Code
}

// storedStatus returns the status of the stored response, as a status response says it; 0 if it says none.
func (f *fixture) storedStatus(r core.Request) int {
	f.tb.Helper()
	r.Method = "GET"
	var said struct{ Status int }
	require.NoError(f.tb, json.Unmarshal(capture.Status(ctx, f.Engine, r).Body, &said))
	return said.Status
}

func TestStatusSaysTheStatusOfTheStoredResponse(t *testing.T) {
	codec, err := seal.New([]seal.Key{{ID: "2026", Secret: []byte(strings.Repeat("s", 32))}})
	require.NoError(t, err)
	sealed := func(c *core.Config) { c.Keep.Codecs = []driver.Codec{codec} }
	k := request("K", "B")
	for name, test := range map[string]struct {
		changes []func(*core.Config)
		fault   bool
		want    int
	}{
		"stored":             {want: 201},
		"sealed":             {changes: []func(*core.Config){sealed}, want: 201},
		"of a failing store": {fault: true},
		"hidden by OnReplay": {changes: []func(*core.Config){withOnReplay(sendsStored)}},
		"without an ability": {changes: []func(*core.Config){func(c *core.Config) { c.Store = onlyInspector{c.Store, c.Store.(driver.Inspector)} }}},
	} {
		t.Run(name, func(t *testing.T) {
			var failed []string
			f := newFixture(t, append(test.changes, func(c *core.Config) {
				c.Hooks.StoreCall = func(_ context.Context, e core.Event) {
					if e.Err != nil {
						failed = append(failed, e.Call)
					}
				}
			})...)
			f.send(k, made)
			if test.fault {
				f.store.Inject("outcome", storetest.Before, 1)
			}
			assert.Equal(t, test.want, f.storedStatus(k), "OPR-07")
			assert.Equal(t, test.fault, slices.Contains(failed, "Outcome"))
			f.is(k, 200, "completed")
		})
	}
	f := newFixture(t, sealed)
	f.send(k, made)
	other := f.with(func(c *core.Config) { c.Keep.Codecs = []driver.Codec{unknownCodec{}} })
	assert.Zero(t, other.storedStatus(k), "a form that this engine cannot read")
	gone := other.with(func(c *core.Config) {
		c.Store, c.Keep.Codecs = forgetful{f.store}, []driver.Codec{reader{t}}
	})
	assert.Zero(t, gone.storedStatus(k), "an outcome that has ended since the look")
}

// forgetful is a store whose outcomes end between a look and a read.
type forgetful struct{ *storetest.Faulty }

func (forgetful) Outcome(context.Context, [32]byte) ([]byte, error) { return nil, nil }

// reader is a codec that is given nothing to read.
type reader struct{ tb testing.TB }

func (r reader) Encode(_ [32]byte, outcome []byte) []byte { return outcome }

func (r reader) Decode([32]byte, []byte) ([]byte, error) {
	r.tb.Error("there is nothing to read")
	return nil, driver.ErrUnreadable
}

// onlyInspector is a store that cannot read an outcome.
type onlyInspector struct {
	driver.Store
	driver.Inspector
}

// unknownCodec cannot read what another codec has made.
type unknownCodec struct{ driver.Codec }

func (unknownCodec) Decode([32]byte, []byte) ([]byte, error) { return nil, driver.ErrUnreadable }

// is checks what status says.
func (f *fixture) is(r core.Request, status int, said string) {
	f.tb.Helper()
	gotStatus, got := f.status(r)
	assert.Equal(f.tb, said, got)
	assert.Equal(f.tb, status, gotStatus)
}

func TestStatusSaysEachStateAndChangesNothing(t *testing.T) {
	inBubble(t, "states", func(t *testing.T) {
		f := newFixture(t, retriesLate, onUnknown(core.RefuseUnknown))
		k := request("K", "B")
		f.is(k, 404, "absent")
		held := f.hold(ctx, k, answers(500, "failed"))
		f.is(k, 200, "running")
		assert.Equal(t, 2, f.store.Calls("look"), "one look for each")
		assert.Zero(t, f.store.Calls("outcome"), "there is none")
		held.finish()
		f.is(k, 200, "failed")
		f.send(k, func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return made(ctx)
		})
		time.Sleep(lease)
		calls := f.calls()
		for range 3 {
			f.is(k, 200, "unknown")
		}
		assert.Equal(t, calls, f.calls(), "it only looks")
		f.refused(f.send(k, made), 409, "outcome-unknown")
		require.NoError(t, f.Resolve(ctx, core.Task{Scope: core.SingleTenant(ctx, nil), Key: "K"}, &core.Response{Status: 201}))
		f.is(k, 200, "completed")
		time.Sleep(retention)
		f.is(k, 200, "expired")
		time.Sleep(retention)
		f.is(k, 404, "absent")
	})
}

func TestStatusSaysWhenToAskAgain(t *testing.T) {
	inBubble(t, "a tenth of the lease", func(t *testing.T) {
		f, r := newFixture(t), request("K", "B")
		held := f.hold(ctx, r, made)
		assert.Equal(t, []string{"3"}, values(capture.Status(ctx, f.Engine, r), "Retry-After"))
		held.finish()
		assert.Empty(t, values(capture.Status(ctx, f.Engine, r), "Retry-After"))
	})
}

func TestStatusIsOfTheCallersOwnKeys(t *testing.T) {
	f := newFixture(t, by("ann"))
	f.send(request("K", "B"), made)
	f.is(request("K", ""), 200, "completed")
	f.is(request(`"K"`, ""), 200, "completed")
	f.is(request("L", ""), 404, "absent")
	f.with(by("bob")).is(request("K", ""), 404, "absent")
	f.with(by("")).is(request("K", ""), 401, "scope-missing")
	f.is(request("a,b", ""), 400, "key-malformed")
	f.with(func(c *core.Config) { c.Key.Header = "X-Key" }).is(request("K", ""), 400, "key-missing")
	before := f.with(func(c *core.Config) { c.Secret, c.PreviousSecrets = []byte(oneSecret), [][]byte{nil} })
	before.is(request("K", ""), 200, "completed")
	route := f.with(func(c *core.Config) { c.Key.PerRoute = true })
	patch := request("P", "B")
	patch.Method = "PATCH"
	route.send(patch, made)
	route.is(patch, 200, "completed")
	patch.Path = "https://shop.example/orders"
	route.is(patch, 200, "completed") // FRM-07
	patch.Path = "/refunds"
	route.is(patch, 404, "absent")
	f.ran(2)
}

// releases leaves a record of a claim under which nothing has run, as a request does that finds its record under an earlier name.
func (f *fixture) releases(r core.Request) {
	f.tb.Helper()
	silent := f.with(func(c *core.Config) { c.Store = scripted{Store: f.store, begin: noReply} })
	silent.refused(silent.send(r, made), 503, "store-unavailable")
	silent.close()
}

// A status is that of the record which a request would find under any of its names.
func TestStatusLooksUnderEachNameOfAKey(t *testing.T) {
	absent := func(*fixture) {}
	released := func(f *fixture) { f.releases(request("K", "B")) }
	completed := func(f *fixture) { f.send(request("K", "B"), made) }
	for name, c := range map[string]struct {
		earlier, own func(*fixture)
		status       int
		state        string
	}{
		"an outcome under the earlier name":  {completed, absent, 200, "completed"},
		"and a release under the own one":    {completed, released, 200, "completed"},
		"a release under the earlier name":   {released, absent, 200, "failed"},
		"a release under the own name alone": {absent, released, 200, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, secrets(anotherSecret, oneSecret))
			c.earlier(f.with(secrets(oneSecret)))
			c.own(f.with(secrets(anotherSecret)))
			f.is(request("K", ""), c.status, c.state)
		})
	}
}

func TestStatusWithoutAnAnswerOfTheStoreIsAProblem(t *testing.T) {
	inBubble(t, "problems", func(t *testing.T) {
		f := newFixture(t)
		blind := f.with(func(c *core.Config) { c.Store = struct{ driver.Store }{c.Store} })
		blind.is(request("K", ""), 501, "status-unsupported")
		vanished := f.with(beginAnswers(driver.Entry{State: driver.Unknown}, nil))
		instance := problemOf(t, vanished.send(request("K", ""), made)).Instance
		assert.Contains(t, string(capture.Status(ctx, blind.Engine, request("K", "")).Body), instance, "PRB-06")
		broken := f.with(func(c *core.Config) { c.Store = looking{memstore.New(), driver.Record{}, driver.ErrUnreadable} })
		broken.is(request("K", ""), 503, "record-unreadable")
		for _, state := range []driver.State{driver.Unreadable, "of a later version"} {
			f.with(func(c *core.Config) { c.Store = looking{memstore.New(), driver.Record{State: state}, nil} }).is(request("K", ""), 503, "record-unreadable")
		}
		f.with(func(c *core.Config) { c.Store = looking{memstore.New(), driver.Record{}, errTest} }).is(request("K", ""), 503, "store-unavailable")
		hangs := f.with(func(c *core.Config) { c.Store = hanging{memstore.New()} })
		assert.Equal(t, storeTimeout, elapsed(func() { hangs.is(request("K", ""), 503, "store-unavailable") }))
	})
}

// looking is a store with one record.
type looking struct {
	*memstore.Store
	seen driver.Record
	err  error
}

func (l looking) Look(context.Context, [32]byte) (driver.Record, error) { return l.seen, l.err }

// hanging is a store that does not respond to Look.
type hanging struct{ *memstore.Store }

func (hanging) Look(ctx context.Context, _ [32]byte) (driver.Record, error) {
	<-ctx.Done()
	return driver.Record{}, ctx.Err()
}

func TestAPendingOutcomeIsNotCalledUnknown(t *testing.T) {
	inBubble(t, "pending", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.Before, always)
		f.store.Inject("extend", storetest.Before, always)
		f.send(request("K", "B"), made)
		time.Sleep(2 * lease)
		f.is(request("K", "B"), 200, "running")
		f.with(func(c *core.Config) { c.Store = f.inner }).is(request("K", "B"), 200, "unknown")
		f.close()
	})
}

// A commit whose response was lost is pending, and the store has its outcome.
func TestAnOutcomeThatIsStoredIsCalledCompletedWhileItIsPending(t *testing.T) {
	inBubble(t, "pending", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.After, always)
		f.send(request("K", "B"), made)
		time.Sleep(time.Second)
		f.is(request("K", "B"), 200, "completed")
		f.close()
	})
}

func TestARenderedProblemOfAStatusIsNotStoredByCaches(t *testing.T) {
	one := &core.Response{Status: 418, Header: []core.Field{line("X-A", "a")}}
	f := newFixture(t, by(""), func(c *core.Config) { c.Problems.Render = func(core.Problem) *core.Response { return one } })
	for range 2 {
		response := capture.Status(ctx, f.Engine, request("K", ""))
		assert.Equal(t, []core.Field{line("X-A", "a"), line("Cache-Control", "no-store")}, response.Header)
	}
	assert.Len(t, one.Header, 1)
}
