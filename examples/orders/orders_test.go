package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// TestTheChainLosesAndDoublesNothing sends orders from many clients, which repeat what has no answer, through two processes
// of each role, while these are killed, killed in the gaps and paused, and their connections are cut. SOAK=1 sends ten times
// as many; SEED=n repeats the clients' and the faults' choices of an earlier run.
func TestTheChainLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.startAll()
	stopFaults := c.faults()
	c.clients()
	stopFaults()
	c.drained()
	c.checkOrders()
	c.checkStream()
	c.checkEffects()
	c.checkFaults()
	c.redisLosesEverything()
	c.stopAll()
}

const (
	crashIn   = "ORDERS_TEST_CRASH_IN" // set in the processes that the test starts: a seed, and the gap to die in
	crashLine = "CRASH: "
	lease     = time.Second
	parallel  = 64 // clients
)

// gaps are where the processes of a role die by themselves: the names that the code gives to gap.
var gaps = map[string][]string{
	"api":      {"the order is committed, the answer is not kept", "the confirmation is committed, the answer is not kept"},
	"relay":    {"the events are in the stream, the outbox is not marked"},
	"consumer": {"the effect is committed, its outcome is not kept", "the outcome of the event is kept, the stream's entry is not acknowledged"},
}

// crasher returns a gap in which the process dies soon, if it is the one of the spec.
func crasher(spec string) func(string) {
	number, mine, _ := strings.Cut(spec, " ")
	seed, _ := strconv.ParseUint(number, 10, 64)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if name == mine && random.IntN(20) == 0 {
			fmt.Println(crashLine + name)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// chain is the service as it runs in the test, and what the clients know of it.
type chain struct {
	t        *testing.T
	seed     uint64
	orders   []*placed
	dir      string
	env      []string
	db       *pgxpool.Pool
	redis    *redis.Client
	apis     []string
	children []*child
	counts   counts
}

type counts struct {
	kills, pauses      map[string]int // by role
	cutDB, cutRedis    int
	replays, unanswers atomic.Int64
}

// placed is an order as its client knows it.
type placed struct {
	key, body string
	confirmed bool // should be
	twice     bool // two clients send it at once
	answer    string
	id        int64
}

func newChain(t *testing.T) *chain {
	c := &chain{t: t, seed: seed(t), dir: t.TempDir(), counts: counts{kills: map[string]int{}, pauses: map[string]int{}}}
	number := 300
	if os.Getenv("SOAK") != "" {
		number = 3000
	}
	random := rand.New(rand.NewPCG(c.seed, 0))
	for i := range number {
		c.orders = append(c.orders, &placed{
			key: fmt.Sprintf("order-%d-%d", i, random.Uint64()), body: fmt.Sprintf(`{"item": "book %d", "quantity": %d}`, i, 1+random.IntN(9)),
			confirmed: random.IntN(10) > 0, twice: random.IntN(4) == 0,
		})
	}
	c.servers()
	return c
}

// servers starts Redis, makes a database, and says where they are.
func (c *chain) servers() {
	url := pgserver.Database(c.t)
	// Without PEXPIRETIME the store sends a script for each call, and a script has a name.
	server := redistest.Start(c.t, "--save", "", "--rename-command", "PEXPIRETIME", "")
	c.env = append(os.Environ(), "DATABASE_URL="+url+"?application_name=chain", "REDIS_URL=redis://"+server.Addr+"/0",
		"TOKENS=secret=alice", "LEASE="+lease.String(), "POLL=500ms", "CONSUMERS=4", "RELAYS=2", "MAX_ATTEMPTS=1000")
	var err error
	c.db, err = openDatabase(c.t.Context(), url)
	require.NoError(c.t, err)
	c.t.Cleanup(c.db.Close)
	c.redis = server.Client(c.t)
}

// child is a process of the service, and those that took its place.
type child struct {
	chain   *chain
	index   int
	role    string
	addr    string
	env     []string // more than the chain's
	log     *os.File
	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	ended   chan error
}

func (c *chain) startAll() {
	c.t.Cleanup(c.killAll)
	for _, role := range []string{"api", "relay", "consumer", "api", "relay", "consumer"} {
		child := c.newChild(role)
		if role == "api" {
			c.apis = append(c.apis, child.addr)
		}
		child.run()
	}
}

// newChild returns a child that has not started yet.
func (c *chain) newChild(role string) *child {
	i := len(c.children)
	log, err := os.OpenFile(filepath.Join(c.dir, fmt.Sprintf("%s-%d.log", role, i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	p := &child{chain: c, index: i, role: role, addr: redistest.FreeAddr(), log: log, ended: make(chan error, 1)}
	c.children = append(c.children, p)
	return p
}

// run starts the child's first process, and lets others take its place.
func (p *child) run() {
	require.NoError(p.chain.t, p.start(0))
	go p.keepUp()
}

// killAll ends all children at the end of the test, and shows the ends of their logs if it has failed.
func (c *chain) killAll() {
	for _, child := range c.children {
		child.stop(syscall.SIGKILL)
		_ = child.wait()
		_ = child.log.Close()
	}
	if c.t.Failed() {
		c.t.Log(c.tail())
	}
}

// start starts the n-th process of the child.
func (p *child) start(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errors.New("stopped")
	}
	p.cmd = exec.Command(os.Args[0])
	crash := fmt.Sprintf("%s=%d ", crashIn, p.chain.seed+uint64(1000*p.index+n))
	if mine := gaps[p.role]; n < len(p.chain.orders)/50 {
		crash += mine[n%len(mine)]
	}
	p.cmd.Env = slices.Concat(p.chain.env, p.env, []string{"ROLES=" + p.role, "ADDR=" + p.addr, crash})
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	return tied.Start(p.cmd, syscall.SIGKILL)
}

// keepUp starts a process again when it has died, as an orchestrator does, until the child is stopped or ends as it should
// not: in another way than by SIGKILL, or by code 1 where the database was cut off while it started.
func (p *child) keepUp() {
	for n := 1; ; n++ {
		err := p.cmd.Wait()
		killed := p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if !killed && p.cmd.ProcessState.ExitCode() != 1 || p.start(n) != nil {
			p.ended <- err
			return
		}
	}
}

// signal sends a signal to the process that there is.
func (p *child) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(s) == nil
}

// stop ends the child; wait returns how its process ended.
func (p *child) stop(s syscall.Signal) {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.signal(s)
}

func (p *child) wait() error {
	err := <-p.ended
	p.ended <- err
	return err
}

func (c *chain) stopAll() {
	for _, child := range c.children {
		child.stop(syscall.SIGTERM)
	}
	for _, child := range c.children {
		assert.NoError(c.t, child.wait(), "%s does not end with code 0", child.role)
	}
	assert.NotContains(c.t, c.logs(), "DATA RACE")
	assert.NotContains(c.t, c.logs(), "goroutine ", "a process panicked")
}

func (c *chain) logs() string {
	var all bytes.Buffer
	for _, child := range c.children {
		b, err := os.ReadFile(child.log.Name())
		require.NoError(c.t, err)
		all.Write(b)
	}
	return all.String()
}

func (c *chain) tail() string {
	var tail strings.Builder
	for _, child := range c.children {
		b, _ := os.ReadFile(child.log.Name())
		fmt.Fprintf(&tail, "--- %s\n%s\n", child.log.Name(), b[max(0, len(b)-2000):])
	}
	return tail.String()
}

// faults lets things go wrong, each kind once before any comes again, until the function that it returns is called.
func (c *chain) faults() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	random := rand.New(rand.NewPCG(c.seed, 1))
	kinds := []func(){c.cutDatabase(random), c.cutRedis(random), c.cutDatabase(random), c.cutRedis(random)}
	for _, child := range c.children {
		kinds = append(kinds, func() { c.kill(child) })
		if child.role != "api" {
			kinds = append(kinds, func() { c.pause(child) })
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, i := range random.Perm(len(kinds)) {
				if !pause(ctx, 50*time.Millisecond+time.Duration(random.Int64N(int64(250*time.Millisecond)))) {
					return
				}
				kinds[i]()
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (c *chain) kill(p *child) {
	if p.signal(syscall.SIGKILL) {
		c.counts.kills[p.role]++
	}
}

// pause stops a process for longer than the lease of what it is at. It goes on when others have taken that over.
func (c *chain) pause(p *child) {
	p.mu.Lock()
	process := p.cmd.Process
	p.mu.Unlock()
	if process.Signal(syscall.SIGSTOP) == nil {
		c.counts.pauses[p.role]++
		time.AfterFunc(lease*3/2, func() { _ = process.Signal(syscall.SIGCONT) })
	}
}

func (c *chain) cutDatabase(random *rand.Rand) func() {
	return func() {
		ended, err := c.db.Exec(context.Background(), `
			SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
			WHERE application_name = 'chain' AND datname = current_database() AND abs(hashint4(pid + $1)) % 3 = 0) p`, random.Int32N(1000))
		if err == nil {
			c.counts.cutDB += int(ended.RowsAffected())
		}
	}
}

func (c *chain) cutRedis(random *rand.Rand) func() {
	return func() {
		list, err := c.redis.Do(context.Background(), "CLIENT", "LIST", "TYPE", "NORMAL").Text()
		me := c.redis.ClientID(context.Background()).Val()
		for _, line := range strings.Split(list, "\n") {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			id, bad := strconv.ParseInt(name, 10, 64)
			if err != nil || bad != nil || id == me || random.IntN(3) > 0 {
				continue
			}
			if n, _ := c.redis.ClientKillByFilter(context.Background(), "ID", name).Result(); n > 0 {
				c.counts.cutRedis++
			}
		}
	}
}

// clients sends all orders and returns when each has its answer.
func (c *chain) clients() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Minute)
	defer cancel()
	next := make(chan *placed)
	var clients sync.WaitGroup
	for range parallel {
		client := &http.Client{Transport: &idem.Transport{
			Base: &anyOf{chain: c}, Attempts: 1000, MaxElapsed: 10 * time.Minute, Pause: func(int) time.Duration { return 50 * time.Millisecond },
		}}
		clients.Go(func() {
			for o := range next {
				c.order(ctx, client, o)
			}
		})
	}
	for _, o := range c.orders {
		next <- o
	}
	close(next)
	clients.Wait()
}

// order is what a client does: it orders, and confirms.
func (c *chain) order(ctx context.Context, client *http.Client, o *placed) {
	var both sync.WaitGroup
	second := ""
	if o.twice {
		both.Go(func() { second, _ = c.post(ctx, client, "/orders", o.key, o.body) })
	}
	var location string
	o.answer, location = c.post(ctx, client, "/orders", o.key, o.body)
	both.Wait()
	if o.twice {
		assert.Equal(c.t, o.answer, second, "two clients with one key")
	}
	o.id, _ = strconv.ParseInt(strings.TrimPrefix(location, "/orders/"), 10, 64)
	if o.confirmed {
		c.post(ctx, client, location+"/confirmation", o.key+"-confirm", "")
	}
}

// post sends a request until there is an answer, and it has come to its end.
func (c *chain) post(ctx context.Context, client *http.Client, path, key, body string) (answer, location string) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(idem.WithKey(ctx, key), http.MethodPost, "http://api"+path, strings.NewReader(body))
		if !assert.NoError(c.t, err) {
			return "", ""
		}
		r.Header.Set("Authorization", "Bearer secret")
		res, err := client.Do(r)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			continue
		}
		assert.Contains(c.t, []int{http.StatusOK, http.StatusCreated}, res.StatusCode, string(b))
		if res.Header.Get("Idempotent-Replayed") != "" {
			c.counts.replays.Add(1)
		}
		return string(b), res.Header.Get("Location")
	}
	assert.NoError(c.t, context.Cause(ctx), "%s has no answer", path)
	return "", ""
}

// anyOf sends each attempt to another of the APIs.
type anyOf struct {
	chain *chain
	turn  atomic.Int64
}

var transport = &http.Transport{MaxIdleConnsPerHost: parallel, ResponseHeaderTimeout: 10 * time.Second}

func (a *anyOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = a.chain.apis[int(a.turn.Add(1))%len(a.chain.apis)]
	res, err := transport.RoundTrip(r)
	if err != nil {
		a.chain.counts.unanswers.Add(1)
	}
	return res, err
}

// drained waits until no link of the chain has anything left to do.
func (c *chain) drained() {
	require.Eventually(c.t, func() bool {
		if c.number("SELECT count(*) FROM outbox WHERE published_at IS NULL") > 0 { // first: what the stream has before is not all
			return false
		}
		info, err := c.redis.XInfoStream(c.t.Context(), stream).Result()
		groups, groupsErr := c.redis.XInfoGroups(c.t.Context(), stream).Result()
		if err != nil || groupsErr != nil || len(groups) != 1 {
			return false
		}
		return groups[0].Pending == 0 && groups[0].LastDeliveredID == info.LastGeneratedID
	}, 2*time.Minute, 50*time.Millisecond, "something is still in the outbox or in the stream")
	assert.Zero(c.t, c.redis.Exists(c.t.Context(), deadStream).Val(), "there are dead events")
}

func (c *chain) number(query string) (n int) {
	c.t.Helper()
	require.NoError(c.t, c.db.QueryRow(c.t.Context(), query).Scan(&n))
	return n
}

func (c *chain) events() (n int) {
	for _, o := range c.orders {
		n++
		if o.confirmed {
			n++
		}
	}
	return n
}

// checkOrders compares what the clients were told with what the database has.
func (c *chain) checkOrders() {
	assert.Equal(c.t, len(c.orders), c.number("SELECT count(*) FROM orders"))
	ids := map[int64]bool{}
	for _, o := range c.orders {
		ids[o.id] = true
		var item, state string
		require.NoError(c.t, c.db.QueryRow(c.t.Context(), "SELECT item, state FROM orders WHERE id = $1", o.id).Scan(&item, &state))
		assert.Contains(c.t, o.body, `"`+item+`"`)
		assert.Equal(c.t, o.confirmed, state == "confirmed")
	}
	assert.Len(c.t, ids, len(c.orders), "two keys have one order")
	assert.Equal(c.t, c.events(), c.number("SELECT count(*) FROM outbox"))
}

// checkStream looks at the order in which the relays published.
func (c *chain) checkStream() {
	entries, err := c.redis.XRange(c.t.Context(), stream, "-", "+").Result()
	require.NoError(c.t, err)
	last, seen := map[int64]int{}, map[string]string{}
	for _, entry := range entries {
		e := eventOf(entry)
		if first, again := seen[e.ID]; again {
			assert.Equal(c.t, first, string(e.Payload))
			continue
		}
		seen[e.ID] = string(e.Payload)
		assert.Equal(c.t, last[e.OrderID]+1, e.Version, "an event of order %d overtook another", e.OrderID)
		last[e.OrderID] = e.Version
	}
	assert.Len(c.t, seen, c.events())
	c.t.Logf("%d events in %d entries", len(seen), len(entries))
	assert.Greater(c.t, len(entries), len(seen), "no relay published anything twice")
}

// checkEffects looks at what the consumers did.
func (c *chain) checkEffects() {
	assert.Equal(c.t, c.events(), c.number("SELECT count(*) FROM shipping_log WHERE effect"))
	assert.Zero(c.t, c.number(`
		SELECT count(*) FROM outbox o WHERE 1 <> (SELECT count(*) FROM shipping_log l WHERE l.effect AND l.event_id = o.id::text)`),
		"events without an effect, or with more than one")
	assert.Zero(c.t, c.number(`
		SELECT count(*) FROM (SELECT version, row_number() OVER (PARTITION BY order_id ORDER BY id) AS place FROM shipping_log WHERE effect) l
		WHERE version <> place`), "effects out of order")
	assert.Zero(c.t, c.number("SELECT count(*) - count(DISTINCT (event_id, fence)) FROM shipping_log"), "two runs under one claim")
	c.checkFirstRuns()
	assert.Zero(c.t, c.number(`
		SELECT count(*) FROM orders o LEFT JOIN shipments s ON s.order_id = o.id
		WHERE s.state IS DISTINCT FROM CASE o.state WHEN 'confirmed' THEN 'sent' ELSE 'reserved' END`), "shipments that do not fit their order")
}

// checkFirstRuns looks for runs that were not needed although they count as the first attempt. There may be one where the connection
// was cut while an earlier run committed: that run ended with errOutage, and so it does not count.
func (c *chain) checkFirstRuns() {
	logs := c.logs()
	rows, err := c.db.Query(c.t.Context(), "SELECT event_id FROM shipping_log WHERE NOT effect AND attempt = 1")
	require.NoError(c.t, err)
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(c.t, err)
	for _, id := range events {
		assert.Regexp(c.t, `"msg":"later","event":"`+id+`".*`+errOutage.Error(), logs, "a run of event %s was not needed", id)
	}
}

// checkFaults proves that things went wrong.
func (c *chain) checkFaults() {
	logs := c.logs()
	proof := map[string]int{
		"connections to Postgres cut": c.counts.cutDB, "connections to Redis cut": c.counts.cutRedis,
		"attempts without an answer": int(c.counts.unanswers.Load()), "replays": int(c.counts.replays.Load()),
		"takeovers":                       strings.Count(logs, `"msg":"takeover"`),
		"runs that found the effect done": c.number("SELECT count(*) FROM shipping_log WHERE NOT effect"),
	}
	for _, role := range []string{"api", "relay", "consumer"} {
		proof[role+" killed"] = c.counts.kills[role]
		if role != "api" {
			proof[role+" paused"] = c.counts.pauses[role]
		}
	}
	for _, names := range gaps {
		for _, name := range names {
			proof["killed when "+name] = strings.Count(logs, crashLine+name)
		}
	}
	for what, n := range proof {
		assert.Positive(c.t, n, what)
		c.t.Logf("%5d %s", n, what)
	}
}

// redisLosesEverything: records, stream and group are gone, and what the database has is enough. Requests that are repeated
// and events that are published again change nothing.
func (c *chain) redisLosesEverything() {
	require.NoError(c.t, c.redis.FlushAll(c.t.Context()).Err())
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	client := &http.Client{Transport: &idem.Transport{Base: &anyOf{chain: c}, Attempts: 1000, MaxElapsed: time.Minute}}
	for _, o := range c.orders[:20] {
		answer, _ := c.post(ctx, client, "/orders", o.key, o.body)
		assert.Equal(c.t, o.answer, answer)
	}
	runs := c.number("SELECT count(*) FROM shipping_log")
	again, err := c.db.Exec(ctx, "UPDATE outbox SET published_at = NULL WHERE order_id IN (SELECT id FROM orders ORDER BY id LIMIT 100)")
	require.NoError(c.t, err)
	c.drained()
	assert.Equal(c.t, len(c.orders), c.number("SELECT count(*) FROM orders"))
	assert.GreaterOrEqual(c.t, c.number("SELECT count(*) FROM shipping_log"), runs+int(again.RowsAffected()), "they were handled again")
	assert.Equal(c.t, c.events(), c.number("SELECT count(*) FROM shipping_log WHERE effect"), "without an effect")
}
