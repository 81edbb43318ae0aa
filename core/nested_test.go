package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// FRM-06: an engine behind another one, on one record.

// notNested has the fields whose change makes an inner engine look for another record, or lets it find no key: it then does not
// meet the run around it.
var notNested = map[string]bool{"Secret": true, "Key.PerRoute": true, "Key.Header": true, "Key.Strict": true}

// eachNestedOption calls test for each option with which an inner engine meets the run around it.
func eachNestedOption(t *testing.T, test func(t *testing.T, name string, change func(*core.Config))) {
	for _, o := range options(t) {
		if !notNested[o.name] {
			t.Run(o.name, func(t *testing.T) { test(t, o.name, o.change) })
		}
	}
}

// holdsInside tells whether an engine that differs in an option has applied it by the time it stands aside, or never needs to.
func holdsInside(name string) bool {
	return name == "Scope" || name == "PreviousSecrets" || strings.HasPrefix(name, "Key.") || strings.HasPrefix(name, "Hooks.") || strings.HasPrefix(name, "Problems.")
}

func TestAnEngineBehindAnotherKeepsItsRulesOrRefusesTheFirstRequest(t *testing.T) {
	eachNestedOption(t, func(t *testing.T, name string, change func(*core.Config)) {
		f := newFixture(t)
		inner := f.with(change)
		inner.heard = &eventLog{}
		inner.Engine = inner.With(func(c *core.Config) {
			if !strings.HasPrefix(name, "Hooks.") {
				c.Hooks = inner.heard.hooks()
			}
		})
		for range 2 { // what is known of an engine does not change
			handled := false
			_, err := f.Do(ctx, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				result, err := inner.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) { handled = true; return nil, nil })
				require.NoError(t, err)
				if holdsInside(name) {
					assert.True(t, result.Bypassed, "%+v", result.Problem)
				} else {
					inner.refused(result, 500, "nested-engine")
					assert.Contains(t, string(result.Response.Body), "skip the route")
				}
				return &core.Response{Status: 503}, nil
			})
			require.NoError(t, err)
			assert.False(t, handled)
			if !holdsInside(name) {
				events := inner.heard.take()
				require.Len(t, events, 1)
				assert.Equal(t, "store-error", events[0].hook)
				assert.ErrorContains(t, events[0].Err, "Config."+name)
			}
		}
	})
}

func TestAConsumerInsideAnotherKeepsItsRulesOrFails(t *testing.T) {
	eachNestedOption(t, func(t *testing.T, name string, change func(*core.Config)) {
		f := newFixture(t)
		inner := f.with(change)
		f.consume(message, func(ctx context.Context) (receipt, error) {
			handled := false
			d := consumer.Consume(ctx, inner.consumer, message, func(context.Context) (receipt, error) { handled = true; return receipt{}, nil })
			assert.Equal(t, holdsInside(name), handled)
			if holdsInside(name) {
				assert.Equal(t, consumer.Done, d.Verdict)
			} else {
				assert.Equal(t, consumer.Failed, d.Verdict)
				assert.ErrorContains(t, d.Err, "Config."+name)
				assert.Contains(t, f.heard.names(), "store-error")
			}
			return receipt{}, nil
		})
	})
}

// inside returns the result of a request to an engine that differs from the one around it in what inner sets.
func inside(t *testing.T, outer, inner func(*core.Config)) (result core.Result) {
	f := newFixture(t, outer)
	cfg := f.Config()
	inner(&cfg)
	engine, err := core.New(cfg)
	require.NoError(t, err)
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		result, err = engine.Do(ctx, request("K", "B"), made)
		require.NoError(t, err)
		return made(ctx)
	})
	return result
}

// listed is a codec that cannot be compared with ==.
type listed struct {
	idle
	names  []string
	table  map[string]bool
	next   *listed
	hidden any
}

// Values are compared, also behind pointers to options and in types that == does not take.
func TestEqualOptionsOfTwoEnginesAreOneRule(t *testing.T) {
	allow := func(names ...string) func(*core.Config) { return func(c *core.Config) { c.Keep.AllowHeaders = names } }
	previous := func(f *core.FingerprintConfig) func(*core.Config) {
		return func(c *core.Config) { c.Fingerprint.Previous = f }
	}
	codec := func(codecs ...driver.Codec) func(*core.Config) {
		return func(c *core.Config) { c.Keep.Codecs = codecs }
	}
	blobs := func(b driver.Blobs) func(*core.Config) {
		return func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = b, 0 }
	}
	table := map[string]bool{}
	for name, c := range map[string]struct {
		outer, inner func(*core.Config)
		isOne        bool
	}{
		"no blobs in blobs":          {blobs(newShelf()), blobs(nil), false},
		"a codec with its table":     {codec(listed{table: table}), codec(listed{table: table}), true},
		"a codec with another":       {codec(listed{table: table}), codec(listed{table: map[string]bool{}}), false},
		"a codec that shares":        {codec(listed{next: &listed{}}), codec(listed{next: &listed{}}), false},
		"a codec that shows no list": {codec(listed{hidden: []int{1}}), codec(listed{hidden: []int{1}}), false},
		"equal lists":                {allow("Age", "Allow"), allow("Age", "Allow"), true},
		"another name":               {allow("Age", "Allow"), allow("Age", "Warning"), false},
		"another order":              {allow("Age", "Allow"), allow("Allow", "Age"), false},
		"a longer list":              {allow("Age"), allow("Age", "Allow"), false},
		"equal options before":       {previous(&core.FingerprintConfig{JSON: true}), previous(&core.FingerprintConfig{JSON: true}), true},
		"other options before":       {previous(&core.FingerprintConfig{JSON: true}), previous(&core.FingerprintConfig{SortQuery: true}), false},
		"no options before":          {previous(&core.FingerprintConfig{JSON: true}), previous(nil), false},
		"none, and then some":        {previous(nil), previous(&core.FingerprintConfig{JSON: true}), false},
		"equal codecs":               {codec(listed{names: []string{"a"}}), codec(listed{names: []string{"a"}}), true},
		"a codec of other values":    {codec(listed{names: []string{"a"}}), codec(listed{names: []string{"b"}}), false},
		"a codec of another type":    {codec(listed{}), codec(&idle{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.isOne, inside(t, c.outer, c.inner).Bypassed)
		})
	}
}

// Functions are compared as what they are, not by their code.
func TestTwoClosuresOfOneFunctionAreTwoRules(t *testing.T) {
	nested := func(outer, inner func(*core.Config)) core.Result { return inside(t, outer, inner) }
	releasing := func(status int) func(*core.Config) {
		return func(c *core.Config) { c.Keep.Policy = core.ReleaseOn(status) }
	}
	nothing := func(*core.Config) {}
	assert.True(t, nested(releasing(400), nothing).Bypassed, "the same closure")
	assert.Equal(t, "nested-engine", nested(releasing(400), releasing(422)).Problem)
	assert.True(t, nested(comparing(core.FingerprintConfig{Previous: &core.FingerprintConfig{JSON: true}}), nothing).Bypassed, "a copy of what a pointer points to")
	assert.True(t, nested(func(c *core.Config) { c.Keep.Codecs = []driver.Codec{idle{}} }, nothing).Bypassed)
	assert.True(t, nested(func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown }, func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown }).Bypassed)
}

// uncomparable is a Store that == panics for.
type uncomparable struct {
	driver.Store
	options []string
	seen    map[string]bool
}

// wrapper is comparable by its type, and not by what it holds.
type wrapper struct{ driver.Store }

func TestWithTakesStoresThatCannotBeCompared(t *testing.T) {
	store := uncomparable{memstore.New(), []string{"a"}, map[string]bool{}}
	for _, s := range []driver.Store{store, wrapper{store}, &store, wrapper{wrapper{store}}} {
		f := newFixture(t, func(c *core.Config) { c.Store = s; c.Keep.LocalReplays = 1 << 20 })
		f.send(request("K", "B"), made)
		f.replayed(f.with(required).send(request("K", "B"), made), 201, "made")
		other := f.with(func(c *core.Config) { c.Store = wrapper{uncomparable{Store: memstore.New()}} })
		f.answered(other.send(request("K", "B"), made), 201, "made")
	}
}

func required(c *core.Config) { c.Key.Required = true }

// The error says what to do.
func TestANestedEngineIsToldApartFromAStoreThatIsAway(t *testing.T) {
	f := newFixture(t)
	var heard error
	inner := f.With(func(c *core.Config) {
		c.Lease.OnUnknown = core.RefuseUnknown
		c.Hooks.StoreError = func(_ context.Context, e core.Event) { heard = e.Err }
	})
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		_, err := inner.Do(ctx, request("K", "B"), made)
		require.NoError(t, err)
		return made(ctx)
	})
	require.ErrorContains(t, heard, "Config.Lease.OnUnknown")
	assert.ErrorContains(t, heard, "let the outer engine Skip the route")
	assert.False(t, errors.Is(heard, driver.ErrUnreadable) || errors.Is(heard, core.ErrLost))
}
