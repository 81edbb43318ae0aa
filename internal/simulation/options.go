package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/go-idem/idem/core"
)

// option is one way to configure the engine of a process. Engines with different options share keys.
type option struct {
	name   string
	change func(*core.Config)
}

var options = []option{
	{"default", func(*core.Config) {}},
	{"wait", func(c *core.Config) { c.Wait.Timeout = 2 * time.Second }},
	{"wait long, one at a time", func(c *core.Config) { c.Wait.Timeout, c.Wait.MaxPerKey = 20*time.Second, 1 }},
	{"local replays", func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 }},
	{"refuse unknown", func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown }},
	{"unknown did not happen", func(c *core.Config) {
		c.Lease.OnUnknown = func(context.Context, *core.Request) (*core.Response, error) { return nil, nil }
	}},
	{"unknown did happen", func(c *core.Config) {
		c.Lease.OnUnknown = func(ctx context.Context, _ *core.Request) (*core.Response, error) {
			all := dosOf(ctx)
			all[0].process.h.mu.Lock()
			defer all[0].process.h.mu.Unlock()
			for _, d := range all {
				d.isFound = true
			}
			return &core.Response{Status: 201, Body: []byte(`"found"`)}, nil
		}
	}},
	{"any body", func(c *core.Config) { c.Fingerprint.Off = true }},
	{"blobs", func(c *core.Config) { c.Keep.BlobsFrom = longOutcome / 2 }},
	{"max run", func(c *core.Config) { c.Lease.MaxRun = 5*lease + 7*time.Millisecond }}, // not at the time of an extension
	{"fail open", func(c *core.Config) { c.DangerouslyFailOpen = true }},
	{"short lease", func(c *core.Config) { c.Lease.Duration, c.Limits.StoreTimeout = time.Second, 200*time.Millisecond }},
	{"short timeout", func(c *core.Config) { c.Limits.StoreTimeout = 50 * time.Millisecond }},
	{"long timeout", func(c *core.Config) { c.Limits.StoreTimeout = lease / 2 }},
	{"late retry", func(c *core.Config) { c.Keep.LateRetry = time.Hour }},
	{"keep 5xx", func(c *core.Config) { c.Keep.Policy = core.KeepAll }},
}

// rotation has the steps in which all processes change a secret: see docs/deploys.md.
var rotation = []struct {
	secret   []byte
	previous [][]byte
}{
	{secret: earlierSecret},
	{secret: earlierSecret, previous: [][]byte{laterSecret}},
	{secret: laterSecret, previous: [][]byte{earlierSecret}},
	{secret: laterSecret},
}

var earlierSecret, laterSecret = []byte("an earlier secret of 32 bytes...."), []byte("a later secret of 32 bytes.......")

// optionNamed returns the index of an option.
func optionNamed(name string) int {
	return slices.IndexFunc(options, func(o option) bool { return o.name == name })
}
