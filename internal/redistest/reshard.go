package redistest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reshard moves slots with their keys from one master of a cluster to another. It does so in steps, as redis-cli does.
type Reshard struct {
	tb       testing.TB
	cluster  *Shards
	from, to *Server
	slots    []int
}

// Reshard begins to move slots. From now on keys of these slots may be on either master.
func (c *Shards) Reshard(tb testing.TB, from, to *Server, slots ...int) *Reshard {
	tb.Helper()
	r := &Reshard{tb, c, from, to, slots}
	r.set(to, "IMPORTING", from)
	r.set(from, "MIGRATING", to)
	return r
}

// SlotsOf returns the slots that a master has.
func (c *Shards) SlotsOf(tb testing.TB, master *Server) (slots []int) {
	tb.Helper()
	for _, r := range master.slotRanges(tb) {
		if len(r.Nodes) > 0 && r.Nodes[0].Addr == master.Addr {
			for slot := r.Start; slot <= r.End; slot++ {
				slots = append(slots, slot)
			}
		}
	}
	return slots
}

// slotRanges tells which node has which slots, as the server sees it.
func (s *Server) slotRanges(tb testing.TB) []redis.ClusterSlot {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr}) // closed here, because tests poll, and a server has 10,000 connections
	defer client.Close()
	//lint:ignore SA1019 Redis before 7.0 has no CLUSTER SHARDS
	ranges, err := client.ClusterSlots(context.Background()).Result()
	must(tb, err)
	return ranges
}

// set sets the state of all slots on one node, some at a time: a server writes its file for each, and answers nobody meanwhile.
func (r *Reshard) set(on *Server, state string, other *Server) {
	r.tb.Helper()
	ctx, id, client := context.Background(), other.id(r.tb), on.Client(r.tb)
	for slots := range slices.Chunk(r.slots, 10) {
		Eventually(r.tb, on.Addr+" has set the state of slots", func() bool {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, slot := range slots {
					p.Do(ctx, "CLUSTER", "SETSLOT", slot, state, id)
				}
				return nil
			})
			if err != nil && strings.HasPrefix(err.Error(), "NOREPLICAS") { // Valkey 8 asks its replicas first, which may be busy
				return false
			}
			must(r.tb, err)
			return true
		})
	}
}

// Keys moves at most this many keys of each slot, and returns how many it has moved.
func (r *Reshard) Keys(most int) (moved int) {
	r.tb.Helper()
	ctx, from := context.Background(), r.from.Client(r.tb)
	cmds, err := from.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, slot := range r.slots {
			p.ClusterGetKeysInSlot(ctx, slot, most)
		}
		return nil
	})
	must(r.tb, err)
	for _, cmd := range cmds {
		for _, key := range cmd.(*redis.StringSliceCmd).Val() {
			if r.cluster.migrate(from, r.to, key) {
				moved++
			}
		}
	}
	return moved
}

// Migrate moves a key from one master to another. It reports whether the key was there.
func (c *Shards) Migrate(tb testing.TB, from, to *Server, key string) bool {
	tb.Helper()
	return c.migrate(from.Client(tb), to, key)
}

// migrate is Migrate with a client of the master that has the key. It moves one key of the cluster at a time: MIGRATE blocks its
// server until the other one has the key, so two servers that send each other one would wait for each other, and all clients for
// them, until the timeout.
func (c *Shards) migrate(from *redis.Client, to *Server, key string) bool {
	host, port, _ := strings.Cut(to.Addr, ":")
	c.migrating.Lock()
	defer c.migrating.Unlock()
	return from.Migrate(context.Background(), host, port, key, 0, 5*time.Second).Val() == "OK"
}

// End moves the keys that are left, and then the slots. It returns how many keys there were.
func (r *Reshard) End() (moved int) {
	r.tb.Helper()
	for n := r.Keys(100); n > 0; n = r.Keys(100) {
		moved += n
	}
	r.handOver()
	return moved
}

// handOver assigns the slots to their new master, and returns when all nodes know this and the new master's epoch. It does
// this for one move at a time. Each move gives the new master a configuration epoch above all that it knows of. If a node
// hears of two moves in the wrong order, the old master of the first slot already has the higher epoch. The node then still
// counts the first slot as the old master's, and makes the new master give the slot up: after that, no master has it.
func (r *Reshard) handOver() {
	r.tb.Helper()
	r.cluster.handingOver.Lock()
	defer r.cluster.handingOver.Unlock()
	r.set(r.to, "NODE", r.to)
	r.set(r.from, "NODE", r.to)
	id := r.to.id(r.tb)
	epoch := r.to.epochOf(r.tb, id)
	for _, node := range r.cluster.Nodes {
		Eventually(r.tb, node.Addr+" has heard of it", func() bool {
			return node.knows(r.tb, r.slots[0], r.to) && node.epochOf(r.tb, id) == epoch
		})
	}
}

// epochOf returns the configuration epoch of a node, as the server knows it.
func (s *Server) epochOf(tb testing.TB, id string) string {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	nodes, err := client.ClusterNodes(context.Background()).Result()
	must(tb, err)
	for line := range strings.Lines(nodes) {
		if fields := strings.Fields(line); fields[0] == id {
			return fields[6]
		}
	}
	return ""
}

// knows reports whether the server knows that holder has a slot.
func (s *Server) knows(tb testing.TB, slot int, holder *Server) bool {
	for _, r := range s.slotRanges(tb) {
		if r.Start <= slot && slot <= r.End {
			return len(r.Nodes) > 0 && r.Nodes[0].Addr == holder.Addr
		}
	}
	return false
}
