package core_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func validConfig() core.Config { return core.Config{Store: memstore.New(), Scope: core.SingleTenant} }

// badFields returns the fields that an error of New names, in order.
func badFields(t *testing.T, err error) (fields []string) {
	t.Helper()
	var first *core.ConfigError
	require.ErrorAs(t, err, &first)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%T is not joined", err)
	for _, e := range joined.Unwrap() {
		var bad *core.ConfigError
		require.ErrorAs(t, e, &bad)
		assert.NotEmpty(t, bad.Reason)
		assert.Contains(t, err.Error(), "idem: Config."+bad.Field+": "+bad.Reason)
		fields = append(fields, bad.Field)
	}
	assert.Equal(t, first.Field, fields[0])
	return fields
}

func TestNewReportsEveryBadFieldAtOnce(t *testing.T) {
	_, err := core.New(core.Config{
		Key:      core.KeyConfig{Header: "no header", Methods: []string{}, MinLength: -1, MaxLength: -2},
		Lease:    core.LeaseConfig{Duration: time.Millisecond},
		Keep:     core.KeepConfig{Retention: time.Microsecond, MaxBody: -1, Marker: "no header"},
		Limits:   core.LimitsConfig{RequestBody: -1, StoreTimeout: -1},
		Problems: core.ProblemConfig{BaseURL: "relative", Status: map[string]int{"no-code": 200}},
	})
	assert.Equal(t, []string{
		"Store", "Scope", "Key.Header", "Key.Methods", "Key.MinLength", "Key.MaxLength", "Lease.Duration", "Keep.Retention",
		"Keep.MaxBody", "Keep.Marker", "Limits.RequestBody", "Limits.StoreTimeout", "Problems.BaseURL", "Problems.Status", "Problems.Status",
	}, badFields(t, err))
}

func TestNewRefusesEachBadValue(t *testing.T) {
	for name, c := range map[string]struct {
		field  string
		change func(*core.Config)
	}{
		"no store":                         {"Store", func(c *core.Config) { c.Store = nil }},
		"SCP-03 no scope":                  {"Scope", func(c *core.Config) { c.Scope = nil }},
		"header with a colon":              {"Key.Header", func(c *core.Config) { c.Key.Header = "Key:" }},
		"no methods":                       {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{} }},
		"MTH-01 GET":                       {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"POST", "GET"} }},
		"MTH-01 HEAD":                      {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"HEAD"} }},
		"MTH-01 OPTIONS":                   {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"OPTIONS"} }},
		"MTH-01 TRACE":                     {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"TRACE"} }},
		"method in lower case":             {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"post"} }},
		"method that is none":              {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"PO ST"} }},
		"empty method":                     {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{""} }},
		"negative length":                  {"Key.MinLength", func(c *core.Config) { c.Key.MinLength = -1 }},
		"lengths crossed":                  {"Key.MaxLength", func(c *core.Config) { c.Key.MinLength, c.Key.MaxLength = 20, 19 }},
		"minimum over the default maximum": {"Key.MaxLength", func(c *core.Config) { c.Key.MinLength = 256 }},
		"short lease":                      {"Lease.Duration", func(c *core.Config) { c.Lease.Duration = 10*time.Millisecond - 1 }},
		"retention as short as the lease":  {"Keep.Retention", func(c *core.Config) { c.Keep.Retention = 30 * time.Second }},
		"lease as long as the default":     {"Keep.Retention", func(c *core.Config) { c.Lease.Duration = 24 * time.Hour }},
		"negative retention":               {"Keep.Retention", func(c *core.Config) { c.Keep.Retention = -1 }},
		"negative body":                    {"Keep.MaxBody", func(c *core.Config) { c.Keep.MaxBody = -1 }},
		"alias with a space":               {"Key.Aliases", func(c *core.Config) { c.Key.Aliases = []string{"X Y"} }},
		"alias that is the header":         {"Key.Aliases", func(c *core.Config) { c.Key.Aliases = []string{"idempotency-KEY"} }},
		"alias that is the marker":         {"Keep.Marker", func(c *core.Config) { c.Key.Aliases = []string{"idempotent-replayed"} }},
		"marker with a space":              {"Keep.Marker", func(c *core.Config) { c.Keep.Marker = "X Y" }},
		"marker that is the key":           {"Keep.Marker", func(c *core.Config) { c.Keep.Marker = "idempotency-KEY" }},
		"negative limit":                   {"Limits.RequestBody", func(c *core.Config) { c.Limits.RequestBody = -1 }},
		"limit that can not be exceeded":   {"Limits.RequestBody", func(c *core.Config) { c.Limits.RequestBody = math.MaxInt64 }},
		"negative timeout":                 {"Limits.StoreTimeout", func(c *core.Config) { c.Limits.StoreTimeout = -1 }},
		"timeout over half a lease":        {"Limits.StoreTimeout", func(c *core.Config) { c.Limits.StoreTimeout = 15*time.Second + 1 }},
		"relative URL":                     {"Problems.BaseURL", func(c *core.Config) { c.Problems.BaseURL = "/problems#" }},
		"URL that is none":                 {"Problems.BaseURL", func(c *core.Config) { c.Problems.BaseURL = "https://%" }},
		"unknown code":                     {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"conflict": 409} }},
		"status of a success":              {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 202} }},
		"status that nobody knows":         {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 499} }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			c.change(&cfg)
			engine, err := core.New(cfg)
			assert.Nil(t, engine)
			require.Error(t, err)
			assert.Equal(t, []string{c.field}, badFields(t, err))
		})
	}
}

func TestNewAcceptsValuesAtTheirBounds(t *testing.T) {
	for name, change := range map[string]func(*core.Config){
		"shortest lease":    func(c *core.Config) { c.Lease.Duration, c.Keep.Retention = 10*time.Millisecond, 10*time.Millisecond+1 },
		"longest timeout":   func(c *core.Config) { c.Limits.StoreTimeout = 15 * time.Second },
		"one length":        func(c *core.Config) { c.Key.MinLength, c.Key.MaxLength = 36, 36 },
		"unusual methods":   func(c *core.Config) { c.Key.Methods = []string{"PUT", "DELETE", "MERGE", "M-SEARCH"} },
		"URN":               func(c *core.Config) { c.Problems.BaseURL = "urn:problem:" },
		"overridden status": func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 425, "store-unavailable": 500} },
		"every byte":        func(c *core.Config) { c.Limits.RequestBody = math.MaxInt64 - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			change(&cfg)
			_, err := core.New(cfg)
			assert.NoError(t, err)
		})
	}
}

func TestDefaultsAreWhatTheDocumentationSays(t *testing.T) {
	engine, err := core.New(validConfig())
	require.NoError(t, err)
	got := engine.Config()
	assert.Equal(t, core.KeyConfig{Header: "Idempotency-Key", Methods: []string{"POST", "PATCH"}, MinLength: 1, MaxLength: 255}, got.Key)
	assert.Equal(t, core.LeaseConfig{Duration: 30 * time.Second}, got.Lease)
	assert.Equal(t, core.LimitsConfig{RequestBody: 1 << 20, StoreTimeout: time.Second}, got.Limits)
	assert.Equal(t, "https://github.com/go-idem/idem/blob/main/docs/problems.md#", got.Problems.BaseURL)
	assert.Empty(t, got.Problems.Status)
	assert.Nil(t, got.Problems.Render)
	assert.Equal(t, core.Retry, got.Keep.Policy(&core.Response{Status: 500}), "DefaultPolicy")
	got.Keep.Policy = nil
	assert.Equal(t, core.KeepConfig{Retention: 24 * time.Hour, MaxBody: 1 << 20, Marker: "Idempotent-Replayed"}, got.Keep)
	assert.Equal(t, core.Hooks{}, got.Hooks)
}

func TestTimeoutIsAThirdOfAShortLease(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 100 * time.Millisecond, 3 * time.Second: time.Second, time.Minute: time.Second,
	} {
		cfg := validConfig()
		cfg.Lease.Duration = lease
		engine, err := core.New(cfg)
		require.NoError(t, err)
		assert.Equal(t, want, engine.Config().Limits.StoreTimeout, "lease %v", lease)

		base, err := core.New(validConfig())
		require.NoError(t, err)
		if !assert.NotPanics(t, func() { engine = base.With(func(c *core.Config) { c.Lease.Duration = lease }) }, "With, lease %v", lease) {
			continue
		}
		assert.Equal(t, want, engine.Config().Limits.StoreTimeout, "With, lease %v", lease)
	}
}

func TestConfigIsACopy(t *testing.T) {
	given := validConfig()
	given.Key.Methods, given.Key.Aliases = []string{"POST"}, []string{"X-Key"}
	given.Problems.Status = map[string]int{"in-progress": 423}
	engine, err := core.New(given)
	require.NoError(t, err)
	got := engine.Config()
	for _, c := range []*core.Config{&given, &got} {
		c.Key.Methods[0], c.Key.Aliases[0] = "PUT", "Y-Key"
		c.Problems.Status["in-progress"] = 425
		c.Problems.Status["no-code"] = 1
		c.Key.Header = "X"
	}
	assert.Equal(t, "Idempotency-Key", engine.Config().Key.Header)
	assert.Equal(t, []string{"POST"}, engine.Config().Key.Methods)
	assert.Equal(t, []string{"X-Key"}, engine.Config().Key.Aliases)
	assert.Equal(t, map[string]int{"in-progress": 423}, engine.Config().Problems.Status)
	for header, bypassed := range map[string]bool{"POST": false, "PUT": true} {
		r := request("K", "")
		r.Method = header
		result, err := engine.Do(context.Background(), r, made)
		require.NoError(t, err)
		assert.Equal(t, bypassed, result.Bypassed, header)
	}
}

// plain leaves out the fields that testify can not compare.
func plain(c core.Config) core.Config {
	c.Scope, c.Keep.Policy = nil, nil
	return c
}

func TestNewOfConfigGivesTheSameEngine(t *testing.T) {
	for _, cfg := range []core.Config{validConfig(), {
		Store:    memstore.New(),
		Scope:    core.SingleTenant,
		Key:      core.KeyConfig{Header: "X-Key", Required: true, Methods: []string{"PUT"}, MinLength: 20, MaxLength: 40},
		Lease:    core.LeaseConfig{Duration: time.Second},
		Keep:     core.KeepConfig{Retention: time.Minute, MaxBody: 7, Marker: "X-Marker"},
		Limits:   core.LimitsConfig{RequestBody: 9, StoreTimeout: time.Millisecond},
		Problems: core.ProblemConfig{BaseURL: "urn:x:", Status: map[string]int{"in-progress": 423}},
	}} {
		engine, err := core.New(cfg)
		require.NoError(t, err)
		again, err := core.New(engine.Config())
		require.NoError(t, err)
		assert.Equal(t, plain(engine.Config()), plain(again.Config()))
	}
}

func TestWithDerivesAndLeavesTheFirstAlone(t *testing.T) {
	f := newFixture(t)
	strict := f.with(func(c *core.Config) {
		c.Key.Required = true
		c.Key.Methods = append(c.Key.Methods, "PUT")
		c.Key.Methods[0] = "DELETE"
	})
	assert.Equal(t, []string{"POST", "PATCH"}, f.Config().Key.Methods)
	assert.Equal(t, []string{"DELETE", "PATCH", "PUT"}, strict.Config().Key.Methods)

	keyless := core.Request{Method: "PATCH", Header: func(string) []string { return nil }}
	assert.True(t, f.send(keyless, made).Bypassed)
	f.refused(strict.send(keyless, made), 400, "key-missing")

	patch := request("K", "B")
	patch.Method = "PATCH"
	f.answered(f.send(patch, made), 201, "made")
	f.replayed(strict.send(patch, made), 201, "made")
}

func TestWithPanicsWithEveryBadField(t *testing.T) {
	f := newFixture(t)
	defer func() {
		err, ok := recover().(error)
		require.True(t, ok, "With must panic with the error of New")
		assert.Equal(t, []string{"Store", "Keep.MaxBody"}, badFields(t, err))
	}()
	f.With(func(c *core.Config) { c.Store, c.Keep.MaxBody = nil, -1 })
}

func TestConfigErrorNamesItsField(t *testing.T) {
	err := error(&core.ConfigError{Field: "Lease.Duration", Reason: "is odd"})
	assert.EqualError(t, err, "idem: Config.Lease.Duration: is odd")
	assert.False(t, errors.Is(err, core.ErrLost))
}
