package core_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// optionChanges sets fields of Config to a value other than the default. It has the fields for which another cannot choose a
// value.
var optionChanges = map[string]func(*core.Config){
	"Store":                func(c *core.Config) { c.Store = memstore.New() },
	"Scope":                func(c *core.Config) { c.Scope = sameScope },
	"Secret":               secret(oneSecret),
	"PreviousSecrets":      func(c *core.Config) { c.PreviousSecrets = [][]byte{[]byte(anotherSecret)} },
	"Marshal":              marshals,
	"Unmarshal":            marshals,
	"Name":                 func(c *core.Config) { c.Name = "another" },
	"Key.Header":           func(c *core.Config) { c.Key.Header = "X-Key" },
	"Key.Aliases":          func(c *core.Config) { c.Key.Aliases = []string{"X-Key"} },
	"Key.Accept":           func(c *core.Config) { c.Key.Accept = func(key string) (string, bool) { return key, true } },
	"Key.Methods":          func(c *core.Config) { c.Key.Methods = []string{"POST", "PUT"} },
	"Key.MinLength":        func(c *core.Config) { c.Key.MinLength = 1 },
	"Key.MaxLength":        func(c *core.Config) { c.Key.MaxLength = 300 },
	"Key.MaxAge":           func(c *core.Config) { c.Key.MaxAge, c.Key.SentAt = time.Minute, sentNow },
	"Key.SentAt":           func(c *core.Config) { c.Key.MaxAge, c.Key.SentAt = time.Minute, sentNow },
	"Fingerprint.Headers":  func(c *core.Config) { c.Fingerprint.Headers = []string{"Accept"} },
	"Fingerprint.Func":     func(c *core.Config) { c.Fingerprint.Func = v1 },
	"Fingerprint.Version":  func(c *core.Config) { c.Fingerprint.Func, c.Fingerprint.Version = v1, 2 },
	"Fingerprint.Previous": func(c *core.Config) { c.Fingerprint.Previous = &core.FingerprintConfig{JSON: true} },
	"Lease.MaxRun":         func(c *core.Config) { c.Lease.MaxRun = time.Hour },
	"Lease.OnUnknown":      func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown },
	"Wait.Timeout":         func(c *core.Config) { c.Wait.Timeout = time.Second },
	"Wait.MaxPerKey":       func(c *core.Config) { c.Wait.Timeout, c.Wait.MaxPerKey = time.Second, 2 },
	"Wait.Max":             func(c *core.Config) { c.Wait.Timeout, c.Wait.Max = time.Second, 2000 },
	"Keep.MaxBody":         func(c *core.Config) { c.Keep.MaxBody = 2 << 10 },
	"Keep.OmitBody":        func(c *core.Config) { c.Keep.OmitBody = core.OmitNoStore },
	"Keep.OmittedStatus":   func(c *core.Config) { c.Keep.OmittedStatus = 413 },
	"Keep.OnReplay":        func(c *core.Config) { c.Keep.OnReplay = sendsStored },
	"Keep.Origin":          func(c *core.Config) { c.Keep.Origin = func(context.Context) string { return "trace 7" } },
	"Keep.Policy":          func(c *core.Config) { c.Keep.Policy = core.KeepAll },
	"Keep.Marker":          func(c *core.Config) { c.Keep.Marker = "X-Again" },
	"Keep.AllowHeaders":    func(c *core.Config) { c.Keep.AllowHeaders = []string{"Set-Cookie"} },
	"Keep.DenyHeaders":     func(c *core.Config) { c.Keep.DenyHeaders = []string{"X-A"} },
	"Keep.Codecs":          func(c *core.Config) { c.Keep.Codecs = []driver.Codec{idle{}} },
	"Keep.LocalReplays":    func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 },
	"Keep.Blobs":           func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = sharedShelf, 1<<10 },
	"Keep.BlobsFrom":       func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = sharedShelf, 7 },
	"Limits.StoreTimeout":  func(c *core.Config) { c.Limits.StoreTimeout /= 2 },
	"Limits.RequestBody":   func(c *core.Config) { c.Limits.RequestBody = 1 << 10 },
	"Limits.Quota": func(c *core.Config) {
		c.Limits.Quota = func(context.Context, string, *core.Request) bool { return true }
	},
	"Problems.BaseURL": func(c *core.Config) { c.Problems.BaseURL = "https://example.com/" },
	"Problems.Status":  func(c *core.Config) { c.Problems.Status = map[string]int{"in-progress": 423} },
	"Problems.Render":  func(c *core.Config) { c.Problems.Render = func(core.Problem) *core.Response { return nil } },
}

// sharedShelf is the blob store of all engines with the changed Keep.Blobs.
var sharedShelf = newShelf()

func sameScope(context.Context, *core.Request) string { return "single-tenant" }

func sendsStored(_ context.Context, _ *core.Request, stored *core.Response) (*core.Response, error) {
	return stored, nil
}

func sentNow(*core.Request, string) (time.Time, bool) { return time.Now(), true }

func marshals(c *core.Config) {
	c.Marshal = func(v any) ([]byte, error) { return json.Marshal([]any{v}) }
	c.Unmarshal = func(b []byte, v any) error { return json.Unmarshal(b, &[1]any{v}) }
}

// idle is a codec that does nothing, and cannot be compared.
type idle struct{ _ []int }

func (idle) Encode(_ [32]byte, outcome []byte) []byte       { return outcome }
func (idle) Decode(_ [32]byte, kept []byte) ([]byte, error) { return kept, nil }

// option is a field of Config, or of a group of Config, and a change that sets it and what it needs.
type option struct {
	name   string // such as "Key.Header"
	change func(*core.Config)
}

// options returns all fields, found by reflection, so that a new one cannot be forgotten.
func options(t *testing.T) (all []option) {
	add := func(name string, index []int) {
		change, ok := optionChanges[name]
		if !ok {
			change = func(c *core.Config) { another(t, name, reflect.ValueOf(c).Elem().FieldByIndex(index)) }
		}
		all = append(all, option{name, change})
	}
	config := reflect.TypeFor[core.Config]()
	for i := range config.NumField() {
		group := config.Field(i)
		if group.Type.Kind() != reflect.Struct {
			add(group.Name, group.Index)
			continue
		}
		for j := range group.Type.NumField() {
			add(group.Name+"."+group.Type.Field(j).Name, []int{i, j})
		}
	}
	return all
}

// another gives a field another value.
func another(t *testing.T, name string, field reflect.Value) {
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(!field.Bool())
	case reflect.Int64:
		require.Equal(t, reflect.TypeFor[time.Duration](), field.Type(), "%s is new: give it a value in optionChanges", name)
		field.SetInt(field.Int() + int64(time.Second))
	case reflect.Func:
		require.Equal(t, reflect.TypeFor[core.Hook](), field.Type(), "%s is new: give it a value in optionChanges", name)
		field.Set(reflect.ValueOf(core.Hook(func(context.Context, core.Event) {})))
	default:
		t.Fatalf("%s is new: give it a value in optionChanges", name)
	}
}
