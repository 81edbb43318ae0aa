package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
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
