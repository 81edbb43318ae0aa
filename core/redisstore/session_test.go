package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conversation is what waiting requests, a store and its servers say to each other. The servers say only what a test has them say: a
// real one seldom says what is of interest here, and never at a chosen moment. The clock is that of a synctest bubble.
//
// A step is a line such as
//
//	watch a -> dial, subscribe a
//	says subscribe a -> a is ready
//
// It has what a request, the server or the clock does, and after the arrow everything that follows, in any order. The servers of a
// Cluster have names: one says ssubscribe a -> a is ready.
type conversation struct {
	t        *testing.T
	node     func(name string) (redis.UniversalClient, error) // that of a channel
	notifier *notifier
	waiters  map[string][]*waiter // by channel, the oldest first

	mu       sync.Mutex
	servers  map[string]*scriptedServer // by name
	owners   map[string]string          // the servers of the channels
	happened []string                   // since the last step
	open     int                        // connections
}

// scriptedServer is a server that says nothing by itself. The mutex of its conversation guards it.
type scriptedServer struct {
	refuses bool          // connection attempts
	hang    chan struct{} // connection attempts wait until it is closed
	conn    net.Conn      // the last one
	names   []string      // the channels of the last command, in its order
}

// waiter is one call of watch.
type waiter struct {
	leave context.CancelFunc
	stop  func() // nil until the call has returned
}

// addresses are those of the servers, by name. A name would be resolved, outside the bubble.
var addresses = map[string]string{"": "192.0.2.1:6379", "one": "192.0.2.2:6379", "two": "192.0.2.3:6379"}

// converse has the conversation with these servers. At its end all requests leave, and nothing may be left.
func converse(t *testing.T, steps []string, servers ...string) {
	synctest.Test(t, func(t *testing.T) {
		c := &conversation{
			t: t, waiters: map[string][]*waiter{}, servers: map[string]*scriptedServer{},
			owners: map[string]string{"a": "one", "b": "two", "d": "one", "e": "one"},
		}
		for _, name := range servers {
			c.servers[name] = &scriptedServer{}
		}
		defer c.connect().Close()
		for i, step := range steps {
			event, effects, _ := strings.Cut(step, " -> ")
			c.do(strings.Fields(event))
			if !assert.ElementsMatch(t, strings.Split(effects, ", "), c.effects(), "step %d: %s", i+1, step) {
				break
			}
		}
		c.end()
	})
}

// connect makes a client of the servers.
func (c *conversation) connect() io.Closer {
	if c.servers[""] != nil {
		client := redis.NewClient(&redis.Options{Addr: addresses[""], Dialer: c.dial, Protocol: 2})
		c.node = func(string) (redis.UniversalClient, error) { return client, nil }
		c.notifier = newNotifier(client)
		return client
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: c.slots, Dialer: c.dial, Protocol: 2})
	c.node = func(name string) (redis.UniversalClient, error) { return client.MasterForKey(c.t.Context(), name) }
	c.notifier = newNotifier(client)
	return client
}

// slots tells the client which server has which channel.
func (c *conversation) slots(context.Context) (all []redis.ClusterSlot, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, slot := range map[string]int{"a": 15495, "b": 3300, "d": 11298, "e": 15363} {
		nodes := []redis.ClusterNode{{Addr: addresses[c.owners[name]]}}
		all = append(all, redis.ClusterSlot{Start: slot, End: slot, Nodes: nodes})
	}
	return all, nil
}

// do has one thing happen, and returns when nothing more follows from it.
func (c *conversation) do(words []string) {
	defer synctest.Wait()
	name := ""
	if c.servers[words[0]] != nil {
		name, words = words[0], words[1:]
	}
	server := c.servers[name]
	switch words[0] {
	case "watch":
		c.watch(words[1])
	case "stop":
		c.stop(words[1])
	case "says":
		c.say(server, words[1:]...)
	case "confirms":
		for _, name := range server.names {
			c.say(server, "subscribe", name)
		}
	case "breaks":
		_ = server.conn.Close()
	case "move":
		c.change(func() { c.owners[words[1]] = words[3] })
	case "refuses":
		c.change(func() { server.refuses = true })
	case "hangs":
		c.change(func() { server.hang = make(chan struct{}) })
	case "accepts":
		c.change(func() { server.refuses = false })
		if server.hang != nil {
			close(server.hang)
		}
	default:
		d, err := time.ParseDuration(words[0])
		require.NoError(c.t, err)
		time.Sleep(d)
	}
}

// change changes what mu guards.
func (c *conversation) change(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// watch has one more request wait at a channel.
func (c *conversation) watch(name string) {
	ctx, leave := context.WithCancel(c.t.Context())
	w := &waiter{leave: leave}
	c.waiters[name] = append(c.waiters[name], w)
	node, err := c.node(name)
	require.NoError(c.t, err)
	go func() {
		stop, err := c.notifier.watch(ctx, node, name, func() { c.note(name, "is woken") })
		switch {
		case err == nil:
			w.stop = stop
			c.note(name, "is ready")
		case ctx.Err() == nil:
			c.note(name, "fails:", err.Error())
		}
	}()
}

// stop has the request leave that came to a channel first.
func (c *conversation) stop(name string) {
	w := c.waiters[name][0]
	c.waiters[name] = c.waiters[name][1:]
	w.leave()
	if w.stop != nil {
		w.stop()
	}
}

// end has all requests leave. No connection may be left then, and no goroutine, which synctest looks for.
func (c *conversation) end() {
	for _, sub := range c.notifier.subs {
		assert.Empty(c.t, sub.changedNames, "what a session has done and goes on to remember")
	}
	for name, waiters := range c.waiters {
		for range waiters {
			c.stop(name)
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.Zero(c.t, c.open, "connections")
	assert.Empty(c.t, c.notifier.subs)
}

// note notes what has happened.
func (c *conversation) note(words ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.happened) == 100 {
		panic("this does not end: " + strings.Join(c.happened, ", "))
	}
	c.happened = append(c.happened, strings.TrimSpace(strings.Join(words, " ")))
}

// effects returns what has happened since the last call.
func (c *conversation) effects() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	happened := c.happened
	c.happened = nil
	if len(happened) == 0 {
		return []string{""}
	}
	return happened
}

// dial connects the client to a server.
func (c *conversation) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	var name string
	for name = range addresses {
		if addresses[name] == addr {
			break
		}
	}
	c.mu.Lock()
	server := c.servers[name]
	refuses, hang := server.refuses, server.hang
	c.mu.Unlock()
	if refuses {
		c.note(name, "refusal")
		return nil, errors.New("refused")
	}
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			c.note(name, "dial given up")
			return nil, ctx.Err()
		}
	}
	c.note(name, "dial")
	near, far := net.Pipe()
	c.change(func() { server.conn, c.open = far, c.open+1 })
	go c.listen(name, far)
	return near, nil
}

// listen notes the commands of a connection, and that the client has closed it. A client introduces itself first, which is refused and
// not noted.
func (c *conversation) listen(server string, conn net.Conn) {
	defer c.change(func() { c.open-- })
	for r := bufio.NewReader(conn); ; {
		words, err := readCommand(r)
		switch {
		case errors.Is(err, io.ErrClosedPipe): // by the server
			return
		case err != nil:
			c.note(server, "close")
			return
		case words[0] != "ping" && !strings.HasSuffix(words[0], "subscribe"):
			_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
		default:
			c.change(func() { c.servers[server].names = words[1:] })
			c.note(slices.Concat([]string{server, words[0]}, slices.Sorted(slices.Values(words[1:])))...)
		}
	}
}

// readCommand reads a command. Its words have no spaces.
func readCommand(r io.Reader) (words []string, err error) {
	var length int
	if _, err = fmt.Fscanf(r, "*%d\r\n", &length); err != nil {
		return nil, err
	}
	words = make([]string, length)
	for i := range words {
		if _, err = fmt.Fscanf(r, "$%d\r\n%s\r\n", new(int), &words[i]); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// say sends an error, which begins with a minus, or else a pong, a message or a confirmation.
func (c *conversation) say(server *scriptedServer, words ...string) {
	text := strings.Join(words, " ") + "\r\n"
	if !strings.HasPrefix(text, "-") {
		name := strings.Join(words[1:], "")
		text = fmt.Sprintf("$%d\r\n%s\r\n$%d\r\n%s\r\n", len(words[0]), words[0], len(name), name)
		switch {
		case words[0] == "pong":
			text = "*2\r\n" + text
		case strings.HasSuffix(words[0], "message"):
			text = "*3\r\n" + text + "$0\r\n\r\n"
		default:
			text = "*3\r\n" + text + ":1\r\n"
		}
	}
	_, err := io.WriteString(server.conn, text)
	require.NoError(c.t, err)
}

func TestWaitersAreWokenWhateverAServerSays(t *testing.T) {
	for name, steps := range map[string][]string{
		"waiters of one channel share a subscription": {
			"watch a -> dial, subscribe a",
			"watch a",
			"says subscribe a -> a is ready, a is ready",
			"watch a -> a is ready",
			"says message a -> a is woken, a is woken, a is woken",
			"stop a",
			"stop a",
			"says message a -> a is woken",
			"stop a -> unsubscribe a, close",
		},
		"channels that come together share a command": {
			"hangs", "watch a", "watch b", "watch c", "watch d", "stop d",
			"accepts -> dial, subscribe a, subscribe b c",
			"says subscribe a -> a is ready",
			"says subscribe b -> b is ready",
			"3s -> close", // since c is not confirmed
			"50ms -> dial, subscribe a b c",
			"confirms -> a is woken, b is woken, c is ready",
		},
		"a channel is left before its confirmation": {
			"watch a -> dial, subscribe a",
			"watch b -> subscribe b",
			"watch b",
			"stop b",
			"stop b",
			"says subscribe a -> a is ready",
			"says subscribe b -> unsubscribe b",
			"says unsubscribe b",
			"watch b -> subscribe b",
			"says subscribe b -> b is ready",
		},
		"a channel is watched again before it is left": {
			"watch a -> dial, subscribe a",
			"watch b -> subscribe b",
			"says subscribe a -> a is ready",
			"says subscribe b -> b is ready",
			"stop b -> unsubscribe b",
			"watch b",
			"says unsubscribe b -> subscribe b",
			"says subscribe b -> b is ready",
		},
		"subscriptions are refused": {
			"watch a -> dial, subscribe a",
			"says subscribe a -> a is ready",
			"watch b -> subscribe b",
			"says -NOPERM not this channel -> b fails: NOPERM not this channel",
			"watch b -> subscribe b",
			"says -ERR not now -> b fails: ERR not now",
			"watch b -> subscribe b",
			"says -MOVED 3300 two -> b fails: MOVED 3300 two",
			"watch b -> subscribe b",
			"says subscribe b -> b is ready",
			"3s",
			"says message a -> a is woken",
		},
		"the end of a subscription is refused": {
			"watch a -> dial, subscribe a",
			"watch b -> subscribe b",
			"says subscribe a -> a is ready",
			"says subscribe b -> b is ready",
			"stop b -> unsubscribe b",
			"says -NOPERM not this command",
			"watch b -> b is ready",
			"stop b -> unsubscribe b",
			"watch b",
			"says -NOPERM not this command -> b is ready",
			"3s",
		},
		"a server says what nobody has asked for": {
			"watch a -> dial, subscribe a",
			"says subscribe a -> a is ready",
			"says pong",
			"says unsubscribe a -> subscribe a",
			"says subscribe a -> a is woken",
			"watch b -> subscribe b",
			"says pong",
			"says -ERR not you -> b fails: ERR not you",
			"says -ERR go away -> close",
			"50ms -> dial, subscribe a",
			"says subscribe a -> a is woken",
		},
		"a server is silent": {
			"watch a -> dial, subscribe a",
			"says subscribe a -> a is ready",
			"3s",
			"3s -> ping",
			"says pong",
			"3s",
			"1s",
			"says message a -> a is woken",
			"2s",
			"3s -> ping",
			"says -NOPERM not this command",
			"6s -> ping",
			"3s -> close",
			"50ms -> dial, subscribe a",
			"says subscribe a -> a is woken",
		},
		"a server is silent when it is to subscribe": {
			"watch a -> dial, subscribe a",
			"says subscribe a -> a is ready",
			"4s",
			"watch b -> subscribe b",
			"2s",
			"3s -> close",
			"50ms -> dial, subscribe a b",
			"confirms -> a is woken, b is ready",
		},
		"a server refuses connections": {
			"refuses",
			"watch a -> refusal, a fails: refused",
			"watch a",
			"accepts",
			"50ms -> dial, subscribe a",
			"says subscribe a -> a is ready",
		},
		"a connection breaks before its first confirmation": {
			"watch a -> dial, subscribe a",
			"refuses",
			"breaks -> refusal, a fails: EOF",
			"50ms",
		},
		"a connection breaks before a later confirmation": {
			"watch a -> dial, subscribe a",
			"says subscribe a -> a is ready",
			"watch b -> subscribe b",
			"refuses",
			"breaks -> refusal",
			"50ms -> refusal, b fails: refused",
			"accepts",
			"100ms -> dial, subscribe a",
			"says subscribe a -> a is woken",
			"3s",
		},
		"a connection breaks after a refusal": {
			"watch a -> dial, subscribe a",
			"watch b -> subscribe b",
			"says -NOPERM not this channel -> a fails: NOPERM not this channel",
			"refuses",
			"breaks -> refusal",
			"accepts",
			"50ms -> dial, subscribe b",
			"says subscribe b -> b is ready",
		},
		"a connection breaks, and another is not made in time": {
			"watch a -> dial, subscribe a",
			"says subscribe a -> a is ready",
			"1s",
			"watch b -> subscribe b",
			"hangs",
			"breaks",
			"5s -> dial given up",
			"accepts",
			"50ms -> dial, subscribe a b",
			"confirms -> a is woken, b is ready",
		},
		"a request leaves while a connection is made": {
			"hangs", "watch a", "stop a", "watch b",
			"accepts -> dial, subscribe a, subscribe b",
			"says subscribe a -> unsubscribe a",
			"says subscribe b -> b is ready",
			"says unsubscribe a",
		},
	} {
		t.Run(name, func(t *testing.T) { converse(t, steps, "") })
	}
}

func TestWaitersAreWokenWhateverShardedServersSay(t *testing.T) {
	for name, steps := range map[string][]string{
		"each server has its channels": {
			"watch a -> one dial, one ssubscribe a",
			"watch b -> two dial, two ssubscribe b",
			"one says ssubscribe a -> a is ready",
			"two says ssubscribe b -> b is ready",
			"one says smessage a -> a is woken",
			"stop b -> two sunsubscribe b, two close",
			"watch d -> one ssubscribe d",
			"stop a -> one sunsubscribe a",
			"watch a",
			"one says ssubscribe d -> d is ready",
			"one says sunsubscribe a -> one ssubscribe a",
			"one says ssubscribe a -> a is ready",
		},
		"channels that come together have commands of their own": {
			"one hangs", "watch a", "watch d", "watch e",
			"one accepts -> one dial, one ssubscribe a, one ssubscribe d, one ssubscribe e",
		},
		"slots move": {
			"watch a -> one dial, one ssubscribe a",
			"watch d -> one ssubscribe d",
			"one says ssubscribe a -> a is ready",
			"one says ssubscribe d -> d is ready",
			"move a to two",
			"one says sunsubscribe a",
			"100ms -> two dial, two ssubscribe a",
			"two says ssubscribe a -> a is woken",
			"1s",
			"move d to two",
			"one says sunsubscribe d -> one close",
			"100ms -> two ssubscribe d",
			"two says ssubscribe d -> d is woken",
		},
		"slots move while another channel is subscribed, and left": {
			"watch a -> one dial, one ssubscribe a",
			"watch d -> one ssubscribe d",
			"one says ssubscribe a -> a is ready",
			"one says ssubscribe d -> d is ready",
			"watch e -> one ssubscribe e",
			"move a to two",
			"one says sunsubscribe a",
			"one says ssubscribe e -> e is ready",
			"100ms -> two dial, two ssubscribe a",
			"two says ssubscribe a -> a is woken",
			"1s",
			"stop e -> one sunsubscribe e",
			"move d to two",
			"one says sunsubscribe d -> one close",
			"100ms -> two ssubscribe d",
			"two says ssubscribe d -> d is woken",
		},
		"a slot has moved before its subscription": {
			"watch a -> one dial, one ssubscribe a",
			"move a to two",
			"one says -MOVED 15495 two -> one close",
			"100ms -> two dial, two ssubscribe a",
			"two says ssubscribe a -> a is ready",
		},
		"a slot has moved, and the client does not know where": {
			"watch d -> one dial, one ssubscribe d",
			"one says ssubscribe d -> d is ready",
			"watch a -> one ssubscribe a",
			"one says -MOVED 15495 two",
			"100ms -> one ssubscribe a",
			"one says ssubscribe a -> a is ready",
		},
		"a slot moves while the server is asked whether it is there": {
			"watch a -> one dial, one ssubscribe a",
			"watch d -> one ssubscribe d",
			"one says ssubscribe a -> a is ready",
			"one says ssubscribe d -> d is ready",
			"3s",
			"3s -> one ping",
			"move a to two",
			"one says sunsubscribe a",
			"one says pong",
			"100ms -> two dial, two ssubscribe a",
			"two says ssubscribe a -> a is woken",
			"3s",
		},
		"a slot moves while its channel is left and watched again": {
			"watch a -> one dial, one ssubscribe a",
			"watch d -> one ssubscribe d",
			"one says ssubscribe a -> a is ready",
			"one says ssubscribe d -> d is ready",
			"stop a -> one sunsubscribe a",
			"watch a",
			"move a to two",
			"one says sunsubscribe a -> one ssubscribe a", // since the slot has moved
			"one says sunsubscribe a",                     // as it was asked to
			"one says -MOVED 15495 two",
			"100ms -> two dial, two ssubscribe a",
			"two says ssubscribe a -> a is ready",
			"3s",
		},
		"a server does not know SSUBSCRIBE": {
			"watch a -> one dial, one ssubscribe a",
			"watch b -> two dial, two ssubscribe b",
			"two says -ERR unknown command -> one close, one dial, one subscribe a, two close, two dial, two subscribe b",
			"one says subscribe a -> a is ready",
			"two says subscribe b -> b is ready",
		},
		"a server does not allow SSUBSCRIBE": {
			"watch a -> one dial, one ssubscribe a",
			"one says ssubscribe a -> a is ready",
			"watch d -> one ssubscribe d",
			"one says -NOPERM not this command -> one close, one dial, one subscribe a d",
			"one confirms -> a is woken, d is ready",
		},
		"a subscription is refused": {
			"watch a -> one dial, one ssubscribe a",
			"one says -CLUSTERDOWN no server has the slot -> a fails: CLUSTERDOWN no server has the slot, one close",
			"watch a -> one dial, one ssubscribe a",
		},
		"the end of a subscription is refused": {
			"watch a -> one dial, one ssubscribe a",
			"watch d -> one ssubscribe d",
			"one says ssubscribe a -> a is ready",
			"one says ssubscribe d -> d is ready",
			"stop a -> one sunsubscribe a",
			"one says -NOPERM not this command",
			"watch a -> a is ready",
			"watch e -> one ssubscribe e",
		},
	} {
		t.Run(name, func(t *testing.T) { converse(t, steps, "one", "two") })
	}
}
