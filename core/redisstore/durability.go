package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// WaitReplicas has Begin and Complete wait, for at most timeout, until replicas have the write, by a WAIT in the pipeline of
// the write itself. When fewer answer, Begin returns driver.ErrNotDurable, so that nothing runs, and Complete is sent again.
// It costs a round trip to the replicas, and is no guarantee: a replica that has not got the write may be promoted. The
// timeout must be less than Config.Limits.StoreTimeout and the client's ReadTimeout. Default: no wait.
func WaitReplicas(replicas int, timeout time.Duration) Option {
	return func(s *Store) { s.durability = durability{command: "WAIT", replicas: replicas, timeout: timeout} }
}

// WaitAOF is WaitReplicas, and each server, the one that holds the key included, has written its append-only file to disk.
// Redis 7.2 and later, with appendonly yes. Replicas may be 0. With appendfsync everysec a server writes to disk once a second,
// and later when the disk is busy, so the timeout must be more than that; with always it does at once.
func WaitAOF(replicas int, timeout time.Duration) Option {
	return func(s *Store) { s.durability = durability{command: "WAITAOF", replicas: replicas, timeout: timeout} }
}

// durability is what a write waits for. Without a command it waits for nothing.
type durability struct {
	command  string
	replicas int
	timeout  time.Duration
}

func (d durability) enabled() bool { return d.command != "" }

func (d durability) validate() {
	if !d.enabled() {
		return
	}
	if d.timeout < time.Millisecond || d.replicas < 0 || d.replicas == 0 && d.command == "WAIT" {
		panic(fmt.Sprintf("redisstore: New: %s of %d replicas for %v: wants at least one replica and one millisecond", d.command, d.replicas, d.timeout))
	}
}

// enqueue puts the wait behind the commands in p.
func (d durability) enqueue(ctx context.Context, p redis.Pipeliner) *redis.Cmd {
	if d.command == "WAIT" {
		return p.Do(ctx, d.command, d.replicas, d.timeout.Milliseconds())
	}
	return p.Do(ctx, d.command, 1, d.replicas, d.timeout.Milliseconds())
}

// check tells whether the servers that answered are enough.
func (d durability) check(answer *redis.Cmd) error {
	if d.command == "WAIT" {
		n, err := answer.Int()
		return d.checkCounts(1, n, err)
	}
	counts, err := answer.Int64Slice()
	if err == nil && len(counts) != 2 {
		err = fmt.Errorf("idem: WAITAOF answered %d numbers", len(counts))
	}
	if err != nil {
		return err
	}
	return d.checkCounts(int(counts[0]), int(counts[1]), nil)
}

func (d durability) checkCounts(local, replicas int, err error) error {
	if err != nil {
		return err
	}
	if local < 1 || replicas < d.replicas {
		return fmt.Errorf("%w: %s: %d of %d replicas have it", driver.ErrNotDurable, d.command, replicas, d.replicas)
	}
	return nil
}

// node returns the client of the server that holds key: a cluster client would send a WAIT to any of them.
func (s *Store) node(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return s.client, nil
}
