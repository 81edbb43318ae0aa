package redisstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// isRedirect tells whether a node says that another one has the key.
func isRedirect(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

const (
	maxRedirects  = 16
	redirectPause = 5 * time.Millisecond // then longer each time: nodes do not learn at the same moment who has a slot
)

// resend sends a query again that was refused with err: to a server that does not know the script, such as a replica that was
// just promoted, its text, and to the node that has the key now, if it was another.
func (s *Store) resend(ctx context.Context, node redis.UniversalClient, q *query, err error) error {
	for tries := range maxRedirects {
		target, done := node, func() {}
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			q.args[0], q.args[1] = "eval", q.script.text
		case isRedirect(err):
			pause(ctx, time.Duration(tries)*redirectPause)
			if target, done, err = s.redirectTarget(ctx, q, err); err != nil {
				return err
			}
		default:
			return err
		}
		err = q.roundTrip(ctx, target, s.durability)
		done()
		if !q.asking {
			node = target
		}
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// redirectTarget returns the client to send a query to that was refused with a redirection. A cluster client follows it by itself,
// but would send the WAIT behind it to any node. done gives the client back.
func (s *Store) redirectTarget(ctx context.Context, q *query, err error) (node redis.UniversalClient, done func(), _ error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil, nil, err
	}
	cluster.ReloadState(ctx) // for those to come
	if !s.durability.enabled() {
		return cluster, func() {}, nil
	}
	q.asking = redis.HasErrorPrefix(err, "ASK")
	fields := strings.Fields(err.Error())
	return clientAt(ctx, cluster, q.name, fields[len(fields)-1])
}

// clientAt returns the client of a node of a Cluster. One that has no slots yet is not among those that the cluster client tells
// of: it gets a client for the moment, like that of the node that has the key.
func clientAt(ctx context.Context, cluster *redis.ClusterClient, key, addr string) (*redis.Client, func(), error) {
	var mu sync.Mutex
	var found *redis.Client
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if node.Options().Addr == addr {
			found = node
		}
		return nil
	})
	if found != nil {
		return found, func() {}, nil
	}
	near, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	options := *near.Options()
	options.Addr, options.PoolSize, options.MinIdleConns = addr, 1, 0
	own := redis.NewClient(&options)
	return own, func() { _ = own.Close() }, nil
}
