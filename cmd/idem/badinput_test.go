package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
)

// Bad input is named in clear words, and changes no byte of the store.
func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	const lookElsewhere = "another secret, --kind, prefix or schema makes every name differ"
	for name, c := range map[string]struct {
		scope string
		flags []string
		env   map[string]string
		spoil func(t *testing.T, client *redis.Client, key string)
		code  int
		want  string
	}{
		"a scope that no record has": {scope: "bob", code: finding, want: "no record has this scope and key"},
		"a key that no record has":   {scope: "alice", flags: []string{"--kind", "POST /payments"}, code: finding, want: lookElsewhere},
		"a wrong secret": {scope: "alice", env: map[string]string{"IDEM_SECRET": "0123456789abcdef"}, code: finding,
			want: lookElsewhere},
		"a store of another prefix": {scope: "alice", flags: []string{"--prefix", "pay:"}, code: finding,
			want: `This server also has records in ["idem:"]`},
		"a record of a newer format": {scope: "alice", spoil: func(t *testing.T, client *redis.Client, key string) {
			require.NoError(t, client.SetRange(t.Context(), key, 0, "3").Err())
		}, code: finding, want: "the record is damaged, or a later version wrote it"},
		"what is no record": {scope: "alice", spoil: func(t *testing.T, client *redis.Client, key string) {
			require.NoError(t, client.Del(t.Context(), key).Err())
			require.NoError(t, client.LPush(t.Context(), key, "no record").Err())
		}, code: finding, want: "the record is damaged, or a later version wrote it"},
		"a read-only replica": {scope: "alice", spoil: func(t *testing.T, client *redis.Client, _ string) {
			host, port, _ := strings.Cut(primary(t, client), ":")
			require.NoError(t, client.ReplicaOf(t.Context(), host, port).Err())
			redistest.Eventually(t, "the replica has the record", func() bool {
				return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
			})
		}, code: storeFailed, want: "this server is a read-only replica; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client, url := server.Client(t), "redis://"+server.Addr
			makeUnknown(t, url)
			keys := client.Keys(t.Context(), "*").Val()
			require.Len(t, keys, 1)
			if c.spoil != nil {
				c.spoil(t, client, keys[0])
			}
			before := client.Dump(t.Context(), keys[0]).Val()
			audit := []string{c.scope, "K", "--who", "ann", "--reason", "ticket 1"}
			for _, command := range [][]string{
				append([]string{"resolve", "--not-done"}, audit...), append([]string{"release", "--yes"}, audit...),
				append([]string{"forget", "--yes"}, audit...),
			} {
				got := call(t, url, c.env, append(command, c.flags...)...)
				assert.Equal(t, c.code, got.code)
				assert.Contains(t, got.stderr, c.want)
				assert.Contains(t, got.stderr, nothingChanged)
				assert.Equal(t, before, client.Dump(t.Context(), keys[0]).Val())
				assert.Len(t, client.Keys(t.Context(), "*").Val(), 1)
			}
		})
	}
}

// primary returns the address of an empty server of which a replica copies the records that client sees.
func primary(t *testing.T, client *redis.Client) string {
	t.Helper()
	server := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	for _, key := range client.Keys(t.Context(), "*").Val() {
		require.NoError(t, server.Client(t).RestoreReplace(t.Context(), key, 0, client.Dump(t.Context(), key).Val()).Err())
	}
	return server.Addr
}
