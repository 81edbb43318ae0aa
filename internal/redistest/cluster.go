package redistest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Shards is a Redis Cluster. Its masters share the slots evenly.
type Shards struct {
	Nodes []*Server // masters first, until a failover; the replica of the first master is the first behind them, and so on

	masters     int
	handingOver sync.Mutex // held while a Reshard assigns its slots
	migrating   sync.Mutex // held while a key is moved
}

// StartCluster starts a cluster of three masters with a replica each for this test; args are for its nodes. It returns when
// every node has the same view of all slots, and every master sees its replica online.
func StartCluster(tb testing.TB, args ...string) *Shards {
	tb.Helper()
	c := startNodes(tb, 3, 6, args)
	for _, node := range c.Nodes { // otherwise a node of Valkey 8.1 may store a shard of a replica that its next start refuses
		client := node.Client(tb)
		Eventually(tb, node.Addr+" has met all others", func() bool {
			nodes := client.ClusterNodes(context.Background()).Val()
			return strings.Count(nodes, " connected") == len(c.Nodes) && !strings.Contains(nodes, "handshake")
		})
	}
	for i, replica := range c.Nodes[c.masters:] {
		client := replica.Client(tb)
		id := c.Nodes[i].id(tb)
		Eventually(tb, "a replica knows its master", func() bool {
			return client.ClusterReplicate(context.Background(), id).Err() == nil
		})
	}
	c.WaitReady(tb)
	return c
}

// StartMasters is StartCluster for any number of masters, without replicas.
func StartMasters(tb testing.TB, masters int, args ...string) *Shards {
	tb.Helper()
	c := startNodes(tb, masters, masters, args)
	c.WaitReady(tb)
	return c
}

func startNodes(tb testing.TB, masters, nodes int, args []string) *Shards {
	c := &Shards{masters: masters}
	for range nodes {
		c.Nodes = append(c.Nodes, Start(tb, append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
			"--repl-diskless-sync-delay", "0",
		}, args...)...))
	}
	c.assignSlots(tb)
	c.meet(tb)
	return c
}

func (c *Shards) assignSlots(tb testing.TB) {
	const slots = 16384
	for i, node := range c.Nodes {
		client := node.Client(tb)
		must(tb, client.Do(context.Background(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i < c.masters {
			must(tb, client.ClusterAddSlotsRange(context.Background(), i*slots/c.masters, (i+1)*slots/c.masters-1).Err())
		}
	}
}

func (c *Shards) meet(tb testing.TB) {
	client := c.Nodes[0].Client(tb)
	for _, other := range c.Nodes[1:] {
		host, port, _ := strings.Cut(other.Addr, ":")
		must(tb, client.ClusterMeet(context.Background(), host, port).Err())
	}
}

func (s *Server) id(tb testing.TB) string {
	tb.Helper()
	id, err := s.Client(tb).Do(context.Background(), "CLUSTER", "MYID").Text()
	must(tb, err)
	return id
}

// WaitReady waits until all nodes are there and agree.
func (c *Shards) WaitReady(tb testing.TB) {
	tb.Helper()
	for _, node := range c.Nodes {
		client := node.Client(tb)
		Eventually(tb, node.Addr+" is part of the cluster", func() bool {
			info := client.ClusterInfo(context.Background()).Val()
			ready := infoField(info, "cluster_state") == "ok" && infoField(info, "cluster_slots_ok") == "16384" &&
				infoField(info, "cluster_known_nodes") == strconv.Itoa(len(c.Nodes))
			replication := client.Info(context.Background(), "replication").Val()
			if infoField(replication, "role") == "master" {
				return ready && (len(c.Nodes) == c.masters || strings.Contains(replication, "state=online"))
			}
			return ready && infoField(replication, "master_link_status") == "up"
		})
	}
}

// MasterOf returns the node that serves a key. It follows redirects, because a node may not know of a move yet.
func (c *Shards) MasterOf(tb testing.TB, key string) (master *Server) {
	tb.Helper()
	Eventually(tb, "a node of the cluster answers", func() bool {
		master = c.masterOf(tb, key)
		return master != nil
	})
	return master
}

// masterOf returns the node that serves a key, and nil if no node answers now, as while a busy cluster counts itself as down.
func (c *Shards) masterOf(tb testing.TB, key string) *Server {
	tb.Helper()
	for _, node := range c.Nodes {
		for addr := node.masterOf(key); addr != ""; addr = node.masterOf(key) {
			if node.Addr == addr {
				return node
			}
			node = c.at(tb, addr)
		}
	}
	return nil
}

// masterOf returns the address of the node that has the key, as this server knows it, or "" if it does not answer.
func (s *Server) masterOf(key string) string {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, DialTimeout: time.Second, ReadTimeout: time.Second})
	defer client.Close()
	err := client.Exists(context.Background(), key).Err()
	if err == nil {
		return s.Addr
	}
	if addr, moved := redis.IsMovedError(err); moved {
		return addr
	}
	return ""
}

func (c *Shards) at(tb testing.TB, addr string) *Server {
	tb.Helper()
	for _, node := range c.Nodes {
		if node.Addr == addr {
			return node
		}
	}
	tb.Fatalf("redistest: %s is no node of the cluster", addr)
	return nil
}

// Client returns a client of the cluster as the README recommends it, after change if there is one.
func (c *Shards) Client(tb testing.TB, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	options := &redis.ClusterOptions{ContextTimeoutEnabled: true, ClusterStateReloadInterval: time.Second}
	for _, node := range c.Nodes {
		options.Addrs = append(options.Addrs, node.Addr)
	}
	for _, f := range change {
		f(options)
	}
	client := redis.NewClusterClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Cluster starts a cluster for this test and returns a client of it.
func Cluster(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	return StartCluster(tb).Client(tb)
}
