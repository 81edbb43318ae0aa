package redistest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/internal/badnet"
)

// groupName is the name of the group in the configuration of the sentinels.
const groupName = "main"

// Group is a primary and two replicas, watched by three sentinels, two of which agree on a failover.
type Group struct {
	Nodes     []*Server // the first is the primary, until a failover
	Sentinels []*Server
}

// StartGroup starts a group for this test; args are for its nodes. It returns when a failover would lose nothing: every
// sentinel knows everybody, and the primary sees both replicas online.
func StartGroup(tb testing.TB, args ...string) *Group {
	tb.Helper()
	return startGroup(tb, nil, args)
}

// StartGroupWithClocks starts a group whose replicas' clocks are so far ahead of the primary's, in whole seconds.
func StartGroupWithClocks(tb testing.TB, ahead time.Duration) *Group {
	tb.Helper()
	g := startGroup(tb, otherClock(tb, ahead), nil)
	here, there := g.Nodes[0].Client(tb).Time(context.Background()).Val(), g.Nodes[1].Client(tb).Time(context.Background()).Val()
	if off := there.Sub(here) - ahead; off.Abs() > 5*time.Second {
		tb.Fatalf("redistest: the clock of a replica is %v off", off)
	}
	return g
}

func startGroup(tb testing.TB, replicaEnv, args []string) *Group {
	tb.Helper()
	g := &Group{Nodes: []*Server{Start(tb, args...)}}
	host, port, _ := strings.Cut(g.Nodes[0].Addr, ":")
	for range 2 {
		g.Nodes = append(g.Nodes, startWith(tb, replicaEnv, slices.Concat(args, []string{
			"--replicaof", host, port, "--repl-diskless-sync-delay", "0",
		})))
	}
	g.Nodes[0].Config(tb, "repl-diskless-sync-delay", "0")
	Eventually(tb, "both replicas are online", func() bool { return g.Nodes[0].online(tb) == 2 })
	must(tb, g.startSentinels(tb, 5)) // not before: on a busy machine they would see faults in the start
	for _, s := range g.Sentinels {
		Eventually(tb, "a sentinel knows everybody", func() bool { return s.knowsGroup(tb) })
	}
	return g
}

// Lag delays the traffic between the primary and its replicas. cut breaks their connections: what is on the way is lost.
func (g *Group) Lag(tb testing.TB, delay time.Duration) (cut func()) {
	tb.Helper()
	g.failoverTimeout(tb, time.Minute) // until it is over the sentinels leave alone who replicates in a way that is not theirs
	var lines []*badnet.Line
	for _, replica := range g.Nodes[1:] {
		line, err := badnet.NewLine(g.Nodes[0].Addr, delay)
		must(tb, err)
		tb.Cleanup(line.Cut)
		lines = append(lines, line)
		host, port, _ := strings.Cut(line.Addr, ":")
		must(tb, replica.Client(tb).ReplicaOf(context.Background(), host, port).Err())
		Eventually(tb, "a replica is back on the long way", func() bool {
			return replica.Info(tb, "master_port") == port && replica.Info(tb, "master_link_status") == "up"
		})
	}
	Eventually(tb, "both replicas are online", func() bool { return g.Nodes[0].online(tb) == 2 })
	return func() {
		for _, line := range lines {
			line.Cut()
		}
		g.failoverTimeout(tb, 3*time.Second)
	}
}

func (g *Group) failoverTimeout(tb testing.TB, d time.Duration) {
	tb.Helper()
	for _, s := range g.Sentinels {
		must(tb, s.Client(tb).Do(context.Background(), "SENTINEL", "SET", groupName, "failover-timeout", d.Milliseconds()).Err())
	}
}

// startSentinels starts three sentinels. Their configurations name the other two, which saves the seconds to discover each
// other.
func (g *Group) startSentinels(tb testing.TB, tries int) (err error) {
	ports, ids := make([]int, 3), make([]string, 3)
	for i := range ports {
		ports[i], ids[i] = freePort(), sentinelID()
	}
	for i, port := range ports {
		dir := tb.TempDir()
		config := filepath.Join(dir, "sentinel.conf")
		must(tb, os.WriteFile(config, []byte(g.sentinelConfig(i, ports, ids)), 0o600))
		s := newServer(Binary(tb), dir, port, []string{config, "--sentinel"})
		if err = s.spawn(); err != nil {
			break
		}
		tb.Cleanup(s.Kill)
		g.Sentinels = append(g.Sentinels, s)
	}
	if err != nil && tries > 1 { // somebody took a port
		for _, s := range g.Sentinels {
			s.Kill()
		}
		g.Sentinels = nil
		return g.startSentinels(tb, tries-1)
	}
	return err
}

func sentinelID() string {
	id := make([]byte, 20)
	rand.Read(id)
	return fmt.Sprintf("%x", id)
}

func (g *Group) sentinelConfig(self int, ports []int, ids []string) string {
	address := func(s *Server) string { return strings.Replace(s.Addr, ":", " ", 1) }
	var b strings.Builder
	fmt.Fprintf(&b, "sentinel myid %s\nsentinel monitor %s %s 2\n", ids[self], groupName, address(g.Nodes[0]))
	fmt.Fprintf(&b, "sentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 3000\nsentinel parallel-syncs %[1]s 2\n", groupName)
	for _, replica := range g.Nodes[1:] {
		fmt.Fprintf(&b, "sentinel known-replica %s %s\n", groupName, address(replica))
	}
	for i := range ports {
		if i != self {
			fmt.Fprintf(&b, "sentinel known-sentinel %s 127.0.0.1 %d %s\n", groupName, ports[i], ids[i])
		}
	}
	return b.String()
}

// online counts the replicas that the server sends its writes to.
func (s *Server) online(tb testing.TB) int {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	return strings.Count(client.Info(context.Background(), "replication").Val(), "state=online")
}

func (s *Server) knowsGroup(tb testing.TB) bool {
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addr})
	defer sentinel.Close()
	group, err := sentinel.Master(context.Background(), groupName).Result()
	return err == nil && group["num-slaves"] == "2" && group["num-other-sentinels"] == "2" && group["flags"] == "master" &&
		sentinel.CkQuorum(context.Background(), groupName).Err() == nil
}

// Primary returns the node that all sentinels call the primary.
func (g *Group) Primary(tb testing.TB) *Server {
	tb.Helper()
	primary := g.Agreed()
	if primary == nil {
		tb.Fatalf("redistest: the sentinels do not agree on a primary")
	}
	return primary
}

// Agreed returns the primary, or nil if the sentinels do not agree. A failover reaches one sentinel after the other, and a
// client may ask any of them.
func (g *Group) Agreed() *Server {
	votes := map[string]int{}
	for _, s := range g.Sentinels {
		if addr := s.primaryOf(); addr != "" {
			votes[addr]++
		}
	}
	for _, node := range g.Nodes {
		if votes[node.Addr] == len(g.Sentinels) {
			return node
		}
	}
	return nil
}

// Failovers returns how many failovers there were.
func (g *Group) Failovers(tb testing.TB) (n int) {
	tb.Helper()
	for _, s := range g.Sentinels {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addr})
		epoch, err := strconv.Atoi(sentinel.Master(context.Background(), groupName).Val()["config-epoch"])
		must(tb, err)
		must(tb, sentinel.Close())
		n = max(n, epoch)
	}
	return n
}

func (s *Server) primaryOf() string {
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addr, DialTimeout: time.Second, ReadTimeout: time.Second})
	defer sentinel.Close()
	addr, err := sentinel.GetMasterAddrByName(context.Background(), groupName).Result()
	if err != nil || len(addr) != 2 {
		return ""
	}
	return net.JoinHostPort(addr[0], addr[1])
}

// Replicas returns the nodes that are not the primary.
func (g *Group) Replicas(tb testing.TB) (replicas []*Server) {
	tb.Helper()
	primary := g.Primary(tb)
	for _, node := range g.Nodes {
		if node != primary {
			replicas = append(replicas, node)
		}
	}
	return replicas
}

// Client returns a client that asks the sentinels for the primary, after change if there is one.
func (g *Group) Client(tb testing.TB, change ...func(*redis.FailoverOptions)) *redis.Client {
	options := &redis.FailoverOptions{MasterName: groupName, ContextTimeoutEnabled: true}
	for _, s := range g.Sentinels {
		options.SentinelAddrs = append(options.SentinelAddrs, s.Addr)
	}
	for _, f := range change {
		f(options)
	}
	client := redis.NewFailoverClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Sentinel starts a group for this test and returns a client of it and its primary.
func Sentinel(tb testing.TB) (*redis.Client, *Server) {
	tb.Helper()
	g := StartGroup(tb)
	return g.Client(tb), g.Nodes[0]
}
