package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// replyTimeout is how long a server may take to reply to a command of a subscription, and how long it may send nothing before
// the session sends a PING.
const replyTimeout = 3 * time.Second

// errNoReply ends a session whose server does not reply.
var errNoReply = errors.New("idem: a server has not answered a subscription")

// session is one connection of a subscription. One goroutine writes to it and one reads from it. The notifier's mu guards
// what they share. It is not reused: when the connection breaks, the notifier makes another session, which subscribes to all
// channels again.
type session struct {
	notifier *notifier
	sub      *subscription
	pubsub   *redis.PubSub
	sharded  bool

	channels   map[string]channelState // by name
	unanswered []command               // without a reply so far, the oldest first
	received   bool                    // the server has sent something
	idle       bool                    // the server has sent nothing since the last checkAlive
}

// channelState is the state of a channel on a connection. The session sends no further command for a channel in state
// requested.
type channelState int

const (
	unsubscribed channelState = iota
	requested                 // a command for it has no reply yet
	subscribed
)

// command is a command that was sent. A PING has no names. Redis replies to the commands of a connection in their order, so
// the oldest is always the one that is answered next.
type command struct {
	subscribes bool
	names      []string // channels that the server has not confirmed yet
	sent       time.Time
}

// runSession opens a connection to the node and uses it until it breaks. It returns a nil error if no watches are left, or if
// the store has changed from SSUBSCRIBE to SUBSCRIBE. heard reports whether the server has sent anything. When runSession
// returns, its goroutine has ended and its connection is closed.
func (n *notifier) runSession(sub *subscription) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := n.newSession(ctx, sub)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer func() { _ = s.pubsub.Close() }() // this ends the reader
	defer cancel(nil)
	more, err := s.send(ctx) // this opens the connection
	if more {
		reader.Go(func() { cancel(s.read(ctx)) })
		err = s.serve(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.received, err
}

// newSession returns a session that will subscribe to all channels of sub.
func (n *notifier) newSession(ctx context.Context, sub *subscription) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	sub.changedNames = slices.Collect(maps.Keys(sub.channels))
	return &session{
		notifier: n, sub: sub, pubsub: sub.node.Subscribe(ctx), sharded: n.sharded(), channels: map[string]channelState{},
	}
}

// serve sends commands when channels change, and checks the connection every replyTimeout, until there are no watches left or
// the connection breaks.
func (s *session) serve(ctx context.Context) (err error) {
	alive := time.NewTicker(replyTimeout)
	defer alive.Stop()
	for more := true; more && err == nil; {
		select {
		case <-s.sub.changed:
			more, err = s.send(ctx)
		case <-alive.C:
			err = s.checkAlive(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

// send subscribes to the channels that were added, and unsubscribes from those that were removed. more is false if the session
// must end: no watches are left, the store has changed to SUBSCRIBE, or a command could not be sent.
func (s *session) send(ctx context.Context) (more bool, err error) {
	if s.sharded != s.notifier.sharded() {
		return false, nil
	}
	commands, more := s.nextCommands()
	for _, c := range commands {
		if err := s.write(ctx, c); err != nil {
			return false, err
		}
	}
	return more, nil
}

// nextCommands returns the commands for the changed channels, and notes them as sent.
func (s *session) nextCommands() (commands []command, more bool) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	var added, removed []string
	for _, name := range s.sub.changedNames {
		watches := s.sub.channels[name]
		switch state := s.channels[name]; {
		case state == unsubscribed && len(watches) > 0:
			s.channels[name] = requested
			added = append(added, name)
		case state == subscribed && len(watches) == 0:
			s.channels[name] = requested
			removed = append(removed, name)
		case state == subscribed:
			markConfirmed(watches, func(w *watch) bool { return w.unconfirmed })
		}
	}
	s.sub.changedNames = s.sub.changedNames[:0]
	commands = append(s.newCommands(false, removed), s.newCommands(true, added)...)
	s.unanswered = append(s.unanswered, commands...)
	return commands, len(s.sub.channels) > 0
}

// newCommands divides names into commands of at most 100 channels. A sharded command gets one channel, since its channels
// must be of one slot.
func (s *session) newCommands(subscribes bool, names []string) (commands []command) {
	most := 100
	if s.sharded {
		most = 1
	}
	for chunk := range slices.Chunk(names, most) {
		commands = append(commands, command{subscribes, chunk, time.Now()})
	}
	return commands
}

// write sends one command, for at most replyTimeout.
func (s *session) write(ctx context.Context, c command) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	switch {
	case len(c.names) == 0:
		return s.pubsub.Ping(ctx)
	case s.sharded && c.subscribes:
		return s.pubsub.SSubscribe(ctx, c.names...)
	case s.sharded:
		return s.pubsub.SUnsubscribe(ctx, c.names...)
	case c.subscribes:
		return s.pubsub.Subscribe(ctx, c.names...)
	}
	return s.pubsub.Unsubscribe(ctx, c.names...)
}

// checkAlive returns errNoReply if a command has had no reply for replyTimeout. If the server has been silent, it sends a
// PING. A connection that a firewall has dropped reports no error by itself: without the PING nobody would notice it, and its
// watches would not be woken again.
func (s *session) checkAlive(ctx context.Context) error {
	n := s.notifier
	n.mu.Lock()
	overdue := len(s.unanswered) > 0 && time.Since(s.unanswered[0].sent) >= replyTimeout
	ping := s.idle && len(s.unanswered) == 0
	if ping {
		s.unanswered = append(s.unanswered, command{sent: time.Now()})
	}
	s.idle = true
	n.mu.Unlock()
	switch {
	case overdue:
		return errNoReply
	case ping:
		return s.write(ctx, command{})
	}
	return nil
}

// read handles what the server sends until the connection breaks. An error with which the server replies to a command does
// not end the connection, so handleError decides whether the session goes on.
func (s *session) read(ctx context.Context) error {
	for {
		message, err := s.pubsub.Receive(ctx)
		var reply redis.Error
		switch {
		case err == nil:
			s.handleMessage(message)
		case errors.As(err, &reply):
			if err := s.handleError(err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// handleMessage wakes the watches of a message, or handles a confirmation or the reply to a PING.
func (s *session) handleMessage(message any) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	s.received, s.idle = true, false
	switch m := message.(type) {
	case *redis.Message:
		for _, w := range s.sub.channels[m.Channel] {
			go w.wake() // in a goroutine, since wake may call this package
		}
	case *redis.Subscription:
		s.handleConfirmation(m.Channel, !strings.HasSuffix(m.Kind, "unsubscribe"))
	case *redis.Pong:
		if len(s.unanswered) > 0 && len(s.unanswered[0].names) == 0 {
			s.unanswered = s.unanswered[1:]
		}
	}
}

// handleConfirmation handles the server's message that it now has the channel subscribed, or has not. The caller holds mu.
func (s *session) handleConfirmation(name string, listens bool) {
	isReply := s.confirmOldest(name, listens)
	watches := s.sub.channels[name]
	switch {
	case listens:
		s.channels[name] = subscribed
		markConfirmed(watches, func(*watch) bool { return true })
	case isReply || !s.sharded:
		delete(s.channels, name)
	default: // the server unsubscribes by itself when the slot has moved
		s.handleMove(name, errNoReply)
	}
	if listens != (len(watches) > 0) { // watches have come or gone since the command was sent
		s.sub.markChanged(name)
	}
}

// confirmOldest reports whether a confirmation belongs to the oldest command, and if so removes the channel from that
// command. The caller holds mu.
func (s *session) confirmOldest(name string, listens bool) bool {
	if len(s.unanswered) == 0 {
		return false
	}
	oldest := &s.unanswered[0]
	if oldest.subscribes != listens || len(oldest.names) == 0 || oldest.names[0] != name {
		return false
	}
	if oldest.names = oldest.names[1:]; len(oldest.names) == 0 {
		s.unanswered = s.unanswered[1:]
	}
	return true
}

// handleError handles an error that the server has sent in reply to the oldest command. It returns an error if the session must
// end.
func (s *session) handleError(err error) error {
	n := s.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	s.received, s.idle = true, false
	if len(s.unanswered) == 0 {
		return err
	}
	oldest := s.unanswered[0]
	s.unanswered = s.unanswered[1:]
	switch {
	case !oldest.subscribes:
		for _, name := range oldest.names { // the channels are still subscribed
			s.channels[name] = subscribed
			markConfirmed(s.sub.channels[name], func(*watch) bool { return true }) // those that have come since the command was sent
		}
	// The server does not have SSUBSCRIBE, or does not allow it. One such server decides for all, since a record may move to
	// it. All sessions end.
	case s.sharded && (strings.HasPrefix(err.Error(), "ERR ") || redis.HasErrorPrefix(err, "NOPERM")):
		n.disableSharded()
	// Another node has the slot, so the subscription belongs there.
	case s.sharded && redis.HasErrorPrefix(err, "MOVED"):
		for _, name := range oldest.names {
			s.handleMove(name, err)
		}
	default:
		for _, name := range oldest.names {
			delete(s.channels, name)
			for _, w := range s.sub.channels[name] {
				w.report(err)
			}
		}
	}
	return nil
}

// handleMove moves the watches of a channel to the node that has its slot now. The caller holds mu. It does so in another
// goroutine, because it must ask the Cluster, and mu is never held over the network.
func (s *session) handleMove(name string, cause error) {
	watches := s.sub.channels[name]
	delete(s.channels, name)
	delete(s.sub.channels, name)
	s.sub.signal() // no watches may be left
	go s.notifier.move(watches, cause)
}
