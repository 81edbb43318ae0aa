package plan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	slots     = 16384 // hash slots of a Redis Cluster
	mostNodes = 1000  // for which Redis Cluster is made, by its specification
)

// Cluster is a Redis Cluster for a load. Redis has the name of a record hashed to a slot. The name is a hash itself, of scope and key,
// so the records of one caller are spread over all nodes like those of all.
type Cluster struct {
	Load    Load
	Nodes   int           // masters; 0 for as many as the limits need
	Replays float64       // replays for each new key
	Hottest float64       // the part of all requests that are replays of one key
	Zipf    float64       // the exponent by which the replays are spread over the keys; 0 spreads them evenly
	Tenant  float64       // the part of all new keys that one scope has; 0 draws none
	Costs   Costs         // of the servers, for a response of 512 bytes
	Busy    float64       // the part of a core that a node may use
	Memory  int           // the bytes of a node for records
	Network float64       // bits per second of a node, in each direction
	Lag     time.Duration // by which replicas are behind their masters
	Wait    bool          // redisstore.WaitReplicas: no call counts before a replica has it
	Outage  Outage        // what decides how long clients notice that a master was lost
	Seconds int           // to simulate
	Seed    uint64
}

// Costs is the CPU time of the server for one call, in µs.
type Costs struct{ Claim, Outcome, Replay float64 }

// KnownCosts are medians of the part commands of bench/results.json, of 64 clients one by one and of 256 in batches. A replay is one
// between claims: what "claim and replay" costs more than a claim. In a burst of replays each costs less.
var KnownCosts = map[string]Costs{
	"redis":          {6.1, 9.2, 6.7},
	"redis batches":  {2.0, 5.2, 2.4},
	"valkey":         {5.8, 5.0, 6.0},
	"valkey batches": {2.1, 1.3, 1.6},
}

// Validate returns an error that lists every value out of bounds, with the name of its flag.
func (c Cluster) Validate() error {
	errs := []error{c.Load.Validate()}
	check := func(ok bool, name string, value any, must string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s %v: must be %s", name, value, must))
		}
	}
	check(c.Load.Rate <= 1e7, "rate", c.Load.Rate, "at most 1e7 with --simulate")
	check(c.Nodes >= 0 && c.Nodes <= mostNodes, "nodes", c.Nodes, "0 to 1000, which is the most that Redis Cluster is made for")
	check(c.Replays >= 0 && c.Replays <= 100, "replays", c.Replays, "0 to 100")
	check(c.Hottest >= 0 && c.Hottest < 1, "hottest", c.Hottest, "0 or above, and below 1")
	check(c.Zipf >= 0 && c.Zipf <= maxZipf, "zipf", c.Zipf, "0 to 3; above that nearly all replays are of one key, so use --hottest for it")
	check(!(c.Zipf > 0 && c.Replays == 0), "zipf", c.Zipf, "0 if --replays is 0, since it spreads replays; or set --replays above 0")
	check(c.Tenant >= 0 && c.Tenant <= 1, "tenant", c.Tenant, "0 to 1")
	check(c.Busy > 0 && c.Busy <= 1, "busy", c.Busy, "above 0 and at most 1")
	check(c.Memory >= 1<<20, "node-memory", c.Memory, "at least 1 MiB, in bytes")
	check(c.Network >= 1e6, "node-network", c.Network, "at least 1e6, in bits per second")
	check(c.Lag >= 0 && c.Lag <= time.Minute, "lag", c.Lag, "0 to 1m")
	c.Outage.validate(check)
	check(c.Seconds >= 1 && c.Seconds <= 60, "seconds", c.Seconds, "1 to 60")
	check(c.Load.Rate*(1+c.Replays)*float64(c.Seconds) <= 1e9, "seconds", c.Seconds, "so few that at most 1e9 requests are drawn")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	size, enough := c.Size(), "so much that 16384 masters suffice, as many as a Cluster has slots, or --rate lower"
	if c.Hottest > 0 {
		enough += "; the replays of --hottest all go to one of them, so lower that, too"
	}
	if c.Zipf > 0 {
		enough += "; the replays of one key all go to one of them, so lower --zipf or --replays, too"
	}
	check(size.CPU <= slots, "busy", c.Busy, enough)
	check(size.Memory <= slots, "node-memory", c.Memory, enough)
	check(size.Network <= slots, "node-network", c.Network, enough)
	return errors.Join(errs...)
}

// requests is how many requests there are for each new key, the new one included.
func (c Cluster) requests() float64 { return (1 + c.Replays) / (1 - c.Hottest) }

// use is what a master does in a second: the part of a core, and the bits in each direction.
type use struct{ cpu, in, out float64 }

// network returns the bits of the direction that has more.
func (u use) network() float64 { return max(u.in, u.out) }

// perSecond returns what so many new keys and replays in a second take.
func (c Cluster) perSecond(fresh, replays float64) use {
	w := c.wire()
	return use{
		cpu: (fresh*(c.Costs.Claim+c.Costs.Outcome) + replays*c.Costs.Replay) / 1e6,
		in:  8 * (fresh*float64(w.claimIn+w.outcomeIn) + replays*float64(w.claimIn)),
		out: 8 * (fresh*float64(w.claimOut+w.outcomeOut+w.replicated) + replays*float64(w.replayOut)),
	}
}

// hot is how many replays of the hottest key there are in a second.
func (c Cluster) hot() float64 { return c.Load.Rate * (c.requests() - 1 - c.Replays) }

// Bytes returns the memory of all records if one server had them. Several have a little more or less, since each of them rounds
// its tables up.
func (c Cluster) Bytes() int { return c.part(1) }

// part returns the memory of a part of all records on one server.
func (c Cluster) part(of float64) int {
	return c.memory(keys(of*c.Load.Rate, c.Load.Handler), keys(of*c.Load.Rate, c.Load.Retention))
}

// memory returns the memory of so many records of runs in progress and of outcomes on one server. Each has an entry in the index of
// slots, besides what it takes on a server without a Cluster.
func (c Cluster) memory(running, kept int) int {
	claim, outcome, _ := c.Load.Bytes()
	return running*claim + kept*outcome + (running+kept)*c.Load.Quantum.alloc(slotIndexLength) + tables(running+kept)
}

// slotIndexLength is what Redis 7 keeps with each key of a Cluster: the neighbours in its slot.
const slotIndexLength = 16

// Size is how many masters each limit needs, and one more than a Cluster has slots if none of them suffices.
type Size struct {
	CPU     int `json:"for_cpu"`
	Memory  int `json:"for_memory"`
	Network int `json:"for_network"`
}

// Size returns how many masters each limit needs, so that the one with the most slots and with the hottest key stays within it. With
// Zipf, other keys with many replays can meet on one master, so the masters are counted for the slots that Seed has drawn for them.
func (c Cluster) Size() Size {
	popular := c.popular()
	return Size{
		CPU:     leastMasters(func(masters int) bool { return c.most(popular, masters).cpu <= c.Busy }),
		Memory:  leastMasters(func(masters int) bool { return c.part(mostSlots(masters)) <= c.Memory }),
		Network: leastMasters(func(masters int) bool { return c.most(popular, masters).network() <= c.Network }),
	}
}

// most returns what a master with the most slots and the most replays of popular keys has to do.
func (c Cluster) most(popular popular, masters int) use {
	share := mostSlots(masters)
	return c.perSecond(share*c.Load.Rate, share*c.Load.Rate*c.Replays*popular.rest+c.hot()+popular.most(masters))
}

// mostSlots returns the share of all slots that the master with the most of them has.
func mostSlots(masters int) float64 { return float64((slots+masters-1)/masters) / slots }

// leastMasters returns the least number of masters that stay within a limit, and slots+1 if no number does. Masters with one slot
// each have the least to do, so if they do not stay within it, no others do.
func leastMasters(stayWithin func(masters int) bool) int {
	if !stayWithin(slots) {
		return slots + 1
	}
	for masters := 1; ; masters++ {
		if stayWithin(masters) {
			return masters
		}
	}
}

// masters returns how many masters there are. With Zipf one more master can put two hot keys on one of them, so masters goes on until
// all limits hold.
func (c Cluster) masters() int {
	if c.Nodes > 0 {
		return c.Nodes
	}
	size, popular := c.Size(), c.popular()
	n := max(size.CPU, size.Memory, size.Network)
	for ; n < slots; n++ {
		if most := c.most(popular, n); most.cpu <= c.Busy && most.network() <= c.Network {
			break
		}
	}
	return n
}

// Node is what one master had to do.
type Node struct {
	Slots   int     `json:"slots"`
	New     float64 `json:"new_keys_per_second"`
	Replays float64 `json:"replays_per_second"`
	Tenant  float64 `json:"new_keys_of_tenant_per_second,omitempty"`
	Peak    int     `json:"requests_in_the_busiest_second"`
	CPU     float64 `json:"cpu"` // the part of a core in that second
	Memory  int     `json:"memory_bytes"`
	In      float64 `json:"bits_in_per_second"`
	Out     float64 `json:"bits_out_per_second"`
}

// Loss is what becomes of the requests when the busiest master is lost.
type Loss struct {
	Node      int `json:"node"`             // its index
	Claims    int `json:"lost_claims"`      // whose run goes on, while a retry may begin another one
	Outcomes  int `json:"lost_outcomes"`    // which were acknowledged: a retry runs again
	Refused   int `json:"refused_requests"` // of its keys, with 503, in the longest outage
	Elsewhere int `json:"refused_requests_of_other_keys"`

	Shortest Seconds `json:"shortest_outage_seconds"`
	Longest  Seconds `json:"longest_outage_seconds"`
	Retries  Retries `json:"retries"`
}

// Simulate draws the keys of some seconds, and what is lost with the busiest master. One seed gives one result.
func (c Cluster) Simulate() ([]Node, Loss) {
	random := rand.New(rand.NewPCG(c.Seed, c.Seed)) // #nosec G404: it simulates
	nodes := make([]Node, c.masters())
	for slot := range slots {
		nodes[slot*len(nodes)/slots].Slots++
	}
	hottest, popular := random.IntN(slots)*len(nodes)/slots, c.popular()
	for range c.Seconds {
		c.second(random, nodes, hottest, popular)
	}
	for i := range nodes {
		c.finish(&nodes[i])
	}
	return nodes, c.lose(random, nodes)
}

// second adds the requests of one second to the sums of the nodes.
func (c Cluster) second(random *rand.Rand, nodes []Node, hottest int, popular popular) {
	fresh, replays := make([]int, len(nodes)), make([]int, len(nodes))
	for range poisson(random, c.Load.Rate) {
		node := random.IntN(slots) * len(nodes) / slots
		fresh[node]++
		if c.Tenant > 0 && random.Float64() < c.Tenant {
			nodes[node].Tenant++
		}
	}
	for range poisson(random, c.Load.Rate*c.Replays*popular.rest) {
		replays[random.IntN(slots)*len(nodes)/slots]++
	}
	for _, key := range popular.keys {
		replays[key.slot*len(nodes)/slots] += poisson(random, key.replays)
	}
	replays[hottest] += poisson(random, c.hot())
	for i := range nodes {
		c.add(&nodes[i], fresh[i], replays[i])
	}
}

// add adds the requests of one second to the sums of a node.
func (c Cluster) add(n *Node, fresh, replays int) {
	n.New += float64(fresh)
	n.Replays += float64(replays)
	n.Peak = max(n.Peak, fresh+replays)
	n.CPU = max(n.CPU, c.perSecond(float64(fresh), float64(replays)).cpu)
}

// finish makes rates of the sums of a node.
func (c Cluster) finish(n *Node) {
	seconds := float64(c.Seconds)
	n.New, n.Replays, n.Tenant = n.New/seconds, n.Replays/seconds, n.Tenant/seconds
	n.Memory = c.part(float64(n.Slots) / slots)
	used := c.perSecond(n.New, n.Replays)
	n.In, n.Out = used.in, used.out
}

// lose draws what is lost with the busiest node: what its replica has not got, and the requests that are refused meanwhile.
func (c Cluster) lose(random *rand.Rand, nodes []Node) Loss {
	busiest, all := 0, 0.0
	for i := range nodes {
		all += nodes[i].New + nodes[i].Replays
		if nodes[i].CPU > nodes[busiest].CPU {
			busiest = i
		}
	}
	n, lost := nodes[busiest], Loss{Node: busiest}
	if !c.Wait {
		lost.Claims = poisson(random, n.New*min(c.Lag, c.Load.Handler).Seconds()) // the others have ended, with an outcome
		lost.Outcomes = poisson(random, n.New*c.Lag.Seconds())
	}
	shortest, longest := c.Outage.bounds()
	lost.Shortest, lost.Longest = Seconds(shortest), Seconds(longest)
	lost.Refused = poisson(random, (n.New+n.Replays)*longest.Seconds())
	lost.Elsewhere = poisson(random, (all-n.New-n.Replays)*c.Outage.elsewhere().Seconds())
	lost.Retries = retries(random, longest)
	return lost
}

// poisson draws how many events there are where mean are expected.
func poisson(random *rand.Rand, mean float64) int {
	if mean > 100 { // the normal distribution is as good, and takes no longer for more
		return max(0, int(math.Round(mean+math.Sqrt(mean)*random.NormFloat64())))
	}
	n := 0
	for left := random.ExpFloat64(); left < mean; left += random.ExpFloat64() {
		n++
	}
	return n
}

// wire is how many bytes the calls take between client and server.
type wire struct {
	claimIn, claimOut, outcomeIn, outcomeOut, replayOut int
	replicated                                          int // what the master sends to one replica for a new key
}

// wire returns the bytes of a claim by SET with PEXPIRETIME, of an outcome by a script, and of a replay, which sends what a claim does.
func (c Cluster) wire() wire {
	retention := strconv.FormatInt(c.Load.Retention.Milliseconds(), 10)
	record := headerLength + c.Load.outcome()
	const milliseconds, fence, hash, owner = 13, 16, 40, 16 // digits and bytes
	expiry := array(len("pexpiretime"), nameLength)
	claim := array(len("set"), nameLength, claimLength, len("nx"), len("get"), len("px"), len(retention)) + expiry
	return wire{
		claimIn: claim, claimOut: len("$-1\r\n") + integer(milliseconds),
		outcomeIn:  array(len("evalsha"), hash, len("1"), nameLength, owner, fence, len(retention), record),
		outcomeOut: bulk(len("ok")),
		replayOut:  bulk(record) + integer(milliseconds),
		replicated: array(len("set"), nameLength, claimLength, len("pxat"), milliseconds) +
			array(len("set"), nameLength, record, len("pxat"), milliseconds),
	}
}

// bulk returns the bytes of a string of the protocol of Redis with so many bytes.
func bulk(n int) int { return len("$") + len(strconv.Itoa(n)) + 2 + n + 2 }

// integer returns the bytes of a number with so many digits.
func integer(digits int) int { return len(":") + digits + 2 }

// array returns the bytes of a command whose arguments have so many bytes.
func array(arguments ...int) int {
	sum := len("*") + len(strconv.Itoa(len(arguments))) + 2
	for _, n := range arguments {
		sum += bulk(n)
	}
	return sum
}
