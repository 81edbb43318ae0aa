package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster starts a cluster of three masters for this test and returns a client of it.
func Cluster(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	const slots = 16384
	var addrs []string
	for i := range 3 {
		node := Start(tb, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
		host, port, _ := strings.Cut(node.Addr, ":")
		client := node.Client(tb)
		must(tb, client.ClusterAddSlotsRange(context.Background(), i*slots/3, (i+1)*slots/3-1).Err())
		must(tb, client.Do(context.Background(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		for _, other := range addrs {
			h, p, _ := strings.Cut(other, ":")
			must(tb, client.ClusterMeet(context.Background(), h, p).Err())
		}
		addrs = append(addrs, host+":"+port)
	}
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		eventually(tb, addr+" is part of the cluster", func() bool {
			info := client.ClusterInfo(context.Background()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
				strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, ClusterStateReloadInterval: time.Second,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Sentinel starts a primary, a replica and a sentinel that watches them, for this test, and returns a client that asks
// the sentinel, and the primary.
func Sentinel(tb testing.TB) (*redis.Client, *Server) {
	tb.Helper()
	binary, err := exec.LookPath("redis-sentinel")
	if err != nil {
		missing(tb, "redis-sentinel")
	}
	primary := Start(tb)
	replica := Start(tb, "--replicaof", strings.Replace(primary.Addr, ":", " ", 1), "--repl-diskless-sync-delay", "0")
	dir := tb.TempDir()
	config := filepath.Join(dir, "sentinel.conf")
	must(tb, os.WriteFile(config, fmt.Appendf(nil, "sentinel monitor main %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
		strings.Replace(primary.Addr, ":", " ", 1)), 0o600))
	sentinel, err := start(binary, dir, nil, config)
	must(tb, err)
	tb.Cleanup(sentinel.Kill)

	observer := primary.Client(tb)
	eventually(tb, "the replica is online", func() bool {
		return strings.Contains(observer.Info(context.Background(), "replication").Val(), "state=online")
	})
	watcher := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer watcher.Close()
	eventually(tb, "the sentinel knows the replica", func() bool {
		replicas, err := watcher.Replicas(context.Background(), "main").Result()
		return err == nil && len(replicas) == 1 && strings.HasSuffix(replica.Addr, replicas[0]["port"])
	})
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: []string{sentinel.Addr}, ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client, primary
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// eventually waits for another process to get somewhere.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: never: %s", what)
		}
	}
}
