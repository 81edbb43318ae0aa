package pgstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/servicetest"
)

func TestMain(m *testing.M) {
	dieIfTold()
	_ = flag.Set("test.parallel", "6") // Most tests wait for leases. The command line may have another number.
	goleak.VerifyTestMain(m,           // but for the server that the tests share
		goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/tied.startAll"),
		goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/pgserver.(*Server).run.func1"))
}

var ctx = context.Background()

// newPool returns a pool of connections to a server, after change if there is one. It is closed when the test ends.
func newPool(tb testing.TB, server *pgserver.Server, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(server.URL)
	require.NoError(tb, err)
	config.MaxConns = 16
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// newStore returns a store in the default schema of the shared server, and its pool.
func newStore(tb testing.TB, change ...func(*pgxpool.Config)) (*pgstore.Store, *pgxpool.Pool) {
	tb.Helper()
	pool := newPool(tb, pgserver.Shared(tb), change...)
	require.NoError(tb, pgstore.Migrate(ctx, pool))
	return pgstore.New(pool), pool
}

// ownSchema is a schema that no other test uses.
func ownSchema() string {
	return "test_" + random()
}

func random() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// ownStore returns a store in a schema of its own, with the schema's name.
func ownStore(tb testing.TB) (*pgstore.Store, *pgxpool.Pool, string) {
	tb.Helper()
	pool, schema := newPool(tb, pgserver.Shared(tb)), ownSchema()
	require.NoError(tb, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
	return pgstore.New(pool, pgstore.Schema(schema)), pool, schema
}

func begin(tb testing.TB, store driver.Store, c driver.Claim) driver.Entry {
	tb.Helper()
	entry, err := store.Begin(ctx, c)
	require.NoError(tb, err)
	return entry
}

// claim begins c, which must succeed, and fills in what the store answered.
func claim(tb testing.TB, store driver.Store, c *driver.Claim) {
	tb.Helper()
	entry := begin(tb, store, *c)
	require.Equal(tb, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Takeover, c.Operation = entry.Fence, entry.Attempt, entry.Takeover, entry.Operation
}

func claimed(tb testing.TB, store driver.Store, change ...func(*driver.Claim)) driver.Claim {
	tb.Helper()
	c := storetest.NewClaim(time.Minute, time.Hour)
	for _, f := range change {
		f(&c)
	}
	claim(tb, store, &c)
	return c
}

// rival returns the claim of another run of the same request.
func rival(c driver.Claim) driver.Claim {
	rand.Read(c.Owner[:])
	c.Fence, c.Attempt, c.Takeover, c.Operation = 0, 0, false, 0
	return c
}

// other returns the claim of another request under the same key.
func other(c driver.Claim) driver.Claim {
	c = rival(c)
	rand.Read(c.Fingerprint[:])
	return c
}

func count(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	tb.Helper()
	require.NoError(tb, pool.QueryRow(ctx, sql, args...).Scan(&n))
	return n
}

func execute(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	_, err := pool.Exec(ctx, sql, args...)
	require.NoError(tb, err)
}

// service is an engine on a store, and a table that its handlers write to.
type service struct {
	*core.Engine
	tb     testing.TB
	server *pgserver.Server
	store  *pgstore.Store
	pool   *pgxpool.Pool // the store's and the handlers'
	aside  *pgxpool.Pool // what the test looks through
	key    string
	runs   atomic.Int64
	lost   atomic.Pointer[core.Event]
}

func newService(tb testing.TB, changes ...func(*core.Config)) *service {
	return newServiceOn(tb, pgserver.Shared(tb), nil, changes...)
}

// newServiceOn is newService with a server, and a network if it is not nil, that are the test's.
func newServiceOn(tb testing.TB, server *pgserver.Server, network *network, changes ...func(*core.Config)) *service {
	tb.Helper()
	s := &service{tb: tb, server: server, key: random(), aside: newPool(tb, server)}
	s.pool = newPool(tb, server, func(c *pgxpool.Config) {
		if network != nil {
			network.use(c)
		}
	})
	require.NoError(tb, pgstore.Migrate(ctx, s.aside))
	execute(tb, s.aside, `CREATE TABLE IF NOT EXISTS effect (key text, owner text)`)
	s.store = pgstore.New(s.pool)
	s.Engine = servicetest.NewEngine(tb, s.store, append(changes, func(c *core.Config) {
		c.Hooks.Lost = func(_ context.Context, e core.Event) { s.lost.Store(&e) }
	})...)
	return s
}

type handler = func(context.Context) (*core.Response, error)

// do sends the service's request.
func (s *service) do(h handler) (core.Result, error) {
	return s.Do(ctx, servicetest.Order(s.key), func(ctx context.Context) (*core.Response, error) {
		s.runs.Add(1)
		return h(ctx)
	})
}

func (s *service) send(h handler) core.Result {
	s.tb.Helper()
	result, err := s.do(h)
	require.NoError(s.tb, err)
	return result
}

// effect is what a handler does in a transaction.
func (s *service) effect(tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", s.key)
	return err
}

// inTx has one effect in the run's transaction.
func (s *service) inTx(ctx context.Context) error {
	return pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, s.effect)
}

// order is a handler with one effect in the run's transaction.
func (s *service) order(ctx context.Context) (*core.Response, error) {
	if err := s.inTx(ctx); err != nil {
		return nil, err
	}
	return created()
}

func created() (*core.Response, error) { return &core.Response{Status: 201, Body: []byte("made")}, nil }

// effects is how many are to be seen.
func (s *service) effects() int {
	s.tb.Helper()
	return count(s.tb, s.aside, "SELECT count(*) FROM effect WHERE key = $1", s.key)
}

// replays tells whether a retry, now, gets a kept outcome. If it runs instead, it fails, and has no effects.
func (s *service) replays() bool {
	s.tb.Helper()
	result, err := servicetest.NewEngine(s.tb, pgstore.New(s.aside)).Do(ctx, servicetest.Order(s.key), func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 500}, nil
	})
	require.NoError(s.tb, err)
	return result.Replayed
}

// idle checks that the run has left no transaction and no connection behind.
func (s *service) idle() {
	s.tb.Helper()
	assert.Eventually(s.tb, func() bool { return s.pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond,
		"connections that nobody gave back")
}

// network dials connections that break at the first message with a text in it. It loses all requests to cancel a statement,
// which the driver sends when it gives one up.
type network struct {
	down atomic.Bool // nothing is dialled or sent
	hole atomic.Bool // what is sent does not arrive, what comes is not heard, and no connection breaks

	mu     sync.Mutex
	text   string // "" when nothing is planned
	when   when
	then   func()
	ended  chan struct{} // closed when then has returned
	fallen []net.Conn    // that something was sent on while there was a hole
}

// heal ends what is wrong with the network. It breaks the connections on which something was lost.
func (n *network) heal() {
	n.down.Store(false)
	n.hole.Store(false)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.fallen {
		_ = conn.Close()
	}
	n.fallen = nil
}

// swallowed is on how many connections something was lost since the network was healed last.
func (n *network) swallowed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.fallen)
}

// swallow takes what is sent on conn.
func (n *network) swallow(conn net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fallen = append(n.fallen, conn)
}

type when int

const (
	unsent   when = iota // the message is lost
	sent                 // its answer is not waited for
	answered             // its answer is lost; the server has acted on it
)

// use has c dial through n, with each statement in one message.
func (n *network) use(c *pgxpool.Config) {
	c.ConnConfig.DialFunc = n.dial
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
}

// breakAt plans for the next message with text in it: then is called, and the connection breaks.
func (n *network) breakAt(text string, w when, then func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text, n.when, n.then, n.ended = text, w, then, make(chan struct{})
}

// planned tells what is planned for message, and takes it off the plan.
func (n *network) planned(message []byte) (w when, then func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == "" || !bytes.Contains(message, []byte(n.text)) {
		return 0, nil
	}
	n.text = ""
	planned, ended := n.then, n.ended
	return n.when, func() {
		defer close(ended)
		planned()
	}
}

// broke waits until the connection has broken as planned. What was planned for it may be slower than the caller, which has had its
// response on another connection.
func (n *network) broke(tb testing.TB) {
	tb.Helper()
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		assert.Fail(tb, "no connection broke as planned")
	}
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.down.Load() {
		return nil, errBroken
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &breakable{Conn: conn, network: n}, err
}

type breakable struct {
	net.Conn
	network *network
	answer  atomic.Pointer[func()] // what is to happen when one is there
}

var errBroken = fmt.Errorf("test: %w", net.ErrClosed)

func (b *breakable) Write(p []byte) (n int, err error) {
	when, then := b.network.planned(p)
	switch {
	case b.network.down.Load() || bytes.HasPrefix(p, []byte("\x00\x00\x00\x10\x04\xd2\x16\x2e")):
		return 0, b.end(nothing)
	case b.network.hole.Load():
		b.network.swallow(b.Conn)
		return len(p), nil
	case then != nil && when == unsent:
		return 0, b.end(then)
	case then != nil && when == answered:
		b.answer.Store(&then)
	}
	n, err = b.Conn.Write(p)
	if then != nil && when == sent {
		_ = b.end(then)
	}
	return n, err
}

func (b *breakable) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	for err == nil && b.network.hole.Load() {
		n, err = b.Conn.Read(p)
	}
	if err != nil {
		return n, err
	}
	if then := b.answer.Swap(nil); then != nil {
		return 0, b.end(*then)
	}
	return n, nil
}

func (b *breakable) end(then func()) error {
	then()
	_ = b.Close()
	return errBroken
}

func nothing() {}
