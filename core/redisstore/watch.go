package redisstore

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Watch implements core.Notifier: by one subscription for the process, or on Cluster one for each master with records
// that are waited for, open only while somebody waits. Cluster tells from Redis 7.0 on; before, waiters ask now and then.
func (s *Store) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	channel := s.name(key)
	node, err := s.node(ctx, channel)
	if err != nil {
		return nil, err
	}
	return s.notifier.watch(ctx, node, s.sharded, channel, wake)
}

// notifier wakes those who wait in this process.
type notifier struct {
	mu   sync.Mutex
	subs map[redis.UniversalClient]*subscription // by node
}

// subscription is one connection that listens.
type subscription struct {
	pubsub   *redis.PubSub
	channels map[string]*channel
	sending  sync.Mutex // keeps what the server is told in the order of channels
}

// channel is one record that is waited for.
type channel struct {
	confirmed chan struct{} // closed when the server listens
	watches   []*watch
}

type watch struct{ wake func() }

// watch returns when the server has confirmed that it sends what is published on name.
func (n *notifier) watch(ctx context.Context, node redis.UniversalClient, sharded bool, name string, wake func()) (func(), error) {
	w := &watch{wake}
	sub, c, isNew := n.add(ctx, node, name, w)
	stop := func() { n.remove(node, sub, sharded, name, w) }
	if isNew {
		sub.sending.Lock()
		err := subscribe(ctx, sub.pubsub, sharded, name)
		sub.sending.Unlock()
		if err != nil {
			stop()
			return nil, err
		}
	}
	select {
	case <-c.confirmed:
		return stop, nil
	case <-ctx.Done():
		stop()
		return nil, context.Cause(ctx)
	}
}

// add notes w, and tells whether its channel has to be subscribed to.
func (n *notifier) add(ctx context.Context, node redis.UniversalClient, name string, w *watch) (*subscription, *channel, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	sub := n.subs[node]
	if sub == nil {
		sub = &subscription{pubsub: node.Subscribe(context.WithoutCancel(ctx)), channels: map[string]*channel{}}
		n.subs[node] = sub
		go n.listen(sub)
	}
	c := sub.channels[name]
	isNew := c == nil
	if isNew {
		c = &channel{confirmed: make(chan struct{})}
		sub.channels[name] = c
	}
	c.watches = append(c.watches, w)
	return sub, c, isNew
}

// remove forgets w. The last of a channel ends its subscription, and the last of a node closes the connection.
func (n *notifier) remove(node redis.UniversalClient, sub *subscription, sharded bool, name string, w *watch) {
	n.mu.Lock()
	c := sub.channels[name]
	if c == nil || !slices.Contains(c.watches, w) {
		n.mu.Unlock()
		return
	}
	c.watches = slices.DeleteFunc(c.watches, func(other *watch) bool { return other == w })
	isLast := len(c.watches) == 0
	if isLast {
		delete(sub.channels, name)
	}
	isEmpty := len(sub.channels) == 0
	if isEmpty && n.subs[node] == sub {
		delete(n.subs, node)
	}
	n.mu.Unlock()
	switch {
	case isEmpty:
		_ = sub.pubsub.Close()
	case isLast:
		n.unsubscribe(sub, sharded, name)
	}
}

// unsubscribe ends the subscription of a channel, unless somebody watches it again.
func (n *notifier) unsubscribe(sub *subscription, sharded bool, name string) {
	sub.sending.Lock()
	defer sub.sending.Unlock()
	n.mu.Lock()
	again := sub.channels[name] != nil
	n.mu.Unlock()
	if !again {
		_ = unsubscribe(sub.pubsub, sharded, name)
	}
}

// listen passes on what the server says until the subscription is closed. go-redis connects again when it has to, and
// subscribes again then; what was published in between is lost, so everybody looks.
func (n *notifier) listen(sub *subscription) {
	for message := range sub.pubsub.ChannelWithSubscriptions() {
		switch m := message.(type) {
		case *redis.Message:
			n.wake(sub, m.Channel, false)
		case *redis.Subscription:
			n.wake(sub, m.Channel, !strings.HasSuffix(m.Kind, "unsubscribe"))
		}
	}
}

func (n *notifier) wake(sub *subscription, name string, confirmed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := sub.channels[name]
	if c == nil {
		return
	}
	select {
	case <-c.confirmed:
	default:
		if confirmed {
			close(c.confirmed)
		}
		return // nobody waits yet
	}
	for _, w := range c.watches {
		go w.wake() // it may call back
	}
}

func subscribe(ctx context.Context, p *redis.PubSub, sharded bool, name string) error {
	if sharded {
		return p.SSubscribe(ctx, name)
	}
	return p.Subscribe(ctx, name)
}

func unsubscribe(p *redis.PubSub, sharded bool, name string) error {
	if sharded {
		return p.SUnsubscribe(context.Background(), name)
	}
	return p.Unsubscribe(context.Background(), name)
}
