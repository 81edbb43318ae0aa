package redisstore_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/lua"
)

// settings are what findings name, without the server they are of.
func settings(t *testing.T, client redis.UniversalClient, opts ...redisstore.Option) (names []string) {
	t.Helper()
	findings, err := redisstore.Check(ctx, client, opts...)
	require.NoError(t, err)
	for _, f := range findings {
		assert.NotEmpty(t, f.Found)
		assert.NotEmpty(t, f.Why)
		assert.NotEmpty(t, f.Fix)
		assert.Contains(t, f.String(), f.Fix)
		name, _, _ := strings.Cut(f.Setting, " of ")
		names = append(names, name)
	}
	return names
}

func TestCheckHasNothingToSayOfAServerThatIsSetUpWell(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "noeviction").Client(t)
	assert.Empty(t, settings(t, client))
	assert.Eventually(t, func() bool { return len(client.Keys(ctx, "*").Val()) == 0 }, 20*time.Second, 50*time.Millisecond,
		"what it wrote expires")
}

func TestCheckNamesEachSettingThatCouldLoseRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		opts []redisstore.Option
		want string
	}{
		"eviction":           {[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil, "maxmemory-policy"},
		"no persistence":     {nil, nil, "appendonly"},
		"too few replicas":   {[]string{"--appendonly", "yes"}, []redisstore.Option{redisstore.WaitReplicas(1, time.Millisecond)}, "connected replicas"},
		"a command it lacks": {[]string{"--appendonly", "yes", "--rename-command", "EVALSHA", "FORBIDDEN"}, nil, "scripts"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, settings(t, redistest.Start(t, c.args...).Client(t), c.opts...), c.want)
		})
	}
}

func TestCheckSeesThatAnOldPrimaryCouldGoOnAlone(t *testing.T) {
	t.Parallel()
	client, _ := replicated(t)
	assert.Contains(t, settings(t, client), "min-replicas-to-write")
	require.NoError(t, client.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	assert.NotContains(t, settings(t, client), "min-replicas-to-write")
	assert.NotContains(t, settings(t, client), "clock of a replica")
}

func TestCheckLooksAtTheClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	assert.Equal(t, []string{"Options.ContextTimeoutEnabled"}, settings(t, client))

	good := redistest.Cluster(t)
	assert.NotContains(t, settings(t, good), "ClusterOptions.ClusterStateReloadInterval")
	options := *good.Options()
	options.ClusterStateReloadInterval = time.Minute
	slow := redis.NewClusterClient(&options)
	defer slow.Close()
	found := settings(t, slow)
	assert.Contains(t, found, "ClusterOptions.ClusterStateReloadInterval")
	assert.Contains(t, found, "appendonly", "each master is asked")
}

func TestCheckOfAServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	server.Kill()
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := redisstore.Check(short, client)
	assert.Error(t, err)
}

func TestWhatCheckSaysToAllowIsEnough(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	allow := func(commands ...string) {
		rules := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~idem:*", "&idem:*"}
		for _, command := range commands {
			rules = append(rules, "+"+command)
		}
		require.NoError(t, admin.Do(ctx, rules...).Err())
	}
	allow("info")
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	findings, err := redisstore.Check(ctx, client)
	require.NoError(t, err)
	i := slices.IndexFunc(findings, func(f driver.Finding) bool { return f.Setting == "scripts" })
	require.GreaterOrEqual(t, i, 0, "%v", findings)
	allow(regexp.MustCompile("[A-Z]{3,}").FindAllString(findings[i].Fix, -1)...)

	store := redisstore.New(client)
	c := claimed(t, store, time.Minute)
	c.Steps, c.LateRetry = true, time.Hour
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stop, err := store.Watch(bounded, c.Key, func() {})
	require.NoError(t, err)
	defer stop()
	require.NoError(t, store.Extend(ctx, c))
	require.NoError(t, store.Checkpoint(ctx, c, "step", nil))
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	for _, script := range []string{lua.Begin, lua.Extend, lua.Complete, lua.Fail, lua.Step, lua.Reopen} {
		for _, call := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(script, -1) {
			assert.Contains(t, findings[i].Fix, call[1])
		}
	}
	c.WantRemaining = true
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, entry.State)

	_, err = store.Look(ctx, c.Key)
	assert.Error(t, err, "the user of a service needs less than that of an operator")
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	more := regexp.MustCompile(`(?s)must be allowed(.*?)beside`).FindSubmatch(page)
	require.NotNil(t, more)
	allow(regexp.MustCompile("[A-Z]{3,}").FindAllString(findings[i].Fix+string(more[1]), -1)...)
	running := claimed(t, store, time.Minute)
	assert.NoError(t, store.Scan(ctx, driver.Filter{}, func(seen driver.Record) bool {
		if seen.Name != running.Key {
			assert.NoError(t, store.Forget(ctx, seen))
		}
		return true
	}))
	entry, err = store.Begin(ctx, c)
	require.NoError(t, err)
	assert.Equal(t, driver.Claimed, entry.State)
}
