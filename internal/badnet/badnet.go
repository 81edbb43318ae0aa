// Package badnet is a network between a client and its servers that loses, delays and splits traffic as a test configures. It
// works inside the client's process, as the Dialer of the client's options, so its faults are exact and can be counted.
package badnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"net"
	"os"
	"sync"
	"time"
)

// Faults configures what a network does to the traffic. The zero value has no faults.
type Faults struct {
	LoseReplies  float64       // share of replies that get lost when the server has executed the request; the connection breaks
	LoseRequests float64       // share of requests that never arrive; the connection breaks
	Delay        time.Duration // before each request
	Jitter       time.Duration // at most, on top of Delay
	Slice        int           // bytes that one read or write carries at most; 0: no limit
	Rate         int           // bytes a second in each direction; 0: no limit
	Hole         bool          // requests vanish, replies do not come, and no connection breaks
	HalfReply    bool          // half of the next bytes arrive on each connection, then nothing; no connection breaks
	Refuse       bool          // no connection is made

	// All faults except Refuse affect all connections. With Listeners they affect only connections that have sent a SUBSCRIBE
	// or SSUBSCRIBE, with Later only connections that are made after the call of Set.
	Listeners, Later bool
}

var (
	errRefused = errors.New("badnet: connection refused")
	errReset   = errors.New("badnet: connection reset")
)

// Net is a network. It is safe for concurrent use.
type Net struct {
	mu     sync.Mutex
	random *rand.Rand
	faults Faults
	lose   int // how many of the next replies get lost: see Lose
	epoch  int // how often Set was called
	hits   int
	conns  map[*conn]struct{}
}

// New returns a network without faults. seed determines its random choices.
func New(seed int64) *Net {
	return &Net{random: rand.New(rand.NewSource(seed)), conns: map[*conn]struct{}{}}
}

// Set replaces the faults, also for connections that are open.
func (n *Net) Set(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = f
	n.epoch++
}

// Lose makes this many of the next replies get lost.
func (n *Net) Lose(replies int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = replies
}

// Hits returns how often a fault has hit.
func (n *Net) Hits() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hits
}

// Reset breaks every connection that is open.
func (n *Net) Reset() {
	n.mu.Lock()
	conns := n.conns
	n.conns = map[*conn]struct{}{}
	n.hits += len(conns)
	n.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// Dial opens a connection through the network. Use it as the Dialer of a client.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.hit(func(f *Faults) bool { return f.Refuse }) {
		return nil, errRefused
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	wrapped := &conn{Conn: c, net: n, epoch: n.epoch}
	n.conns[wrapped] = struct{}{}
	return wrapped, nil
}

// Open returns how many connections are open.
func (n *Net) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// hit reports whether a fault applies now, and counts it.
func (n *Net) hit(fault func(*Faults) bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	hit := fault(&n.faults)
	if hit {
		n.hits++
	}
	return hit
}

// slow returns how long a transfer must wait, and how many of its bytes may go at once.
func (c *conn) slow(size int, request bool) (time.Duration, int) {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	f, wait := &n.faults, time.Duration(0)
	if c.isSpared(f) {
		return 0, size
	}
	if f.Slice > 0 && size > f.Slice {
		n.hits++
		size = f.Slice
	}
	if request && f.Delay+f.Jitter > 0 {
		n.hits++
		wait = f.Delay + time.Duration(n.random.Int63n(int64(f.Jitter)+1))
	}
	if f.Rate > 0 {
		n.hits++
		wait += time.Duration(size) * time.Second / time.Duration(f.Rate)
	}
	return wait, size
}

// conn is a connection with the faults of its network.
type conn struct {
	net.Conn
	net     *Net
	epoch   int  // when it was made
	listens bool // it has sent a SUBSCRIBE; guarded by the net's mutex
	halved  int  // the value of the net's epoch when half of a reply has arrived; guarded by the net's mutex

	mu       sync.Mutex
	deadline time.Time
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// isSpared reports whether the faults affect only other connections. The caller holds the net's mutex.
func (c *conn) isSpared(f *Faults) bool {
	return f.Listeners && !c.listens || f.Later && c.epoch < c.net.epoch
}

// hit reports whether a fault applies to this connection now, and counts it.
func (c *conn) hit(fault func(*Faults) bool) bool {
	return c.net.hit(func(f *Faults) bool { return !c.isSpared(f) && fault(f) })
}

// listen notes whether a request subscribes.
func (c *conn) listen(request []byte) {
	if bytes.Contains(bytes.ToLower(request), []byte("\r\nsubscribe\r\n")) || bytes.Contains(bytes.ToLower(request), []byte("\r\nssubscribe\r\n")) {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		c.listens = true
	}
}

func (c *conn) SetDeadline(t time.Time) error {
	c.keep(t)
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.keep(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.keep(t)
	return c.Conn.SetWriteDeadline(t)
}

// keep stores the deadline that was set last. One is enough, because clients write and read in turn.
func (c *conn) keep(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
}

// wait sleeps, but not beyond the deadline.
func (c *conn) wait(d time.Duration) error {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	if left := time.Until(deadline); !deadline.IsZero() && left < d {
		time.Sleep(left)
		return os.ErrDeadlineExceeded
	}
	time.Sleep(d)
	return nil
}

func (c *conn) Write(p []byte) (written int, err error) {
	c.listen(p)
	if c.hit(func(f *Faults) bool { return f.Hole }) {
		return len(p), nil
	}
	if c.hit(func(f *Faults) bool { return f.LoseRequests > 0 && c.net.random.Float64() < f.LoseRequests }) {
		_ = c.Close()
		return 0, errReset
	}
	for request := true; written < len(p) || request; request = false {
		wait, size := c.slow(len(p)-written, request)
		if err := c.wait(wait); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written : written+size])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (c *conn) Read(p []byte) (int, error) {
	_, size := c.slow(len(p), false)
	n, err := c.Conn.Read(p[:size])
	for err == nil && c.hit(func(f *Faults) bool { return f.Hole }) {
		n, err = c.Conn.Read(p[:size])
	}
	if err != nil {
		return n, err
	}
	if c.hit(func(f *Faults) bool { return f.HalfReply }) {
		return c.readHalf(p, n)
	}
	if c.hit(c.losesReply) {
		_ = c.Close()
		return 0, io.EOF
	}
	wait, _ := c.slow(n, false)
	return n, c.wait(wait)
}

// readHalf is a Read under HalfReply. n bytes are in p already; half of them arrive if they are the first. Everything else that
// the server sends gets lost.
func (c *conn) readHalf(p []byte, n int) (int, error) {
	if c.hit(c.isFirstReply) {
		return (n + 1) / 2, nil
	}
	for c.hit(func(f *Faults) bool { return f.HalfReply }) {
		if n, err := c.Conn.Read(p); err != nil {
			return n, err
		}
	}
	return 0, nil
}

// isFirstReply reports whether no reply has arrived in part since the faults were set. The caller holds the net's mutex.
func (c *conn) isFirstReply(*Faults) bool {
	first := c.halved != c.net.epoch
	c.halved = c.net.epoch
	return first
}

// losesReply decides whether a reply gets lost. The caller holds the net's mutex.
func (c *conn) losesReply(f *Faults) bool {
	if c.net.lose > 0 {
		c.net.lose--
		return true
	}
	return f.LoseReplies > 0 && c.net.random.Float64() < f.LoseReplies
}
