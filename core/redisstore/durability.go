package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// WaitReplicas makes Begin and Complete wait, for at most timeout, until this many replicas have confirmed the write. If
// fewer do, both return driver.ErrNotDurable: the engine then refuses the request after Begin, and repeats Complete. The
// store pipelines a WAIT with the script, so this costs a round trip from the server to its replicas. It is no guarantee,
// because a replica without the write may be promoted. The timeout counts in ms and must be less than
// Config.Limits.StoreTimeout and the ReadTimeout of the client. Default: no wait.
//
// Reopen and Forget wait as well. Extend, Fail and the calls with steps do not: if a failover loses one of them, a lease ends
// early, a failed key is in progress until its lease ends, or a step runs again.
func WaitReplicas(replicas int, timeout time.Duration) Option {
	return func(s *Store) { s.durability = durability{command: "WAIT", replicas: replicas, timeout: timeout} }
}

// WaitAOF is like WaitReplicas, but waits until the master and this many replicas have written the change to the append-only
// file on their disks. It needs Redis 7.2 or later with appendonly yes; replicas may be 0. With appendfsync everysec a server
// writes its disk once a second, or later if the disk is busy, so the timeout must be longer than that. With appendfsync
// always it writes at once. Default: no wait.
func WaitAOF(replicas int, timeout time.Duration) Option {
	return func(s *Store) { s.durability = durability{command: "WAITAOF", replicas: replicas, timeout: timeout} }
}

// durability is what the writes of a query with a durableStatus wait for. The zero value waits for nothing.
type durability struct {
	command  string // "WAIT", "WAITAOF" or ""
	replicas int
	timeout  time.Duration
}

func (d durability) enabled() bool { return d.command != "" }

// validate panics if the arguments of WaitReplicas or WaitAOF make no sense.
func (d durability) validate() {
	if !d.enabled() {
		return
	}
	if d.timeout < time.Millisecond || d.replicas < 0 || d.replicas == 0 && d.command == "WAIT" {
		panic(fmt.Sprintf("redisstore: New: %s of %d replicas for %v: wants at least one replica and one millisecond",
			d.command, d.replicas, d.timeout))
	}
}

// enqueue adds the wait to a pipeline. It covers the commands before it. It must be in the same pipeline: WAIT counts the
// writes of its own connection only.
func (d durability) enqueue(ctx context.Context, p redis.Pipeliner) *redis.Cmd {
	if d.command == "WAIT" {
		return p.Do(ctx, d.command, d.replicas, d.timeout.Milliseconds())
	}
	return p.Do(ctx, d.command, 1, d.replicas, d.timeout.Milliseconds())
}

// check returns driver.ErrNotDurable if the reply to the wait counts too few servers. The write itself has been executed by
// then, and may still reach the others.
func (d durability) check(reply *redis.Cmd) error {
	if d.command == "WAIT" {
		n, err := reply.Int()
		return d.checkCounts(1, n, err)
	}
	counts, err := reply.Int64Slice()
	if err == nil && len(counts) != 2 {
		err = fmt.Errorf("idem: WAITAOF answered %d numbers", len(counts))
	}
	if err != nil {
		return err
	}
	return d.checkCounts(int(counts[0]), int(counts[1]), nil)
}

// checkCounts compares the numbers of servers that have the write: local is 1 if the master has it.
func (d durability) checkCounts(local, replicas int, err error) error {
	if err != nil {
		return err
	}
	if local < 1 || replicas < d.replicas {
		return fmt.Errorf("%w: %s: %d of %d replicas have it", driver.ErrNotDurable, d.command, replicas, d.replicas)
	}
	return nil
}

// node returns a client of the server that holds key. On Cluster that is one master, because the cluster client would send a
// WAIT to any node.
func (s *Store) node(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return s.client, nil
}
