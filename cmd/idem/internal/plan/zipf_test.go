package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWeightsAreTheSumOverAllRanks(t *testing.T) {
	for _, s := range []float64{0.5, 0.99, 1, 1.2, 3} {
		const n = 200_000
		sum := 0.0
		for rank := n; rank > 0; rank-- {
			sum += math.Pow(float64(rank), -s)
		}
		assert.InEpsilon(t, sum, weights(n, s), 1e-7, "exponent %v", s)
		assert.InDelta(t, 1, weights(1, s), 1e-9, "one key has all")
	}
}

func TestReplaysFollowZipf(t *testing.T) {
	for _, c := range []struct {
		name    string
		zipf    float64
		replays float64
		first   float64 // the part of all replays that the most popular key has
	}{
		{"half of the law", 0.5, 1, 0.5 / math.Sqrt(1e5*3600)},
		{"the law itself", 1, 1, 1 / (math.Log(1e5*3600) + 0.5772)},
		{"more than the law", 2, 1, 6 / (math.Pi * math.Pi)},
	} {
		cluster := planned(100_000)
		cluster.Zipf, cluster.Replays = c.zipf, c.replays
		p := cluster.popular()
		assert.InEpsilon(t, c.first*1e5*c.replays, p.keys[0].replays, 0.001, c.name)
		assert.InEpsilon(t, math.Pow(2, c.zipf), p.keys[0].replays/p.keys[1].replays, 1e-9, c.name)
		drawn := 0.0
		for _, key := range p.keys {
			drawn += key.replays
		}
		assert.InEpsilon(t, 1e5*c.replays, drawn+p.rest*1e5*c.replays, 1e-6, "%s: no replay is lost", c.name)
		assert.InEpsilon(t, drawn, p.upTo[slots], 1e-9, c.name)
	}
}

// The replays of all masters are those that there are, and the master with the most popular key has at least that one's.
func TestAPopularKeyIsOfOneMaster(t *testing.T) {
	c := planned(100_000)
	c.Zipf, c.Replays, c.Nodes = 1.2, 1, 10
	popular := c.popular()
	nodes, loss := c.Simulate()
	sum, most := 0.0, 0.0
	for _, n := range nodes {
		sum, most = sum+n.Replays, max(most, n.Replays)
	}
	assert.InEpsilon(t, 100_000, sum, 0.01)
	first := nodes[popular.keys[0].slot*len(nodes)/slots]
	assert.Greater(t, first.Replays, popular.keys[0].replays)
	assert.InDelta(t, most, nodes[loss.Node].Replays, 0.001, "it is the busiest")
	assert.InEpsilon(t, popular.most(10)+popular.rest*10_000, most, 0.02)
}

// Two hot keys can meet on one master, and more masters can bring that about, too.
func TestNoMasterHasMoreThanTheLimitsWithPopularKeys(t *testing.T) {
	for seed := range uint64(20) {
		c := planned(100_000)
		c.Zipf, c.Replays, c.Nodes, c.Memory, c.Seed, c.Seconds = 1.1, 2, 0, 1<<50, seed, 2
		nodes, _ := c.Simulate()
		for _, n := range nodes {
			assert.LessOrEqual(t, n.CPU, c.Busy*1.03, "seed %d, of %d masters", seed, len(nodes))
		}
	}
}

func TestOneSeedGivesOnePlaceOfEachKey(t *testing.T) {
	c := planned(100_000)
	c.Zipf = 1
	first := c.popular()
	assert.Equal(t, first, c.popular())
	c.Seed = 2
	assert.NotEqual(t, first.keys[0].slot, c.popular().keys[0].slot)
}

// A tenant's keys are hashed like all others, so the tenant has the same part of each master.
func TestABigTenantIsSpreadOverAllMasters(t *testing.T) {
	c := planned(100_000)
	c.Tenant, c.Nodes = 0.3, 10
	nodes, _ := c.Simulate()
	for i, n := range nodes {
		drawn := n.New * float64(c.Seconds)
		assert.InDelta(t, 0.3, n.Tenant/n.New, 6*math.Sqrt(0.3*0.7/drawn), "node %d", i)
	}
	c.Tenant = 0
	nodes, _ = c.Simulate()
	assert.Zero(t, nodes[0].Tenant)
}
