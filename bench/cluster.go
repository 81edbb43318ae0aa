package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// clusterSpeed is a Cluster of so many masters under a load of pairs.
type clusterSpeed struct {
	nodes  int
	client string
	rounds []clusterRound
}

type clusterRound struct {
	pairs               // CPU of the servers is that of all nodes
	commands    float64 // µs per pair that the nodes were in commands, by their own account
	least, most float64 // share of the keys that a node has
}

var clusterSizes = []int{1, 3, 6}

const clusterLoad = 64 // goroutines

var clusterWays = []struct {
	name    string
	options []redisstore.Option
}{
	{"plain client", nil},
	{"redisstore in batches", []redisstore.Option{redisstore.Batch()}},
}

// cluster is one that is measured.
type cluster struct {
	nodes  []*redis.Client
	client *redis.ClusterClient
	end    func()
}

// measureClusters lets goroutines claim and complete new keys, on each Cluster in turn.
func measureClusters(b *bench) error {
	var clusters []*cluster
	b.results.clusters = make([]clusterSpeed, len(clusterSizes)*len(clusterWays))
	for _, n := range clusterSizes {
		c, err := b.startCluster(n)
		if err != nil {
			return err
		}
		defer c.end()
		clusters = append(clusters, c)
	}
	for r := range b.plan.clients {
		for k := range b.results.clusters {
			i := (k + r) % len(b.results.clusters)
			c, w, speed := clusters[i/len(clusterWays)], clusterWays[i%len(clusterWays)], &b.results.clusters[i]
			found, err := c.pairs(throughStore(c.client, w.options...), b.plan.pairs)
			if err != nil {
				return err
			}
			speed.nodes, speed.client, speed.rounds = len(c.nodes), w.name, append(speed.rounds, found)
		}
	}
	return nil
}

// startCluster starts so many masters, each of which knows the scripts.
func (b *bench) startCluster(masters int) (*cluster, error) {
	shards := redistest.StartMasters(b.tb, masters)
	c := &cluster{client: shards.Client(b.tb, func(o *redis.ClusterOptions) { o.PoolSize = clusterLoad })}
	c.end = func() {
		_ = c.client.Close()
		for _, s := range shards.Nodes {
			s.Kill()
		}
	}
	for _, s := range shards.Nodes {
		node := s.Client(b.tb)
		if err := loadScripts(context.Background(), node); err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, node)
	}
	return c, nil
}

// pairs is one round on empty nodes.
func (c *cluster) pairs(pair pairing, lasting time.Duration) (r clusterRound, err error) {
	ctx := context.Background()
	for _, node := range c.nodes {
		if err := node.FlushAll(ctx).Err(); err != nil {
			return r, err
		}
		if err := node.ConfigResetStat(ctx).Err(); err != nil {
			return r, err
		}
	}
	if r.pairs, err = timePairs(pair, clusterLoad, 1, lasting, c.used); err != nil {
		return r, err
	}
	var keys []float64
	usec, all := 0.0, 0.0
	for _, node := range c.nodes {
		n, err := node.DBSize(ctx).Result()
		if err != nil {
			return r, err
		}
		keys, all, usec = append(keys, float64(n)), all+float64(n), usec+commandTime(ctx, node, "evalsha", "get")
	}
	r.commands, r.least, r.most = usec/all, slices.Min(keys)/all, slices.Max(keys)/all
	return r, nil
}

func (c *cluster) used() cpu {
	sum := cpu{own: ownCPU()}
	for _, node := range c.nodes {
		sum.server += serverCPU(node)
	}
	return sum
}

// commandTime is how long a server was in commands since its statistics were reset, in µs.
func commandTime(ctx context.Context, client *redis.Client, commands ...string) (usec float64) {
	info := client.Info(ctx, "commandstats").Val() // without an answer, all that is measured fails
	for _, found := range commandStat.FindAllStringSubmatch(info, -1) {
		if slices.Contains(commands, found[1]) {
			total, _ := strconv.ParseFloat(found[3], 64) // digits only
			usec += total
		}
	}
	return usec
}
