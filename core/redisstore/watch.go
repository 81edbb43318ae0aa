package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch implements driver.Notifier with pub/sub. All watches of a process share one connection, or on Cluster one for each
// master that has a watched record. A connection is open only while there are watches. Goroutines in the background make, use
// and close the connections, so Watch returns when ctx ends, whatever a connection does. On Cluster the store uses the
// sharded commands of Redis 7.0 (SSUBSCRIBE, SPUBLISH), or SUBSCRIBE and PUBLISH if a server does not have or allow them.
// Pub/sub keeps no messages: what is published while a connection is broken is lost. So each watch wakes its request, which then
// asks the store, when the server has confirmed its channel on a new connection. If the server refuses that, the watch is silent.
func (s *Store) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	name := s.recordName(key)
	node, err := s.node(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.notifier.watch(ctx, node, name, wake)
}

// notifier holds the watches of this process. Its mutex guards all watches, subscriptions and sessions. It is never held during
// a call over the network.
type notifier struct {
	cluster   *redis.ClusterClient // nil if the client is not of a Cluster
	unsharded atomic.Bool          // a server of the Cluster has refused SSUBSCRIBE, so the store uses SUBSCRIBE and PUBLISH

	mu   sync.Mutex
	subs map[redis.UniversalClient]*subscription // by node
}

// newNotifier returns a notifier without connections.
func newNotifier(client redis.UniversalClient) *notifier {
	n := &notifier{subs: map[redis.UniversalClient]*subscription{}}
	n.cluster, _ = client.(*redis.ClusterClient)
	return n
}

// sharded reports whether the store uses SSUBSCRIBE. PUBLISH would send each message to all nodes of a Cluster, which wakes no
// request earlier.
func (n *notifier) sharded() bool { return n.cluster != nil && !n.unsharded.Load() }

// subscription is the set of watches on one node. Its goroutine, see listen, talks to the node.
type subscription struct {
	node         redis.UniversalClient
	channels     map[string][]*watch // by name; none is empty
	changedNames []string            // channels that were added or removed since the goroutine last looked
	changed      chan struct{}       // has room for one; a value tells the goroutine to look at changedNames
}

// watch is one call of Watch. The notifier's mu guards its fields; ready is a channel, and wake never changes.
type watch struct {
	name        string
	wake        func()
	sub         *subscription // that it belongs to, or the last one while its slot moves and after its stop
	unconfirmed bool          // the server has not confirmed the channel since it was added to sub
	confirmed   bool          // the server has confirmed the channel once
	stopped     bool          // its caller has stopped it
	moves       int           // how often its slot has moved
	ready       chan error    // has room for one: nil after the confirmation
}

// watch adds a watch and returns when the server has confirmed the subscription to the channel.
func (n *notifier) watch(ctx context.Context, node redis.UniversalClient, name string, wake func()) (func(), error) {
	w := &watch{name: name, wake: wake, ready: make(chan error, 1)}
	n.mu.Lock()
	n.add(node, w)
	n.mu.Unlock()
	var err error
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		n.stop(w)
		return nil, err
	}
	return func() { n.stop(w) }, nil
}

// add puts w into the subscription of a node, and starts that if necessary. The caller holds mu.
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

// stop ends w, and takes it out of its subscription. A second call changes nothing.
func (n *notifier) stop(w *watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.stopped = true
	rest := slices.DeleteFunc(w.sub.channels[w.name], func(other *watch) bool { return other == w })
	w.sub.channels[w.name] = rest
	if len(rest) == 0 {
		delete(w.sub.channels, w.name)
		w.sub.markChanged(w.name)
	}
}

// markChanged tells the goroutine to look at a channel. The caller holds the notifier's mu.
func (sub *subscription) markChanged(name string) {
	sub.changedNames = append(sub.changedNames, name)
	sub.signal()
}

// signal wakes the goroutine of the subscription. It does not block.
func (sub *subscription) signal() {
	select {
	case sub.changed <- struct{}{}:
	default:
	}
}

// markConfirmed notes, for the watches that match, that the server has confirmed their channel. A first confirmation lets the
// call of Watch return. After a reconnection the watch wakes its request, because messages published without a connection are
// lost. The caller holds the notifier's mu.
func markConfirmed(watches []*watch, which func(*watch) bool) {
	for _, w := range watches {
		switch {
		case !which(w):
		case w.confirmed:
			go w.wake() // in a goroutine, since wake may call this package
		default:
			w.confirmed = true
			w.report(nil)
		}
		w.unconfirmed = false
	}
}

// report gives the call of Watch its result. Only the first report counts: a watch that was confirmed does not fail any more.
func (w *watch) report(err error) {
	select {
	case w.ready <- err:
	default:
	}
}

// The pause after a broken connection doubles from the first value to the second one.
const (
	minReconnectPause = 50 * time.Millisecond
	maxReconnectPause = time.Second
)

// listen keeps one connection to the node open while the subscription has watches. It ends when there are none. After an
// error it pauses, so that a server that refuses connections is not asked all the time.
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

// disableSharded makes all subscriptions use SUBSCRIBE from now on. The caller holds mu.
func (n *notifier) disableSharded() {
	n.unsharded.Store(true)
	for _, sub := range n.subs {
		sub.signal()
	}
}

// inUse reports whether the subscription has watches, and removes it if it has none.
func (n *notifier) inUse(sub *subscription) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(sub.channels) == 0 {
		delete(n.subs, sub.node)
		return false
	}
	return true
}

// failPending makes the calls of Watch that still wait for a confirmation return err. Watches that were confirmed before stay
// and use the next connection.
func (n *notifier) failPending(sub *subscription, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, watches := range sub.channels {
		for _, w := range watches {
			w.report(err)
		}
	}
}

// move adds watches to the node that has their slot now. It pauses first, because the client needs a moment to learn of the
// move. A watch whose slot has moved more than 10 times fails with cause.
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
			w.report(cause)
		default:
			n.add(node, w)
		}
		n.mu.Unlock()
	}
}
