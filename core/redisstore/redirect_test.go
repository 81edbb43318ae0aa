package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/redistest"
)

// redirecting is a Cluster whose master of a claim redirects the scripts for it, and notes which commands its nodes got.
type redirecting struct {
	claim  driver.Claim
	holder *redistest.Server
	client *redis.ClusterClient

	mu  sync.Mutex
	got []string // "name at address"
}

// newRedirecting returns a Cluster whose nodes reply as given by address. A node without a reply is left alone.
func newRedirecting(
	t *testing.T, cluster *redistest.Shards, replies func(holder, other string) map[string]any, change ...func(*redis.ClusterOptions),
) *redirecting {
	r := &redirecting{claim: storetest.NewClaim(time.Minute, time.Hour)}
	r.holder = cluster.MasterOf(t, nameOf(r.claim))
	given := replies(r.holder.Addr, otherMaster(cluster, r.holder).Addr)
	r.client = cluster.Client(t, change...)
	r.client.OnNewNode(func(node *redis.Client) {
		addr := node.Options().Addr
		node.AddHook(givenReplies(func(cmd redis.Cmder) any { return r.note(cmd, addr, given[addr]) }))
	})
	return r
}

func otherMaster(cluster *redistest.Shards, master *redistest.Server) *redistest.Server {
	if master == cluster.Nodes[0] {
		return cluster.Nodes[1]
	}
	return cluster.Nodes[0]
}

// note notes a command at a node that is replied for, and returns the reply: to a WAIT that one replica has the write.
func (r *redirecting) note(cmd redis.Cmder, addr string, reply any) any {
	name := cmd.Name()
	if reply == nil || name != "evalsha" && name != "eval" && name != "wait" && name != "asking" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, name+" at "+addr)
	switch name {
	case "wait":
		return int64(1)
	case "asking":
		return "OK"
	}
	return reply
}

func (r *redirecting) begin(ctx context.Context) error {
	_, err := redisstore.New(r.client, redisstore.Scripts(), redisstore.WaitReplicas(1, 100*time.Millisecond)).Begin(ctx, r.claim)
	return err
}

const isClaimed = "claimed 5 1 0 60000000 5"

// A claim and its WAIT go to the node that a redirect names, by the connections that there are.
func TestARedirectedClaimIsConfirmedByTheNodeThatTakesIt(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	for _, kind := range []string{"MOVED", "ASK"} {
		var other string
		r := newRedirecting(t, cluster, func(holder, o string) map[string]any {
			other = o
			return map[string]any{holder: refusal(kind + " 1 " + o), o: isClaimed}
		})
		require.NoError(t, r.begin(ctx), kind)
		want := []string{"evalsha at " + r.holder.Addr, "wait at " + r.holder.Addr, "evalsha at " + other, "wait at " + other}
		if kind == "ASK" {
			want = append(want[:2:2], append([]string{"asking at " + other}, want[2:]...)...)
		}
		assert.Equal(t, want, r.got, kind)
	}

	var other string
	r := newRedirecting(t, cluster, func(holder, o string) map[string]any {
		other = o
		return map[string]any{holder: refusal("ASK 1 " + o), o: "ok"}
	})
	r.claim.Fence = 5
	require.NoError(t, redisstore.New(r.client, redisstore.WaitReplicas(1, 100*time.Millisecond)).Extend(ctx, r.claim))
	assert.Equal(t, []string{"evalsha at " + r.holder.Addr, "asking at " + other, "evalsha at " + other}, r.got, "which needs no WAIT")
}

// A node that has no slot yet is not listed by the client. It does not know the script either. After a MOVED it gets the text at
// once; after an ASK the node that has the slot is asked again. The connection to it is closed.
func TestARedirectLeadsToANodeThatTheClientDoesNotList(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	for kind, want := range map[string]struct {
		redirects int
		host      string
	}{
		"MOVED 1 127.0.0.1":          {1, "127.0.0.1"},
		"ASK 1 127.0.0.1":            {2, "127.0.0.1"},
		"MOVED 1 ::ffff:127.0.0.1":   {1, "::ffff:127.0.0.1"},
		"MOVED 1 [::ffff:127.0.0.1]": {1, "::ffff:127.0.0.1"},
		"MOVED 1 ":                   {1, "127.0.0.1"}, // of a node that is not to tell its host
		"ASK 1 ?":                    {2, "127.0.0.1"}, // of one that does not know it
	} {
		t.Run(kind, func(t *testing.T) {
			node, network := redistest.Start(t), badnet.New(1)
			_, port, _ := net.SplitHostPort(node.Addr)
			r := newRedirecting(t, cluster, func(holder, _ string) map[string]any {
				return map[string]any{holder: refusal(kind + ":" + port)}
			}, func(o *redis.ClusterOptions) {
				o.Dialer = func(ctx context.Context, kind, addr string) (net.Conn, error) {
					if strings.HasSuffix(addr, ":"+port) {
						assert.Equal(t, net.JoinHostPort(want.host, port), addr)
						return network.Dial(ctx, kind, addr)
					}
					return new(net.Dialer).DialContext(ctx, kind, addr)
				}
			})
			require.ErrorIs(t, r.begin(ctx), driver.ErrNotDurable, "it has no replica")
			assert.Zero(t, network.Open(), "connections")
			assert.Equal(t, want.redirects, strings.Count(fmt.Sprint(r.got), "wait"), "redirects in %v", r.got)
			assert.EqualValues(t, 1, node.Client(t).Exists(ctx, nameOf(r.claim)).Val())
		})
	}
}

// Two nodes that redirect to each other, as they do before both know which of them has the slot.
func TestARedirectIsFollowedForHalfASecondAndNotForGood(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	circle := func(holder, other string) map[string]any {
		return map[string]any{holder: refusal("MOVED 1 " + other), other: refusal("MOVED 1 " + holder)}
	}
	r := newRedirecting(t, cluster, circle)
	began := time.Now()
	assert.ErrorContains(t, r.begin(ctx), "MOVED")
	assert.Greater(t, time.Since(began), 500*time.Millisecond)
	assert.Len(t, r.got, 2*17, fmt.Sprint(r.got))
	_, err := redisstore.New(r.client, redisstore.Scripts()).Begin(ctx, r.claim)
	assert.ErrorContains(t, err, "MOVED", "after those that the client has followed by itself")
}

// A client that knows no node sends nothing.
func TestACallWithoutANodeIsAnError(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	for name, options := range map[string][]redisstore.Option{
		"in batches": {redisstore.Batch()}, "confirmed": {redisstore.WaitReplicas(1, time.Second)},
	} {
		client := redis.NewClusterClient(cluster.Client(t).Options())
		store := redisstore.New(client, options...)
		require.NoError(t, client.Close())
		_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		assert.ErrorIs(t, err, redis.ErrClosed, name)
		_, err = store.Outcome(ctx, [32]byte{1})
		assert.ErrorIs(t, err, redis.ErrClosed, name)
		_, err = store.Watch(ctx, [32]byte{1}, func() {})
		assert.ErrorIs(t, err, redis.ErrClosed, name)
	}
}
