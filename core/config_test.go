package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
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
		"Unmarshal alone":                  {"Marshal", func(c *core.Config) { c.Unmarshal = json.Unmarshal }},
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
		"RPL-33 redirect without a body":   {"Keep.OmittedStatus", func(c *core.Config) { c.Keep.OmittedStatus = 303 }},
		"RPL-33 retry without a body":      {"Keep.OmittedStatus", func(c *core.Config) { c.Keep.OmittedStatus = 425 }},
		"RPL-33 failure without a body":    {"Keep.OmittedStatus", func(c *core.Config) { c.Keep.OmittedStatus = 500 }},
		"RPL-33 status that nobody knows":  {"Keep.OmittedStatus", func(c *core.Config) { c.Keep.OmittedStatus = 499 }},
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
		"URL that ends a link":             {"Problems.BaseURL", func(c *core.Config) { c.Problems.BaseURL = `https://example.com/>; rel="next", <` }},
		"URL with a space":                 {"Problems.BaseURL", func(c *core.Config) { c.Problems.BaseURL = "https://example.com/my problems#" }},
		"URL in other letters":             {"Problems.BaseURL", func(c *core.Config) { c.Problems.BaseURL = "https://example.com/fehler/ü#" }},
		"unknown code":                     {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"conflict": 409} }},
		"status of a redirect":             {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 308} }},
		"status of a success":              {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 202} }},
		"status that nobody knows":         {"Problems.Status", func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 499} }},
		"short secret":                     {"Secret", func(c *core.Config) { c.Secret = []byte("fifteen letters") }},
		"secret of zeros":                  {"Secret", func(c *core.Config) { c.Secret = make([]byte, 32) }},
		"store that is a nil pointer":      {"Store", func(c *core.Config) { c.Store = (*memstore.Store)(nil) }},
		"blobs that are a nil pointer":     {"Keep.Blobs", func(c *core.Config) { c.Keep.Blobs = (*shelf)(nil) }},
		"codec that is a nil pointer":      {"Keep.Codecs", func(c *core.Config) { c.Keep.Codecs = []driver.Codec{(*idle)(nil)} }},
		"timeout that nothing meets":       {"Limits.StoreTimeout", func(c *core.Config) { c.Limits.StoreTimeout = time.Nanosecond }},
		"lease over a year": {"Lease.Duration", func(c *core.Config) {
			c.Lease.Duration, c.Keep.Retention = 365*24*time.Hour+1, 2*365*24*time.Hour
		}},
		"MTH-01 QUERY":                   {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"QUERY"} }},
		"MTH-01 PROPFIND":                {"Key.Methods", func(c *core.Config) { c.Key.Methods = []string{"PROPFIND"} }},
		"FPR-19 length as fingerprint":   {"Fingerprint.Headers", func(c *core.Config) { c.Fingerprint.Headers = []string{"Content-Length"} }},
		"FPR-19 framing as fingerprint":  {"Fingerprint.Headers", func(c *core.Config) { c.Fingerprint.Headers = []string{"transfer-encoding"} }},
		"FPR-19 trailer as fingerprint":  {"Fingerprint.Headers", func(c *core.Config) { c.Fingerprint.Headers = []string{"Trailer"} }},
		"header of the request's time":   {"Key.Header", func(c *core.Config) { c.Key.Header = "repeatability-first-sent" }},
		"alias that answers carry":       {"Key.Aliases", func(c *core.Config) { c.Key.Aliases = []string{"Idempotent-Body"} }},
		"marker that answers carry":      {"Keep.Marker", func(c *core.Config) { c.Keep.Marker = "Idempotent-Unprotected" }},
		"negative age":                   {"Key.MaxAge", func(c *core.Config) { c.Key.MaxAge = -1 }},
		"negative late retry":            {"Keep.LateRetry", func(c *core.Config) { c.Keep.LateRetry = -1 }},
		"late retry of more than a life": {"Keep.LateRetry", func(c *core.Config) { c.Keep.LateRetry = 101 * 365 * 24 * time.Hour }},
		"short wait":                     {"Wait.Timeout", func(c *core.Config) { c.Wait.Timeout = time.Millisecond - 1 }},
		"long wait":                      {"Wait.Timeout", func(c *core.Config) { c.Wait.Timeout = 101 * 365 * 24 * time.Hour }},
		"nobody may wait for a key":      {"Wait.MaxPerKey", func(c *core.Config) { c.Wait = core.WaitConfig{Timeout: time.Second, MaxPerKey: -1, Max: 1} }},
		"fingerprint of no header":       {"Fingerprint.Headers", func(c *core.Config) { c.Fingerprint.Headers = []string{"Accept:"} }},
		"fingerprint with two pasts": {"Fingerprint.Previous", func(c *core.Config) {
			c.Fingerprint.Previous = &core.FingerprintConfig{Previous: &core.FingerprintConfig{}}
		}},
		"allowed line that is none": {"Keep.AllowHeaders", func(c *core.Config) { c.Keep.AllowHeaders = []string{"Set Cookie"} }},
		"RPL-12 allowed hop":        {"Keep.AllowHeaders", func(c *core.Config) { c.Keep.AllowHeaders = []string{"Connection"} }},
		"RPL-11 allowed date":       {"Keep.AllowHeaders", func(c *core.Config) { c.Keep.AllowHeaders = []string{"date"} }},
		"RPL-14 allowed proxy":      {"Keep.AllowHeaders", func(c *core.Config) { c.Keep.AllowHeaders = []string{"Proxy-Authenticate"} }},
		"RPL-25 allowed marker":     {"Keep.AllowHeaders", func(c *core.Config) { c.Keep.AllowHeaders = []string{"idempotent-replayed"} }},
		"denied line that is none":  {"Keep.DenyHeaders", func(c *core.Config) { c.Keep.DenyHeaders = []string{""} }},
		"no codec":                  {"Keep.Codecs", func(c *core.Config) { c.Keep.Codecs = []driver.Codec{nil} }},
		"no store to wait for":      {"Store", func(c *core.Config) { c.Store, c.Wait.Timeout = nil, time.Second }},
		"long name":                 {"Name", func(c *core.Config) { c.Name = strings.Repeat("n", 65) }},
		"name that is no text":      {"Name", func(c *core.Config) { c.Name = "caf\xe9" }},
		"run as short as its lease": {"Lease.MaxRun", func(c *core.Config) { c.Lease.MaxRun = 30 * time.Second }},
		"run of more than a life":   {"Lease.MaxRun", func(c *core.Config) { c.Lease.MaxRun = 101 * 365 * 24 * time.Hour }},
		"retention of more than a life": {"Keep.Retention", func(c *core.Config) {
			c.Keep.Retention = 101 * 365 * 24 * time.Hour
		}},
		"blobs of nothing": {"Keep.BlobsFrom", func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = newShelf(), -1 }},
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

// contradictions are pairs of options of which one rules the other out. Each is fine alone.
var contradictions = map[string]struct {
	first, second string // as the error names them
	on, off       func(*core.Config)
	other         func(*core.Config)
}{
	"off, JSON": {"Fingerprint.Off", "Fingerprint.JSON",
		func(c *core.Config) { c.Fingerprint.Off = true }, func(c *core.Config) { c.Fingerprint.Off = false },
		func(c *core.Config) { c.Fingerprint.JSON = true }},
	"off, multipart": {"Fingerprint.Off", "Multipart",
		func(c *core.Config) { c.Fingerprint.Off = true }, func(c *core.Config) { c.Fingerprint.Off = false },
		func(c *core.Config) { c.Fingerprint.Multipart = true }},
	"off, query": {"Fingerprint.Off", "SortQuery",
		func(c *core.Config) { c.Fingerprint.Off = true }, func(c *core.Config) { c.Fingerprint.Off = false },
		func(c *core.Config) { c.Fingerprint.SortQuery = true }},
	"off, headers": {"Fingerprint.Off", "Headers",
		func(c *core.Config) { c.Fingerprint.Off = true }, func(c *core.Config) { c.Fingerprint.Off = false },
		func(c *core.Config) { c.Fingerprint.Headers = []string{"Accept"} }},
	"off, function": {"Fingerprint.Off", "Func",
		func(c *core.Config) { c.Fingerprint.Off = true }, func(c *core.Config) { c.Fingerprint.Off = false },
		func(c *core.Config) { c.Fingerprint.Func = v1 }},
	"function, JSON": {"Fingerprint.Func", "Fingerprint.JSON",
		func(c *core.Config) { c.Fingerprint.Func = v1 }, func(c *core.Config) { c.Fingerprint.Func = nil },
		func(c *core.Config) { c.Fingerprint.JSON = true }},
	"function, multipart": {"Fingerprint.Func", "Multipart",
		func(c *core.Config) { c.Fingerprint.Func = v1 }, func(c *core.Config) { c.Fingerprint.Func = nil },
		func(c *core.Config) { c.Fingerprint.Multipart = true }},
	"function, query": {"Fingerprint.Func", "SortQuery",
		func(c *core.Config) { c.Fingerprint.Func = v1 }, func(c *core.Config) { c.Fingerprint.Func = nil },
		func(c *core.Config) { c.Fingerprint.SortQuery = true }},
	"function, headers": {"Fingerprint.Func", "Headers",
		func(c *core.Config) { c.Fingerprint.Func = v1 }, func(c *core.Config) { c.Fingerprint.Func = nil },
		func(c *core.Config) { c.Fingerprint.Headers = []string{"Accept"} }},
	"no marker, marker on all": {"Keep.NoMarker", "Keep.MarkAll",
		func(c *core.Config) { c.Keep.NoMarker = true }, func(c *core.Config) { c.Keep.NoMarker = false },
		func(c *core.Config) { c.Keep.MarkAll = true }},
	"no marker, exposed": {"Keep.NoMarker", "Keep.ExposeMarker",
		func(c *core.Config) { c.Keep.NoMarker = true }, func(c *core.Config) { c.Keep.NoMarker = false },
		func(c *core.Config) { c.Keep.ExposeMarker = true }},
	"allowed, denied": {"Keep.AllowHeaders", "Keep.DenyHeaders",
		func(c *core.Config) { c.Keep.AllowHeaders = []string{"Set-Cookie"} }, func(c *core.Config) { c.Keep.AllowHeaders = nil },
		func(c *core.Config) { c.Keep.DenyHeaders = []string{"X-A", "set-cookie"} }},
	"own refusals, links": {"Problems.Link", "Problems.Render",
		func(c *core.Config) { c.Problems.Link = true }, func(c *core.Config) { c.Problems.Link = false },
		func(c *core.Config) { c.Problems.Render = func(core.Problem) *core.Response { return nil } }},
	"blobs, short bodies": {"Keep.BlobsFrom", "Keep.MaxBody",
		func(c *core.Config) { c.Keep.Blobs = newShelf() }, func(c *core.Config) { c.Keep.Blobs = nil },
		func(c *core.Config) { c.Keep.MaxBody = 64 << 10 }},
	"waits, no notifier": {"Wait.Timeout", "Store",
		func(c *core.Config) { c.Wait.Timeout = time.Second }, func(c *core.Config) { c.Wait.Timeout = 0 },
		func(c *core.Config) { c.Store = scripted{Store: c.Store} }},
	"age, retention": {"Key.MaxAge", "Keep.Retention",
		func(c *core.Config) { c.Key.MaxAge = 2 * time.Hour }, func(c *core.Config) { c.Key.MaxAge = 0 },
		func(c *core.Config) { c.Keep.Retention = time.Hour }},
	"lease, retention": {"Keep.Retention", "Lease.Duration",
		func(c *core.Config) { c.Lease.Duration = time.Hour }, func(c *core.Config) { c.Lease.Duration = 0 },
		func(c *core.Config) { c.Keep.Retention = time.Hour }},
	"lease, timeout": {"Limits.StoreTimeout", "Lease.Duration",
		func(c *core.Config) { c.Lease.Duration = time.Second }, func(c *core.Config) { c.Lease.Duration = 0 },
		func(c *core.Config) { c.Limits.StoreTimeout = 501 * time.Millisecond }},
	"lengths": {"Key.MaxLength", "Key.MinLength",
		func(c *core.Config) { c.Key.MinLength = 20 }, func(c *core.Config) { c.Key.MinLength = 0 },
		func(c *core.Config) { c.Key.MaxLength = 19 }},
	"alias, header": {"Key.Aliases", "Key.Header",
		func(c *core.Config) { c.Key.Aliases = []string{"X-Key"} }, func(c *core.Config) { c.Key.Aliases = nil },
		func(c *core.Config) { c.Key.Header = "x-key" }},
	"alias, marker": {"Keep.Marker", "Key.Aliases",
		func(c *core.Config) { c.Key.Aliases = []string{"X-Key"} }, func(c *core.Config) { c.Key.Aliases = nil },
		func(c *core.Config) { c.Keep.Marker = "x-key" }},
	"header, marker": {"Keep.Marker", "Key.Header",
		func(c *core.Config) { c.Key.Header = "X-Key" }, func(c *core.Config) { c.Key.Header = "" },
		func(c *core.Config) { c.Keep.Marker = "x-key" }},
	"waiters per key, in all": {"Wait.Max", "Wait.MaxPerKey",
		func(c *core.Config) { c.Wait.Timeout, c.Wait.MaxPerKey = time.Second, 20 }, func(c *core.Config) { c.Wait.MaxPerKey = 0 },
		func(c *core.Config) { c.Wait.Timeout, c.Wait.Max = time.Second, 19 }},
}

func TestContradictionsAreRefusedNamingBothFields(t *testing.T) {
	for name, c := range contradictions {
		t.Run(name, func(t *testing.T) {
			engine := func(changes ...func(*core.Config)) (*core.Engine, error) {
				cfg := validConfig()
				for _, change := range changes {
					change(&cfg)
				}
				return core.New(cfg)
			}
			one, err := engine(c.on)
			require.NoError(t, err)
			_, err = engine(c.other)
			require.NoError(t, err)
			_, err = engine(c.on, c.other)
			require.Error(t, err)
			assert.Equal(t, []string{c.first}, badFields(t, err))
			assert.ErrorContains(t, err, c.second)

			assert.Panics(t, func() { one.With(c.other) }, "With is as strict")
			assert.NotPanics(t, func() { one.With(func(c2 *core.Config) { c.off(c2); c.other(c2) }) }, "With can turn it off again")
			assert.NotPanics(t, func() { one.With(func(*core.Config) {}).With(c.off).With(c.other) }, "step by step, too")
		})
	}
}

// What can not be without another option says which.
func TestOptionsOfOptionsNameWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		field, missing string
		change         func(*core.Config)
	}{
		"waiters per key": {"Wait.Timeout", "Wait.MaxPerKey", func(c *core.Config) { c.Wait.MaxPerKey = 3 }},
		"time of a request": {"Key.SentAt", "Key.MaxAge", func(c *core.Config) {
			c.Key.SentAt = func(*core.Request, string) (time.Time, bool) { return time.Time{}, false }
		}},
		"waiters":              {"Wait.Timeout", "Wait.Max", func(c *core.Config) { c.Wait.Max = 3 }},
		"blobs from":           {"Keep.BlobsFrom", "Keep.Blobs,", func(c *core.Config) { c.Keep.BlobsFrom = 3 }},
		"version":              {"Fingerprint.Version", "Fingerprint.Func", func(c *core.Config) { c.Fingerprint.Version = 3 }},
		"version in the past":  {"Fingerprint.Previous.Version", "Fingerprint.Func", func(c *core.Config) { c.Fingerprint.Previous = &core.FingerprintConfig{Version: 3} }},
		"nonsense in the past": {"Fingerprint.Previous.Off", "Func", func(c *core.Config) { c.Fingerprint.Previous = &core.FingerprintConfig{Off: true, Func: v1} }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			c.change(&cfg)
			_, err := core.New(cfg)
			require.Error(t, err)
			assert.Equal(t, []string{c.field}, badFields(t, err))
			assert.ErrorContains(t, err, c.missing)
		})
	}
}

func TestNewAcceptsValuesAtTheirBounds(t *testing.T) {
	for name, change := range map[string]func(*core.Config){
		"longest name":        func(c *core.Config) { c.Name = strings.Repeat("n", 64) },
		"longest run":         func(c *core.Config) { c.Lease.MaxRun = 100 * 365 * 24 * time.Hour },
		"longest retention":   func(c *core.Config) { c.Keep.Retention = 100 * 365 * 24 * time.Hour },
		"shortest lease":      func(c *core.Config) { c.Lease.Duration, c.Keep.Retention = 10*time.Millisecond, 10*time.Millisecond+1 },
		"longest timeout":     func(c *core.Config) { c.Limits.StoreTimeout = 15 * time.Second },
		"one length":          func(c *core.Config) { c.Key.MinLength, c.Key.MaxLength = 36, 36 },
		"unusual methods":     func(c *core.Config) { c.Key.Methods = []string{"PUT", "DELETE", "MERGE", "M-SEARCH"} },
		"escaped URL":         func(c *core.Config) { c.Problems.BaseURL = "https://[::1]:8080/f%C3%BC/~a_b?c='(d)'&e=$f+g,h!*@;#" },
		"URN":                 func(c *core.Config) { c.Problems.BaseURL = "urn:problem:" },
		"overridden status":   func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 425, "store-unavailable": 500} },
		"every byte":          func(c *core.Config) { c.Limits.RequestBody = math.MaxInt64 - 1 },
		"lowest status":       func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 400} },
		"shortest secret":     func(c *core.Config) { c.Secret = []byte("sixteen letters.") },
		"longest lease":       func(c *core.Config) { c.Lease.Duration, c.Keep.Retention = 365*24*time.Hour, 100*365*24*time.Hour },
		"shortest timeout":    func(c *core.Config) { c.Limits.StoreTimeout = time.Millisecond },
		"FPR-19 host":         func(c *core.Config) { c.Fingerprint.Headers = []string{"Host"} },
		"oldest request":      func(c *core.Config) { c.Key.MaxAge = 24 * time.Hour },
		"longest blob":        func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom, c.Keep.MaxBody = newShelf(), 99, 100 },
		"all wait for one":    func(c *core.Config) { c.Wait = core.WaitConfig{Timeout: time.Millisecond, MaxPerKey: 7, Max: 7} },
		"many wait for one":   func(c *core.Config) { c.Wait = core.WaitConfig{Timeout: time.Second, MaxPerKey: 5000} },
		"no body, no success": func(c *core.Config) { c.Keep.OmittedStatus = 413 },
		"no body, no content": func(c *core.Config) { c.Keep.OmittedStatus = 204 },
		"allowed cookies":     func(c *core.Config) { c.Keep.AllowHeaders = []string{"Set-Cookie", "WWW-Authenticate", "Age"} },
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
	assert.Empty(t, got.Secret)
	assert.False(t, got.DangerouslyFailOpen)
	assert.Equal(t, core.FingerprintConfig{}, got.Fingerprint)
	assert.Equal(t, core.WaitConfig{}, got.Wait)
}

// Options of options have their defaults where the option is set, and follow what they depend on until they are given.
func TestDefaultsThatDependOnOtherFields(t *testing.T) {
	engine, err := core.New(validConfig())
	require.NoError(t, err)
	second := func(c *core.Config) { c.Wait.Timeout = time.Second }
	many := func(c *core.Config) { c.Wait = core.WaitConfig{Timeout: time.Second, MaxPerKey: 5000} }
	off := func(c *core.Config) { c.Wait.Timeout = 0 }
	blobs := func(c *core.Config) { c.Keep.Blobs = newShelf() }

	assert.Equal(t, core.WaitConfig{Timeout: time.Second, MaxPerKey: 16, Max: 1024}, engine.With(second).Config().Wait)
	assert.Equal(t, core.WaitConfig{Timeout: time.Second, MaxPerKey: 5000, Max: 5000}, engine.With(second).With(many).Config().Wait)
	assert.Equal(t, core.WaitConfig{}, engine.With(second).With(off).Config().Wait)
	assert.Panics(t, func() { engine.With(many).With(off) }, "what was given stays given")
	assert.Equal(t, core.WaitConfig{}, engine.With(many).With(func(c *core.Config) { c.Wait = core.WaitConfig{} }).Config().Wait)

	given := func(c *core.Config) { c.Wait = core.WaitConfig{Timeout: time.Second, Max: 2000} }
	assert.Equal(t, 2000, engine.With(given).With(func(*core.Config) {}).Config().Wait.Max)
	marshal := func(any) ([]byte, error) { return nil, nil }
	assert.PanicsWithError(t, "idem: Config.Marshal: goes together with Unmarshal: one is set and the other is not",
		func() { engine.With(func(c *core.Config) { c.Marshal = marshal }) }, "with the default of one, and not of the other")
	assert.NotPanics(t, func() {
		engine.With(func(c *core.Config) { c.Marshal, c.Unmarshal = marshal, json.Unmarshal }).With(given)
	})

	assert.Equal(t, 64<<10, engine.With(blobs).Config().Keep.BlobsFrom)
	assert.Zero(t, engine.With(blobs).With(func(c *core.Config) { c.Keep.Blobs = nil }).Config().Keep.BlobsFrom)
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
	secret, previous := "sixteen letters.", "sixteen letters!"
	given.Secret, given.PreviousSecrets = []byte(secret), [][]byte{[]byte(previous)}
	given.Key.Methods, given.Key.Aliases = []string{"POST"}, []string{"X-Key"}
	given.Problems.Status = map[string]int{"in-progress": 423}
	given.Keep.AllowHeaders, given.Keep.DenyHeaders = []string{"Age"}, []string{"X-Deny"}
	given.Keep.Codecs = []driver.Codec{tagged{"zip", new([]string)}}
	given.Fingerprint = core.FingerprintConfig{Headers: []string{"accept"}, Previous: &core.FingerprintConfig{Headers: []string{"accept"}}}
	engine, err := core.New(given)
	require.NoError(t, err)
	got := engine.Config()
	for _, c := range []*core.Config{&given, &got} {
		c.Secret[0], c.PreviousSecrets[0][0] = 'x', 'x'
		c.Key.Methods[0], c.Key.Aliases[0] = "PUT", "Y-Key"
		c.Problems.Status["in-progress"] = 425
		c.Problems.Status["no-code"] = 1
		c.Key.Header = "X"
		c.Keep.AllowHeaders[0], c.Keep.DenyHeaders[0], c.Keep.Codecs[0] = "X", "X", nil
		c.Fingerprint.Headers[0], c.Fingerprint.Previous.Headers[0], c.Fingerprint.Previous.JSON = "x", "x", true
	}
	assert.Equal(t, secret, string(engine.Config().Secret))
	assert.Equal(t, previous, string(engine.Config().PreviousSecrets[0]))
	assert.Equal(t, []string{"Age"}, engine.Config().Keep.AllowHeaders)
	assert.Equal(t, []string{"X-Deny"}, engine.Config().Keep.DenyHeaders)
	assert.NotNil(t, engine.Config().Keep.Codecs[0])
	assert.Equal(t, core.FingerprintConfig{Headers: []string{"accept"}, Previous: &core.FingerprintConfig{Headers: []string{"accept"}}}, engine.Config().Fingerprint)
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
	c.Scope, c.Keep.Policy, c.Marshal, c.Unmarshal = nil, nil, nil, nil
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
