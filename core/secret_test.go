package core_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

func secret(text string) func(*core.Config) {
	return func(c *core.Config) { c.Secret = []byte(text) }
}

const (
	oneSecret     = "0123456789abcdef"
	anotherSecret = "0123456789abcdeg"
)

// claimed returns what an engine asks its store for, and the key that it gives to children.
func claimed(t *testing.T, changes ...func(*core.Config)) (claim driver.Claim, child string) {
	f := newFixture(t, append(changes, func(c *core.Config) {
		store := c.Store
		c.Store = scripted{Store: store, begin: func(c driver.Claim) (driver.Entry, error) {
			claim = c
			return store.Begin(ctx, c)
		}}
	})...)
	f.send(asJSON(`[1]`), func(ctx context.Context) (*core.Response, error) {
		child = core.ChildKey(ctx, "charge")
		return made(ctx)
	})
	return claim, child
}

func TestASecretChangesEveryHashThatReachesTheStore(t *testing.T) {
	for name, config := range map[string]core.FingerprintConfig{
		"raw": {}, "JSON": {JSON: true}, "off": {Off: true}, "own": {Func: v1, Version: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, changes := range [][2]func(*core.Config){
				{secret(""), secret(oneSecret)},
				{secret(oneSecret), secret(anotherSecret)},
			} {
				before, child := claimed(t, comparing(config), changes[0])
				after, otherChild := claimed(t, comparing(config), changes[1])
				assert.NotEqual(t, before.Key, after.Key)
				assert.NotEqual(t, before.Fingerprint, after.Fingerprint)
				assert.Equal(t, before.Fingerprint[:2], after.Fingerprint[:2], "the algorithm is no secret")
				assert.Equal(t, child, otherChild, "SKW-01: children outlive a change of the secret")
			}
			one, child := claimed(t, comparing(config), secret(oneSecret))
			same, sameChild := claimed(t, comparing(config), secret(oneSecret))
			assert.Equal(t, one.Key, same.Key)
			assert.Equal(t, one.Fingerprint, same.Fingerprint)
			assert.Equal(t, child, sameChild)
		})
	}
}

func TestEnginesMeetUnderOneSecret(t *testing.T) {
	f := newFixture(t, secret(oneSecret))
	f.send(request("K", "B"), made)
	f.replayed(f.with(func(c *core.Config) { c.Keep.MaxBody = 1000 }).send(request("K", "B"), made), 201, "made")

	cfg := f.Config()
	assert.Equal(t, oneSecret, string(cfg.Secret))
	cfg.Secret[0]++ // a copy
	f.replayed(f.send(request("K", "B"), made), 201, "made")

	cfg.Secret = []byte(oneSecret)
	engine, err := core.New(cfg)
	require.NoError(t, err)
	cfg.Secret[0]++ // the caller may wipe it
	other := *f
	other.Engine = engine
	f.replayed(other.send(request("K", "B"), made), 201, "made")
	f.ran(1)

	f.answered(f.with(secret(anotherSecret)).send(request("K", "B"), made), 201, "made")
	f.answered(f.with(secret("")).send(request("K", "B"), made), 201, "made")
	f.ran(3)
}

func TestARecordThatWasMadeInAnotherWayIsFoundUnderItsSecret(t *testing.T) {
	f := newFixture(t, secret(oneSecret))
	f.send(asJSON(`[1]`), made)
	next := f.with(comparing(core.FingerprintConfig{JSON: true}))
	f.replayed(next.send(asJSON(`[1]`), made), 201, "made")
	f.refused(next.send(asJSON(`[2]`), made), 422, "fingerprint-mismatch")
}
