package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/lua"
)

// proxy stands between one process and one server. It reads each call that the process sends, and injects the fault of a case at
// the call of that case.
type proxy struct {
	addr, server string
	process      *child
	monitor      *monitor
	newReader    func() callReader

	mu    sync.Mutex
	conns map[*proxyConn]struct{}
}

// proxyConn is one connection through a proxy.
type proxyConn struct {
	proxy     *proxy
	near, far net.Conn
	reader    callReader

	mu  sync.Mutex
	due *injection // the fault that comes with the next reply

	transaction string // the calls of the transaction so far; only request uses it
}

// newProxy returns a proxy that works until the test ends.
func newProxy(t *testing.T, process *child, m *monitor, server string, newReader func() callReader) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{
		addr: listener.Addr().String(), server: server, process: process, monitor: m, newReader: newReader,
		conns: map[*proxyConn]struct{}{},
	}
	t.Cleanup(func() { _ = listener.Close(); p.cut() })
	go p.accept(listener)
	return p
}

// accept connects clients to the server. A process that is cut off gets no connection.
func (p *proxy) accept(listener net.Listener) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.server)
		if err != nil || p.monitor.refuses(p) {
			_ = near.Close()
			continue
		}
		p.monitor.called(p, "connect", "")
		c := &proxyConn{proxy: p, near: near, far: far, reader: p.newReader()}
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		go c.carry(near, far, c.request)
		go c.carry(far, near, c.reply)
	}
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	conns := p.conns
	p.conns = map[*proxyConn]struct{}{}
	p.mu.Unlock()
	for c := range conns {
		c.close()
	}
}

// close closes both ends.
func (c *proxyConn) close() {
	_ = c.near.Close()
	_ = c.far.Close()
}

// carry carries bytes from one end to the other while pass says that they may go on.
func (c *proxyConn) carry(from, to net.Conn, pass func([]byte) bool) {
	defer c.close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil || !pass(b[:n]) || !c.proxy.monitor.passes(c.proxy) {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// request lets a request pass unless the fault of the case keeps it back.
func (c *proxyConn) request(b []byte) bool {
	for _, call := range c.reader.read(b) {
		if call == "sql: begin" {
			c.transaction = ""
		}
		s := c.proxy.monitor.called(c.proxy, call, c.transaction)
		if strings.HasPrefix(call, "sql: ") {
			c.transaction += call
		}
		if s == nil {
			continue
		}
		if s.fault.after {
			c.mu.Lock()
			c.due = s
			c.mu.Unlock()
			continue
		}
		if s.claim(c.proxy) && !s.fault.inject(c, s) {
			return false
		}
	}
	return true
}

// reply lets a reply pass unless the fault of the case keeps it back. A reply without a message always passes.
func (c *proxyConn) reply(b []byte) bool {
	c.mu.Lock()
	s := c.due
	c.due = nil
	c.mu.Unlock()
	if s == nil || isEmpty(b) || !s.claim(c.proxy) {
		return true
	}
	return s.fault.inject(c, s)
}

// isEmpty reports whether a reply of Redis has no message: that of XREADGROUP or XAUTOCLAIM.
func isEmpty(reply []byte) bool {
	none := []string{"_\r\n", "*-1\r\n", "*3\r\n$3\r\n0-0\r\n*0\r\n"}
	return slices.ContainsFunc(none, func(none string) bool { return bytes.HasPrefix(reply, []byte(none)) })
}

// fault is what goes wrong at a call: before the request arrives, or after the server has executed the call and before the reply
// arrives.
type fault struct {
	name  string
	after bool
	long  bool // it lasts until the case heals it
	// inject brings the fault, and reports whether the bytes go on after it.
	inject func(*proxyConn, *injection) bool
}

// faults are all that a call can meet.
var faults = func() (all []fault) {
	for _, after := range []bool{false, true} {
		all = append(all,
			fault{"is killed", after, false, kill},
			fault{"loses its connection", after, false, func(*proxyConn, *injection) bool { return false }},
			fault{"is cut off", after, true, func(c *proxyConn, _ *injection) bool { c.proxy.cut(); return false }},
			fault{"hears nothing", after, true, func(_ *proxyConn, s *injection) bool { <-s.healed; return false }},
			fault{"is paused", after, true, pauseProcess},
		)
	}
	return all
}()

// faultNamed returns the fault that comes before the call.
func faultNamed(name string) fault {
	return faults[slices.IndexFunc(faults, func(f fault) bool { return f.is(name) })]
}

func (f *fault) is(name string) bool { return f.name == name }

// kill kills the process with SIGKILL.
func kill(c *proxyConn, _ *injection) bool {
	c.proxy.monitor.forget(c.proxy.process)
	c.proxy.process.signal(syscall.SIGKILL)
	return false
}

// pauseProcess stops the process with SIGSTOP until the fault is healed. The bytes that were on their way then go on.
func pauseProcess(c *proxyConn, s *injection) bool {
	c.proxy.process.signal(syscall.SIGSTOP)
	<-s.healed
	c.proxy.process.signal(syscall.SIGCONT)
	return true
}

// injection is the fault of one case, and the call that it meets.
type injection struct {
	point  point
	fault  fault
	times  int           // how often the fault comes; 0: once
	fired  chan struct{} // closed when the call has met it
	healed chan struct{} // closed when a long fault is over

	mu    sync.Mutex
	met   int
	proxy *proxy // between the process and the server that it came to
}

func newInjection(p point, f fault) *injection {
	return &injection{point: p, fault: f, fired: make(chan struct{}), healed: make(chan struct{})}
}

// claim reports whether the fault comes now. It comes to the first call, or to as many calls as times says.
func (s *injection) claim(p *proxy) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met++; s.met == 1 {
		s.proxy = p
		close(s.fired)
	}
	return s.met <= max(s.times, 1)
}

// calls returns how often a process has made the call.
func (s *injection) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met
}

// current returns where the fault is now, or nil if it has not come or is over.
func (s *injection) current() *proxy {
	select {
	case <-s.healed:
		return nil
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxy
}

// monitor is what the proxies of a link share: the case that goes on, and the calls of each process since it was killed.
type monitor struct {
	mu     sync.Mutex
	active *injection
	calls  map[*child]map[string]int
	all    map[string]int // of all processes
}

func newMonitor() *monitor {
	return &monitor{calls: map[*child]map[string]int{}, all: map[string]int{}}
}

// set begins a case, or ends it with nil.
func (m *monitor) set(s *injection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = s
}

// called counts a call, and returns the case if the call is that of the case.
func (m *monitor) called(p *proxy, call, transaction string) *injection {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[p.process] == nil {
		m.calls[p.process] = map[string]int{}
	}
	m.calls[p.process][call]++
	m.all[call]++
	if m.active == nil || !m.active.point.is(call, transaction) {
		return nil
	}
	return m.active
}

// forget forgets the calls of a process that is killed.
func (m *monitor) forget(p *child) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.calls, p)
}

// count returns how many calls of a process, or of all if it is nil, begin with prefix.
func (m *monitor) count(p *child, prefix string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.all
	if p != nil {
		calls = m.calls[p]
	}
	for call, times := range calls {
		if strings.HasPrefix(call, prefix) {
			n += times
		}
	}
	return n
}

// current returns the case that goes on, or nil.
func (m *monitor) current() *injection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active
}

// names returns the calls that any process has made.
func (m *monitor) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}

// refuses reports whether the process is cut off from the server now.
func (m *monitor) refuses(p *proxy) bool {
	s := m.current()
	return s != nil && s.fault.is("is cut off") && s.current() == p
}

// passes waits while the process hears nothing from the server, and reports whether the connection works.
func (m *monitor) passes(p *proxy) bool {
	s := m.current()
	if s == nil || !s.fault.is("hears nothing") || s.current() != p {
		return true
	}
	<-s.healed
	return false
}

// callReader returns the calls that begin in the bytes which a client has sent.
type callReader interface{ read([]byte) []string }

// redisCalls reads calls of Redis. go-redis writes a call, or a pipeline, at once. Of a pipeline only the first call counts.
type redisCalls struct{}

// scripts are the names of the store's scripts, by their hashes.
var scripts = map[string]string{
	redis.NewScript(lua.Begin).Hash(): "begin", redis.NewScript(lua.Extend).Hash(): "extend",
	redis.NewScript(lua.Complete).Hash(): "complete", redis.NewScript(lua.Fail).Hash(): "fail",
}

func (redisCalls) read(b []byte) []string {
	if !bytes.HasPrefix(b, []byte("*")) {
		return nil
	}
	words := strings.SplitN(string(b), "\r\n", 6) // *3 $7 EVALSHA $40 hash …
	if len(words) < 3 {
		return nil
	}
	name := strings.ToLower(words[2])
	if len(words) < 5 {
		return []string{"redis: " + name}
	}
	if strings.HasPrefix(name, "eval") {
		hash := words[4]
		if name == "eval" {
			size, _ := strconv.Atoi(words[3][1:])
			hash = redis.NewScript(strings.Join(words[4:], "\r\n")[:size]).Hash()
		}
		return []string{"redis: script " + scripts[hash]}
	}
	return []string{"redis: " + name}
}

// sqlCalls reads calls of PostgreSQL: statements that are executed, and not those that are only prepared.
type sqlCalls struct {
	started  bool
	rest     []byte
	prepared map[string]string
}

func newSQLCalls() callReader { return &sqlCalls{prepared: map[string]string{}} }

// read returns the statements that begin to be executed.
func (r *sqlCalls) read(b []byte) (calls []string) {
	r.rest = append(r.rest, b...)
	for {
		kind, body, ok := r.next()
		if !ok {
			return calls
		}
		switch kind {
		case 'Q':
			calls = append(calls, statement(body))
		case 'P':
			name, text, _ := bytes.Cut(body, []byte{0})
			r.prepared[string(name)] = statement(text)
		case 'B':
			fields := bytes.SplitN(body, []byte{0}, 3)
			calls = append(calls, r.prepared[string(fields[1])])
		}
	}
}

// next returns the next message, if all of it has come. Before the startup message, messages have no kind.
func (r *sqlCalls) next() (kind byte, body []byte, ok bool) {
	head := 0
	if r.started {
		head = 1
	}
	if len(r.rest) < head+4 {
		return 0, nil, false
	}
	size := head + int(binary.BigEndian.Uint32(r.rest[head:]))
	if len(r.rest) < size {
		return 0, nil, false
	}
	if body = slices.Clone(r.rest[head+4 : size]); r.started {
		kind = r.rest[0]
	} else {
		major := binary.BigEndian.Uint32(body) >> 16
		r.started = major == 3 // Other messages ask for encryption.
	}
	r.rest = r.rest[size:]
	return kind, body, true
}

// statement is the text of a statement on one line.
func statement(text []byte) string {
	text, _, _ = bytes.Cut(text, []byte{0})
	return "sql: " + strings.Join(strings.Fields(string(text)), " ")
}
