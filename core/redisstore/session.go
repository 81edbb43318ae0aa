package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// replyTimeout is how long a server may leave a command of a subscription unanswered, and how long it may be silent before it is
// asked whether it is there.
const replyTimeout = 3 * time.Second

var (
	errNoReply   = errors.New("idem: a server has not answered a subscription")
	errUnsharded = errors.New("idem: a server takes no SSUBSCRIBE")
)

// session is one connection of a subscription. One goroutine writes to it and one reads. What they share is guarded by the
// notifier's mu.
type session struct {
	notifier *notifier
	sub      *subscription
	pubsub   *redis.PubSub
	sharded  bool

	channels   map[string]channelState // by name
	unanswered []command               // that have no answer yet, the oldest first
	received   bool                    // the server has said something
	idle       bool                    // the server has said nothing since the last look
}

// channelState is where a channel is on a connection. One that waits for an answer is asked nothing else.
type channelState int

const (
	unsubscribed channelState = iota
	requested
	subscribed
)

// command is one that was sent; a PING has no names.
type command struct {
	subscribes bool
	names      []string // without those that were confirmed
	sent       time.Time
}

// runSession listens on a new connection to the node: until it breaks, or, with a nil error, until nobody waits there or the way
// to subscribe has changed.
func (n *notifier) runSession(sub *subscription) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := n.newSession(ctx, sub)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer func() { _ = s.pubsub.Close() }() // which has the reader end
	defer cancel(nil)
	more, err := s.send(ctx) // this makes the connection
	if err == nil && more {
		reader.Go(func() { cancel(s.read(ctx)) })
		err = s.serve(ctx)
	}
	if errors.Is(err, errUnsharded) {
		err = nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.received, err
}

// newSession has all channels of sub for news.
func (n *notifier) newSession(ctx context.Context, sub *subscription) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	sub.changedNames = sub.changedNames[:0]
	for name, watches := range sub.channels {
		sub.changedNames = append(sub.changedNames, name)
		for _, w := range watches {
			w.unconfirmed = true
		}
	}
	return &session{notifier: n, sub: sub, pubsub: sub.node.Subscribe(ctx), sharded: n.sharded(), channels: map[string]channelState{}}
}

// serve writes what there is to write.
func (s *session) serve(ctx context.Context) (err error) {
	look := time.NewTicker(replyTimeout)
	defer look.Stop()
	for more := true; more && err == nil; {
		select {
		case <-s.sub.changed:
			more, err = s.send(ctx)
		case <-look.C:
			err = s.checkAlive(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

// send tells the server which channels have come and gone; false when nobody waits any more.
func (s *session) send(ctx context.Context) (more bool, err error) {
	if s.sharded != s.notifier.sharded() {
		return false, errUnsharded
	}
	commands, more := s.nextCommands()
	for _, c := range commands {
		if err := s.write(ctx, c); err != nil {
			return false, err
		}
	}
	return more, nil
}

// nextCommands returns what the news ask for.
func (s *session) nextCommands() (commands []command, more bool) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	var come, gone []string
	for _, name := range s.sub.changedNames {
		watches := s.sub.channels[name]
		switch state := s.channels[name]; {
		case state == unsubscribed && len(watches) > 0:
			s.channels[name] = requested
			come = append(come, name)
		case state == subscribed && len(watches) == 0:
			s.channels[name] = requested
			gone = append(gone, name)
		case state == subscribed:
			markConfirmed(watches, func(w *watch) bool { return w.unconfirmed })
		}
	}
	s.sub.changedNames = s.sub.changedNames[:0]
	commands = append(s.newCommands(false, gone), s.newCommands(true, come)...)
	s.unanswered = append(s.unanswered, commands...)
	return commands, len(s.sub.channels) > 0
}

// newCommands puts names into commands: into one each where they are of different slots.
func (s *session) newCommands(subscribes bool, names []string) (commands []command) {
	most := 100
	if s.sharded {
		most = 1
	}
	for some := range slices.Chunk(names, most) {
		commands = append(commands, command{subscribes, some, time.Now()})
	}
	return commands
}

// write sends one command.
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

// checkAlive sees whether the server is still there.
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

// read passes on what the server says until the connection breaks.
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

func (s *session) handleMessage(message any) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	s.received, s.idle = true, false
	switch m := message.(type) {
	case *redis.Message:
		for _, w := range s.sub.channels[m.Channel] {
			go w.wake() // it may call back
		}
	case *redis.Subscription:
		s.handleConfirmation(m.Channel, !strings.HasSuffix(m.Kind, "unsubscribe"))
	case *redis.Pong:
		if len(s.unanswered) > 0 && len(s.unanswered[0].names) == 0 {
			s.unanswered = s.unanswered[1:]
		}
	}
}

// handleConfirmation is when the server says that it listens, or does not; the caller holds mu.
func (s *session) handleConfirmation(name string, listens bool) {
	isAnswer := s.confirmOldest(name, listens)
	watches := s.sub.channels[name]
	switch {
	case listens:
		s.channels[name] = subscribed
		markConfirmed(watches, func(*watch) bool { return true })
	case isAnswer || !s.sharded:
		delete(s.channels, name)
	default: // the slot has moved
		s.handleMove(name, errNoReply)
	}
	if listens != (len(watches) > 0) { // it is not what it should be any more
		s.sub.markChanged(name)
	}
}

// confirmOldest tells whether this confirms the oldest command, and takes it off; the caller holds mu.
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

// handleError is when the server answers a command with an error. It returns one when the connection is of no use.
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
		for _, name := range oldest.names { // the server still listens
			s.channels[name] = subscribed
		}
	case s.sharded && (strings.HasPrefix(err.Error(), "ERR ") || redis.HasErrorPrefix(err, "NOPERM")):
		n.disableSharded()
		return errUnsharded
	case s.sharded && redis.HasErrorPrefix(err, "MOVED"):
		for _, name := range oldest.names {
			s.handleMove(name, err)
		}
	default:
		for _, name := range oldest.names {
			delete(s.channels, name)
			for _, w := range s.sub.channels[name] {
				w.fail(err)
			}
		}
	}
	return nil
}

// handleMove lets the watches of a channel go where its slot is now; the caller holds mu.
func (s *session) handleMove(name string, cause error) {
	watches := s.sub.channels[name]
	delete(s.channels, name)
	delete(s.sub.channels, name)
	for _, w := range watches {
		w.sub = nil
	}
	if len(watches) > 0 {
		s.sub.signal() // nobody may be left
		go s.notifier.move(watches, cause)
	}
}
