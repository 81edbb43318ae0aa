package core_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
)

// SKW-01: what a deploy that changes an option means for keys that live.

var update = flag.Bool("update", false, "write docs/deploys.md anew")

const deploysFile = "../docs/deploys.md"

// skews are changes that eachOption leaves out, or makes in a way that does not show what they may do to a live key.
var skews = map[string]func(*core.Config){
	"Scope":                                  func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return "other" } },
	"Secret":                                 secret(oneSecret),
	"Secret, the old one in PreviousSecrets": secrets(oneSecret, ""),
	"Key.PerRoute":                           func(c *core.Config) { c.Key.PerRoute = true },
	"Key.PerRoute, with PerRouteChanged":     func(c *core.Config) { c.Key.PerRoute, c.Key.PerRouteChanged = true, true },
	"Key.Header":                             func(c *core.Config) { c.Key.Header = "X-Key" },
	"Key.Header, the old one in Aliases":     func(c *core.Config) { c.Key.Header, c.Key.Aliases = "X-Key", []string{"Idempotency-Key"} },
	"Key.Strict":                             func(c *core.Config) { c.Key.Strict = true },
	"Key.SentAt":                             func(c *core.Config) { c.Key.MaxAge, c.Key.SentAt = time.Minute, sentNow },
	"Key.Methods, without the one":           func(c *core.Config) { c.Key.Methods = []string{"PUT"} },
	"Key.Accept, another form": func(c *core.Config) {
		c.Key.Accept = func(key string) (string, bool) { return strings.ToLower(key), true }
	},
	"Key.MinLength": func(c *core.Config) { c.Key.MinLength = 2 },
	"Key.MaxAge":    func(c *core.Config) { c.Key.MaxAge = time.Minute },
	"Fingerprint.Headers, with Previous": func(c *core.Config) {
		c.Fingerprint = core.FingerprintConfig{Headers: []string{"Accept"}, Previous: &core.FingerprintConfig{}}
	},
	"Fingerprint.Func, with Previous": func(c *core.Config) {
		c.Fingerprint = core.FingerprintConfig{Func: v1, Previous: &core.FingerprintConfig{}}
	},
	"Keep.Codecs, one that seals": func(c *core.Config) { c.Keep.Codecs = []driver.Codec{marking{}} },
}

// marking is a codec that reads nothing but what it made.
type marking struct{}

func (marking) Encode(_ [32]byte, outcome []byte) []byte { return append([]byte{0xFF}, outcome...) }

func (marking) Decode(_ [32]byte, kept []byte) ([]byte, error) {
	if kept[0] != 0xFF {
		return nil, driver.ErrUnreadable
	}
	return kept[1:], nil
}

// skewed is a request in which every option finds something.
func skewed() core.Request {
	return changed(query("b=2&a=1"), lines("Content-Type", "application/json", "Accept", "text/csv"), body(`{"b": 1, "a": 2}`, nil))
}

// meets returns what a request that before answered gets from after, and the child keys that both would give it.
func meets(t *testing.T, before, after func(*core.Config)) (verdict string, children [2]string) {
	child := func(at int) handler {
		return func(ctx context.Context) (*core.Response, error) {
			children[at] = core.ChildKey(ctx, "charge")
			return made(ctx)
		}
	}
	f := newFixture(t, before)
	if f.send(skewed(), child(0)).Bypassed || f.runs.Load() == 0 {
		return "-", children // refused, or without a key: there is nothing to find
	}
	result := f.with(func(c *core.Config) { reset(c); after(c) }).send(skewed(), child(1))
	if f.runs.Load() == 1 { // else the second run has told it
		newFixture(t, after).send(skewed(), child(1))
	}
	switch {
	case result.Replayed:
		return "replay", children
	case result.Bypassed:
		return "**runs again**, without a key", children
	case result.Problem != "":
		return fmt.Sprint(result.Response.Status, " `", result.Problem, "`"), children
	}
	return "**runs again**", children
}

// delivered is meets for a message.
func delivered(t *testing.T, before, after func(*core.Config)) string {
	f := newFixture(t, before)
	f.consume(message, f.numbered)
	d := f.with(func(c *core.Config) { reset(c); after(c) }).consume(message, f.numbered)
	switch d.Verdict {
	case consumer.Duplicate:
		return "duplicate"
	case consumer.Done:
		return "**runs again**"
	}
	return string(d.Verdict)
}

// reset undoes what the change before has set, but for what fixtures share.
func reset(c *core.Config) {
	fresh := core.Config{Store: c.Store, Scope: core.SingleTenant, Hooks: c.Hooks}
	fresh.Lease.Duration, fresh.Limits.StoreTimeout, fresh.Keep.Retention = lease, storeTimeout, retention
	*c = fresh
}

func childrenOf(keys [2]string) string {
	switch {
	case keys[0] == "" || keys[1] == "":
		return "-"
	case keys[0] == keys[1]:
		return "same"
	}
	return "**others**"
}

// deploysPage is what docs/deploys.md says.
func deploysPage(t *testing.T) string {
	changes := map[string]func(*core.Config){}
	eachOption(t, func(_ *testing.T, name string, change func(*core.Config)) { changes[name] = change })
	delete(changes, "Store") // another one knows no keys
	for name, change := range skews {
		changes[name] = change
	}
	var page strings.Builder
	page.WriteString(deploysHead)
	nothing := func(*core.Config) {}
	var harmless []string
	names := make([]string, 0, len(changes))
	for name := range changes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		change := changes[name]
		set, children := meets(t, nothing, change)
		unset, others := meets(t, change, nothing)
		messageSet, messageUnset := delivered(t, nothing, change), delivered(t, change, nothing)
		if childrenOf(children) == "-" {
			children = others
		}
		if set == "replay" && unset == "replay" && messageSet == "duplicate" && messageUnset == "duplicate" && childrenOf(children) == "same" {
			harmless = append(harmless, "`"+name+"`")
			continue
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s | %s |\n", name, set, unset, messageSet, messageUnset, cmp.Or(childrenOf(children), "-"))
	}
	page.WriteString("\nWith another `Store` every key is new. After a change of any of these the retry is replayed, the message is a duplicate,\n" +
		"and child keys stay the same:\n")
	for line := range slices.Chunk(harmless, 5) {
		page.WriteString(strings.Join(line, ", ") + ",\n")
	}
	return strings.TrimSuffix(page.String(), ",\n") + ".\n"
}

const deploysHead = `# Deploys that change options

A deploy changes one option while keys are alive. The table says what a retry then gets, if its outcome was stored before the
change. The same holds for two processes, one with each value, while the deploy rolls out.

- *set* is a change from the default to another value, *unset* the way back.
- **runs again** is a second run that no process can notice, because the record has another name, or because the request has no
  key for the new process. Wait until live keys have expired (` + "`Keep.Retention`" + `), send the traffic through one version at a
  time, or do not change the option.
- *503* means that the retry is refused and does not run, until the record has expired or ` + "`Fingerprint.Previous`" + ` names the
  earlier comparison.
- *child keys* derive from scope, key, method, path and step alone. If a key runs again with the same child keys, they keep its
  effects from happening twice.

## Changing a secret

A secret changes in three deploys:

1. List the new secret in ` + "`PreviousSecrets`" + `.
2. Make it ` + "`Secret`" + `, and list the old one in ` + "`PreviousSecrets`" + `.
3. Remove the old one when every process has had step 2 for twice ` + "`Keep.Retention`" + `.

Processes of neighbouring steps never run a key twice. Step 2 without step 1 replays what was stored before, but does not see
runs of older processes in the meantime.

` + "`Key.PerRoute`" + ` changes in the same way: set ` + "`Key.PerRouteChanged`" + `, change ` + "`Key.PerRoute`" + `, and unset
` + "`Key.PerRouteChanged`" + ` after twice ` + "`Keep.Retention`" + `.

## The table

A test makes this table: ` + "`go test ./core -run TestTheTableOfDeploys -update`" + ` writes it anew.

| option | set | unset | message, set | message, unset | child keys |
| --- | --- | --- | --- | --- | --- |
`

func TestTheTableOfDeploysIsWhatHappens(t *testing.T) {
	page := deploysPage(t)
	if *update {
		require.NoError(t, os.WriteFile(deploysFile, []byte(page), 0o644))
	}
	documented, err := os.ReadFile(deploysFile)
	require.NoError(t, err)
	assert.Equal(t, page, string(documented), "docs/deploys.md is stale: run this test with -update, and read what has changed")
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| Scope |") && !strings.HasPrefix(line, "| Key.Accept, another form |") {
			assert.NotContains(t, line, "**others**", "child keys follow scope and key, and no option")
		}
	}
}
