package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

func TestAServerKeepsItsArgumentsWhenItStartsAgain(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := s.Client(t)
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	s.Kill()
	s.Restart(t)
	assert.Equal(t, "v", client.Get(ctx, "k").Val())
	s.Config(t, "maxclients", "100")
	assert.Equal(t, "100", client.ConfigGet(ctx, "maxclients").Val()["maxclients"])
	assert.Equal(t, "master", s.Info(t, "role"))
}

func TestAServerKnowsWhatItHas(t *testing.T) {
	t.Parallel()
	s := Start(t, "--rename-command", "PUBLISH", "")
	assert.True(t, s.Knows(t, "EVALSHA"))
	assert.False(t, s.Knows(t, "PUBLISH"))
}

func TestAServerIsNotTheOneThatHasTakenItsPort(t *testing.T) {
	other := Start(t)
	_, port, err := net.SplitHostPort(other.Addr)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	s := newServer(Binary(t), t.TempDir(), n, nil)
	assert.ErrorContains(t, s.spawn(), "ended")
	assert.Equal(t, "+PONG", other.answer())
}

func TestAPortIsGivenOnce(t *testing.T) {
	port := freePort()
	_, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
	assert.Error(t, err, "to another process neither")
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(t, err)
	assert.NoError(t, l.Close())
}

func TestAGroupFailsOverToAReplicaThatHasEverything(t *testing.T) {
	t.Parallel()
	began := time.Now()
	g := StartGroup(t)
	t.Logf("ready in %v", time.Since(began))
	client := g.Client(t)
	old := g.Primary(t)
	require.Equal(t, g.Nodes[0], old)
	require.Len(t, g.Replicas(t), 2)
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	require.EqualValues(t, 2, client.Wait(ctx, 2, 5*time.Second).Val())
	old.Kill()
	Eventually(t, "the sentinels agree on another primary", func() bool { return g.Agreed() != nil && g.Agreed() != old })
	Eventually(t, "the client has found it", func() bool { return client.Get(ctx, "k").Val() == "v" })
	Eventually(t, "all call a primary what is one", func() bool { // a busy machine may have a failover more
		primary := g.Agreed()
		return primary != nil && primary != old && primary.Info(t, "role") == "master"
	})
}

func TestAClusterFailsOverToTheReplicaOfTheMaster(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := StartCluster(t)
	t.Logf("ready in %v", time.Since(began))
	client := c.Client(t)
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	master := c.MasterOf(t, "k")
	require.Equal(t, "master", master.Info(t, "role"))
	require.EqualValues(t, 1, master.Client(t).Wait(ctx, 1, 5*time.Second).Val())
	master.Kill()
	Eventually(t, "the replica serves the key", func() bool { return client.Get(ctx, "k").Val() == "v" })
	assert.NotEqual(t, master, c.MasterOf(t, "k"))
	master.Restart(t)
	c.WaitReady(t)
	assert.Equal(t, "slave", master.Info(t, "role"))
}

func TestMastersShareTheSlotsEvenly(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		c := StartMasters(t, n)
		require.Len(t, c.Nodes, n)
		ranges := c.Nodes[0].slotRanges(t)
		require.Len(t, ranges, n)
		for _, r := range ranges {
			assert.EqualValues(t, 16384/n, r.End-r.Start+1)
			assert.Len(t, r.Nodes, 1, "no replica")
		}
	}
}
