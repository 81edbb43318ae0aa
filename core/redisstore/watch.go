package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch implements driver.Notifier: by one subscription for the process, or on Cluster one for each master with records
// that are waited for, open only while somebody waits. It returns when ctx ends, whatever the connection does; connections
// are made, used and closed in the background. On Cluster the sharded commands of Redis 7.0 are used where the servers have
// them and let this client use them, else those for the whole Cluster.
func (s *Store) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	name := s.recordName(key)
	node, err := s.node(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.notifier.watch(ctx, node, name, wake)
}

// notifier wakes those who wait in this process. Requests only take mu, and nobody holds it while the network is waited for.
type notifier struct {
	cluster   *redis.ClusterClient // nil: the client is of no Cluster
	unsharded atomic.Bool          // on Cluster: a server has refused SSUBSCRIBE, so SUBSCRIBE and PUBLISH serve

	mu   sync.Mutex
	subs map[redis.UniversalClient]*subscription // by node
}

func newNotifier(client redis.UniversalClient) *notifier {
	n := &notifier{subs: map[redis.UniversalClient]*subscription{}}
	n.cluster, _ = client.(*redis.ClusterClient)
	return n
}

// sharded tells whether SSUBSCRIBE is used: on Cluster, who publishes to all nodes wakes nobody faster.
func (n *notifier) sharded() bool { return n.cluster != nil && !n.unsharded.Load() }

// subscription is what this process waits for on one node. A goroutine of its own, see listen, talks to the node.
type subscription struct {
	node         redis.UniversalClient
	channels     map[string][]*watch // by name; none is empty
	changedNames []string            // names that have come or gone since the goroutine looked
	changed      chan struct{}       // has room for one; says that there are news
}

// watch is one call of Watch.
type watch struct {
	name        string
	wake        func()
	sub         *subscription // where it is; nil: nowhere
	unconfirmed bool          // the server has not confirmed it on this connection
	confirmed   bool          // the server has confirmed it once
	stopped     bool          // nobody waits any more
	moves       int           // how often its slot has moved
	ready       chan error    // has room for one: nil when the server listens
}

// watch returns when the server has confirmed that it sends what is published on name.
func (n *notifier) watch(ctx context.Context, node redis.UniversalClient, name string, wake func()) (func(), error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &watch{name: name, wake: wake, ready: make(chan error, 1)}
	n.mu.Lock()
	n.add(node, w)
	n.mu.Unlock()
	var err error
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		n.stop(w)
		return nil, err
	}
	return func() { n.stop(w) }, nil
}

// add puts w where its node is listened to; the caller holds mu.
func (n *notifier) add(node redis.UniversalClient, w *watch) {
	sub := n.subs[node]
	if sub == nil {
		sub = &subscription{node: node, channels: map[string][]*watch{}, changed: make(chan struct{}, 1)}
		n.subs[node] = sub
		go n.listen(sub)
	}
	w.sub, w.unconfirmed = sub, true
	sub.channels[w.name] = append(sub.channels[w.name], w)
	sub.markChanged(w.name)
}

// stop forgets w.
func (n *notifier) stop(w *watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.stopped = true
	n.remove(w)
}

// remove takes w from where it is; the caller holds mu.
func (n *notifier) remove(w *watch) {
	sub := w.sub
	if sub == nil {
		return
	}
	w.sub = nil
	left := slices.DeleteFunc(sub.channels[w.name], func(other *watch) bool { return other == w })
	sub.channels[w.name] = left
	if len(left) == 0 {
		delete(sub.channels, w.name)
		sub.markChanged(w.name)
	}
}

// markChanged has the goroutine look at a channel; the caller holds the notifier's mu.
func (sub *subscription) markChanged(name string) {
	sub.changedNames = append(sub.changedNames, name)
	sub.signal()
}

// signal has the goroutine look up.
func (sub *subscription) signal() {
	select {
	case sub.changed <- struct{}{}:
	default:
	}
}

// fail tells w that there will be no confirmation, if there was none; the caller holds the notifier's mu.
func (w *watch) fail(err error) {
	if !w.confirmed {
		w.report(err)
	}
}

// markConfirmed notes that the server listens. Who waits for that goes on; who has waited before looks, since what was published while
// there was no connection is lost. The caller holds the notifier's mu.
func markConfirmed(watches []*watch, which func(*watch) bool) {
	for _, w := range watches {
		switch {
		case !which(w):
		case w.confirmed:
			go w.wake() // it may call back
		default:
			w.confirmed = true
			w.report(nil)
		}
		w.unconfirmed = false
	}
}

func (w *watch) report(err error) {
	select {
	case w.ready <- err:
	default:
	}
}

const (
	minReconnectPause = 50 * time.Millisecond // after a connection that broke, then twice as long each time
	maxReconnectPause = time.Second
)

// listen keeps a connection to the node as long as somebody waits there, one at a time.
func (n *notifier) listen(sub *subscription) {
	for pause := minReconnectPause; n.inUse(sub); {
		heard, err := n.runSession(sub)
		if err == nil {
			continue
		}
		if heard {
			pause = minReconnectPause
		} else {
			n.failPending(sub, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, maxReconnectPause)
	}
}

// disableSharded has every node subscribed to without SSUBSCRIBE from now on; the caller holds mu.
func (n *notifier) disableSharded() {
	n.unsharded.Store(true)
	for _, sub := range n.subs {
		sub.signal()
	}
}

// inUse forgets the subscription when nobody waits there.
func (n *notifier) inUse(sub *subscription) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(sub.channels) == 0 {
		delete(n.subs, sub.node)
		return false
	}
	return true
}

// failPending tells those who wait for a confirmation that the node cannot be listened to. Who has had one stays: the next connection
// serves.
func (n *notifier) failPending(sub *subscription, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, watches := range sub.channels {
		for _, w := range watches {
			w.fail(err)
		}
	}
}

// move brings watches to the node that their slot is on now. It takes a client a moment to learn which that is.
func (n *notifier) move(watches []*watch, cause error) {
	const most, pause = 10, 100 * time.Millisecond
	n.cluster.ReloadState(context.Background())
	time.Sleep(pause)
	for _, w := range watches {
		ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
		node, err := n.cluster.MasterForKey(ctx, w.name)
		cancel()
		n.mu.Lock()
		switch w.moves++; {
		case w.stopped:
		case err != nil || w.moves > most:
			w.fail(cause)
		default:
			n.add(node, w)
		}
		n.mu.Unlock()
	}
}
