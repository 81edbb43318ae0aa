package core_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// FRM-06: an engine behind another one, on one record.

// optionChanges sets fields of Config to another value where one cannot tell from the type what that is.
var optionChanges = map[string]func(*core.Config){
	"Store":                func(c *core.Config) { c.Store = memstore.New() },
	"Scope":                func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return "single-tenant" } },
	"Secret":               nil, // is another record
	"Key.PerRoute":         nil,
	"Key.Header":           nil, // the request has no key then
	"Key.Methods":          func(c *core.Config) { c.Key.Methods = []string{"POST", "PUT"} },
	"Key.Strict":           nil, // as well
	"Key.SentAt":           nil, // goes with MaxAge
	"Key.MaxAge":           func(c *core.Config) { c.Key.MaxAge = time.Minute; c.Key.SentAt = sentNow },
	"Key.Aliases":          func(c *core.Config) { c.Key.Aliases = []string{"X-Key"} },
	"Key.Accept":           func(c *core.Config) { c.Key.Accept = func(key string) (string, bool) { return key, true } },
	"Key.MinLength":        func(c *core.Config) { c.Key.MinLength = 1 },
	"Fingerprint.Headers":  func(c *core.Config) { c.Fingerprint.Headers = []string{"Accept"} },
	"Fingerprint.Func":     func(c *core.Config) { c.Fingerprint.Func = v1 },
	"Fingerprint.Version":  func(c *core.Config) { c.Fingerprint.Func, c.Fingerprint.Version = v1, 2 },
	"Fingerprint.Previous": func(c *core.Config) { c.Fingerprint.Previous = &core.FingerprintConfig{JSON: true} },
	"Lease.MaxRun":         func(c *core.Config) { c.Lease.MaxRun = time.Hour },
	"Lease.OnUnknown":      func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown },
	"Wait.Timeout":         func(c *core.Config) { c.Wait.Timeout = time.Second },
	"Wait.MaxPerKey":       func(c *core.Config) { c.Wait.Timeout, c.Wait.MaxPerKey = time.Second, 2 },
	"Wait.Max":             func(c *core.Config) { c.Wait.Timeout, c.Wait.Max = time.Second, 2000 },
	"Keep.OmitBody":        func(c *core.Config) { c.Keep.OmitBody = core.OmitNoStore },
	"Keep.Policy":          func(c *core.Config) { c.Keep.Policy = core.KeepAll },
	"Keep.Marker":          func(c *core.Config) { c.Keep.Marker = "X-Again" },
	"Keep.AllowHeaders":    func(c *core.Config) { c.Keep.AllowHeaders = []string{"Set-Cookie"} },
	"Keep.DenyHeaders":     func(c *core.Config) { c.Keep.DenyHeaders = []string{"X-A"} },
	"Keep.Codecs":          func(c *core.Config) { c.Keep.Codecs = []driver.Codec{idle{}} },
	"Keep.Blobs":           func(c *core.Config) { c.Keep.Blobs = noBlobs{} },
	"Keep.BlobsFrom":       func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = noBlobs{}, 7 },
	"Limits.StoreTimeout":  func(c *core.Config) { c.Limits.StoreTimeout /= 2 },
	"Limits.Quota": func(c *core.Config) {
		c.Limits.Quota = func(context.Context, string, *core.Request) bool { return true }
	},
	"Marshal":          marshals,
	"Unmarshal":        marshals,
	"Problems.BaseURL": func(c *core.Config) { c.Problems.BaseURL = "https://example.com/" },
	"Problems.Status":  func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 423} },
	"Problems.Render":  func(c *core.Config) { c.Problems.Render = func(core.Problem) *core.Response { return nil } },
}

func sentNow(*core.Request, string) (time.Time, bool) { return time.Now(), true }

func marshals(c *core.Config) {
	c.Marshal = func(any) ([]byte, error) { return nil, nil }
	c.Unmarshal = func([]byte, any) error { return nil }
}

// idle is a codec that does nothing, and cannot be compared.
type idle struct{ _ []int }

func (idle) Encode(_ [32]byte, outcome []byte) []byte       { return outcome }
func (idle) Decode(_ [32]byte, kept []byte) ([]byte, error) { return kept, nil }

type noBlobs struct{}

func (noBlobs) Put(context.Context, string, []byte, time.Duration) error { return errTest }
func (noBlobs) Get(context.Context, string) ([]byte, error)              { return nil, errTest }
func (noBlobs) Delete(context.Context, string) error                     { return nil }

// eachOption calls test for each field of the groups of Config, with what changes it alone.
func eachOption(t *testing.T, test func(t *testing.T, name string, change func(*core.Config))) {
	visit := func(name string, index []int, of reflect.Type) {
		change, ok := optionChanges[name]
		if ok && change == nil {
			return
		}
		if !ok {
			change = func(c *core.Config) { another(t, name, reflect.ValueOf(c).Elem().FieldByIndex(index)) }
		}
		t.Run(name, func(t *testing.T) { test(t, name, change) })
	}
	config := reflect.TypeFor[core.Config]()
	for i := range config.NumField() {
		group := config.Field(i)
		if group.Type.Kind() != reflect.Struct {
			visit(group.Name, group.Index, group.Type)
			continue
		}
		for j := range group.Type.NumField() {
			visit(group.Name+"."+group.Type.Field(j).Name, []int{i, j}, group.Type.Field(j).Type)
		}
	}
}

// another gives a field another value.
func another(t *testing.T, name string, field reflect.Value) {
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(!field.Bool())
	case reflect.Int, reflect.Int64:
		step := int64(1)
		if field.Type() == reflect.TypeFor[time.Duration]() {
			step = int64(time.Second)
		}
		field.SetInt(field.Int() + step)
	case reflect.Func:
		require.Equal(t, reflect.TypeFor[core.Hook](), field.Type(), "%s is new: say in optionChanges what it may be", name)
		field.Set(reflect.ValueOf(core.Hook(func(context.Context, core.Event) {})))
	default:
		if name != "PreviousSecrets" {
			t.Fatalf("%s is new: say in optionChanges what it may be", name)
		}
	}
}

// holdsInside tells whether an engine that differs in an option has applied it by the time it stands aside, or never needs to.
func holdsInside(name string) bool {
	return name == "Scope" || name == "PreviousSecrets" || strings.HasPrefix(name, "Key.") || strings.HasPrefix(name, "Hooks.") || strings.HasPrefix(name, "Problems.")
}

func TestAnEngineBehindAnotherKeepsItsRulesOrRefusesTheFirstRequest(t *testing.T) {
	eachOption(t, func(t *testing.T, name string, change func(*core.Config)) {
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
	eachOption(t, func(t *testing.T, name string, change func(*core.Config)) {
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
			}
			return receipt{}, nil
		})
	})
}

// Functions are compared as what they are, not by their code.
func TestTwoClosuresOfOneFunctionAreTwoRules(t *testing.T) {
	nested := func(outer, inner func(*core.Config)) (result core.Result) {
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
