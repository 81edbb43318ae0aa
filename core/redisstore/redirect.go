package redisstore

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// isRedirect reports whether a node of a Cluster replied that another node has the key: with MOVED, if the other has the slot
// from now on, or with ASK, if the slot is moving there and this node does not have the key.
func isRedirect(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// After a redirect, resend pauses for redirectPause times the number of earlier tries. Nodes do not learn at the same moment
// which of them has a slot, so two of them may redirect to each other for a while.
const (
	maxRedirects  = 16
	redirectPause = 5 * time.Millisecond
)

// resend sends a query again that was refused with err. A server that does not know the script, such as a replica that was
// just promoted, gets its text. After a redirect the query goes to the node that has the key now. A query that was refused
// has changed nothing, so it is safe to send it again. After maxRedirects tries it returns the last error.
func (s *Store) resend(ctx context.Context, node redis.UniversalClient, q *query, err error) error {
	for tries := range maxRedirects {
		target, done := node, func() {}
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			q.args[0], q.args[1] = "eval", q.script.text
		case isRedirect(err):
			pause(ctx, time.Duration(tries)*redirectPause)
			if target, done, err = s.redirectTarget(ctx, node, q, err); err != nil {
				return err
			}
		default:
			return err
		}
		defer done() // at the end of all tries, since the next one may go there with the text of the script
		err = q.roundTrip(ctx, target, s.durability)
		// An ASK counts for one command; after a MOVED the next try goes to the same node.
		if !q.asking {
			node = target
		}
	}
	return err
}

// pause sleeps for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// redirectTarget returns the client for a query that node has redirected with err. The caller calls done after its use. Without
// WaitReplicas and WaitAOF that is the cluster client, which follows redirects. It would send a WAIT to any node, though, so
// with them node is a client of one node, and the query goes to a client of the node that err names.
func (s *Store) redirectTarget(
	ctx context.Context, node redis.UniversalClient, q *query, err error,
) (_ redis.UniversalClient, done func(), _ error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil, nil, err
	}
	if !s.durability.enabled() {
		return cluster, func() {}, nil
	}
	q.asking = redis.HasErrorPrefix(err, "ASK")
	near := node.(*redis.Client)
	target, done := clientAt(ctx, cluster, near, redirectAddr(err, near.Options().Addr))
	return target, done, nil
}

// redirectAddr returns the address that a redirect of the node at near names. A server writes one of IPv6 without brackets, as in
// "MOVED 1 ::1:6379". One that is not to name hosts leaves it out, and one that does not know it writes "?": then it is that of near.
func redirectAddr(err error, near string) string {
	fields := strings.Fields(err.Error())
	addr := fields[len(fields)-1]
	end := max(0, strings.LastIndexByte(addr, ':'))
	host := strings.Trim(addr[:end], "[]")
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(near)
	}
	return net.JoinHostPort(host, addr[end+1:])
}

// clientAt returns a client of the node at addr, after the cluster client has learned which nodes have the slots now. It does not
// list a node that has no slots yet. For such a node clientAt makes a client with the options of near, the client of another node;
// the caller closes it with the returned function.
func clientAt(ctx context.Context, cluster *redis.ClusterClient, near *redis.Client, addr string) (*redis.Client, func()) {
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
		return found, func() {}
	}
	own := newClientLike(near, addr, near.Options().Dialer)
	return own, func() { _ = own.Close() }
}

// newClientLike returns a client for few calls to the server at addr, with the options of another client and with this dialer, if it
// is not nil. go-redis puts the processor of what a server announces into the options of the client that it belongs to; for a second
// one with the same processor it panics, or logs an error.
func newClientLike(near *redis.Client, addr string, dialer func(context.Context, string, string) (net.Conn, error)) *redis.Client {
	options := *near.Options()
	options.Addr, options.Dialer, options.PoolSize, options.MinIdleConns = addr, dialer, 1, 0
	options.PushNotificationProcessor = nil
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&options)
}
