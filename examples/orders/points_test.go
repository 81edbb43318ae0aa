package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
	"github.com/go-idem/idem/lua"
)

const (
	timeoutIn    = "ORDERS_TEST_TIMEOUT" // set in the processes that the test starts: longestTransaction, and five times block
	shortLease   = 500 * time.Millisecond
	shortKeep    = time.Second // RETENTION, KEEP_EVENTS and idle_in_transaction_session_timeout
	mostAttempts = 3           // of the events that cannot be handled
)

// TestEveryPointOfTheChain runs two processes of a role, and lets one of them meet a fault at one of its calls to a server: it is
// killed, loses its connection, is cut off from the server, hears nothing from the server, or is paused. That happens before the
// call arrives, or after the server has executed the call and before the reply arrives. Meanwhile the other process does the
// work. A long fault ends after that. A pause ends when all leases and retentions are over as well. Each effect happens once.
// With SOAK=1 each fault comes at each call. Without it one fault comes at each call, and SEED=n repeats the choice.
func TestEveryPointOfTheChain(t *testing.T) {
	t.Parallel()
	for _, r := range roles {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			l := newLink(t, r)
			for i, p := range r.points {
				for _, f := range l.choose(i) {
					t.Run(strings.Join([]string{"a process that", f.name, f.when(), "it", p.what}, " "), func(t *testing.T) { l.meet(t, p, f) })
				}
			}
			l.checkCalls()
			if r.finish != nil {
				r.finish(t, l)
			}
			l.started(t)
			l.stopAll()
		})
	}
}

// point is a call of a process to a server.
type point struct {
	what string
	call string // how the call begins, as a proxy names it
	with string // a call of the same transaction that comes before it; "": any
}

func (p *point) is(call, transaction string) bool {
	return strings.HasPrefix(call, p.call) && strings.Contains(transaction, p.with)
}

// role is what the processes of a link do. The points are all calls of the role.
type role struct {
	name, process string
	env           []string
	points        []point
	ready         string // the call that says that a process is at work; "": it serves
	work          func(t *testing.T, l *link, s *injection)
	finish        func(t *testing.T, l *link)
}

var roles = []role{
	{
		name: "the API", process: "api", work: placeAndConfirm,
		points: []point{
			{"claims the key", "redis: script begin", ""},
			{"begins a transaction", "sql: begin", ""},
			{"writes the order", "sql: INSERT INTO orders", ""},
			{"writes the event", "sql: INSERT INTO outbox", ""},
			{"commits", "sql: commit", ""},
			{"confirms the order", "sql: UPDATE orders", ""},
			{"reads the order", "sql: SELECT id, item", ""},
			{"commits the confirmation", "sql: commit", "sql: UPDATE orders"},
			{"stores the outcome", "redis: script complete", ""},
			{"stores that nothing was done", "redis: script fail", ""},
		},
	},
	{
		name: "the relay", process: "relay", env: []string{"RELAYS=1"}, ready: "sql: SELECT id::text", work: relayEvents,
		points: []point{
			{"begins a transaction", "sql: begin", ""},
			{"claims events", "sql: SELECT id::text", ""},
			{"adds them to the stream", "redis: xadd", ""},
			{"marks them as published", "sql: UPDATE outbox", ""},
			{"commits", "sql: commit", "sql: UPDATE outbox"},
			{"rolls back, because Redis is full", "sql: rollback", ""},
			{"listens", "sql: LISTEN", ""},
			{"looks for what all groups have read", "redis: xinfo", ""},
			{"looks for what they have not acknowledged", "redis: xpending", ""},
			{"trims the stream", "redis: xtrim", ""},
			{"deletes old events from the outbox", "sql: DELETE FROM outbox", ""},
		},
	},
	{
		name: "the consumer", process: "consumer", env: []string{"CONSUMERS=1", "MAX_ATTEMPTS=1000"},
		ready: "redis: xreadgroup", work: consumeEvents,
		points: []point{
			{"joins the group", "redis: xgroup", ""},
			{"reads messages", "redis: xreadgroup", ""},
			{"takes the messages of a consumer that has left", "redis: xautoclaim", ""},
			{"claims the message", "redis: script begin", ""},
			{"stores the outcome", "redis: script complete", ""},
			{"acknowledges the message", "redis: xack", ""},
		},
	},
	{
		name: "the consumer's transaction", process: "consumer", env: []string{"CONSUMERS=1", "MAX_ATTEMPTS=1000"},
		ready: "redis: xreadgroup", work: consumeEvents,
		points: []point{
			{"begins", "sql: begin", ""},
			{"makes the shipment", "sql: INSERT INTO shipments", ""},
			{"reads the shipment's version", "sql: SELECT version FROM shipments", ""},
			{"changes the shipment", "sql: UPDATE shipments", ""},
			{"writes the log", "sql: INSERT INTO shipping_log", ""},
			{"commits", "sql: commit", ""},
		},
	},
	{
		name: "the consumer of an event that cannot be handled", process: "consumer",
		ready: "redis: xreadgroup", work: exhaustEvent, finish: reviveEvents,
		env: []string{"CONSUMERS=1", fmt.Sprintf("MAX_ATTEMPTS=%d", mostAttempts), "RETENTION=1h"},
		points: []point{
			{"rolls the transaction back", "sql: rollback", ""},
			{"stores the failure", "redis: script fail", ""},
			{"leaves the message for later", "redis: xclaim", ""},
			{"stores the outcome", "redis: script complete", ""},
			{"moves the message to the dead", "redis: multi", ""},
		},
	},
}

// others are calls that are no points. They prepare a connection or renew a lease.
var others = []string{
	"redis: hello", "redis: client", "redis: script extend", "redis: pexpiretime", "redis: ping", "sql: -- ping", "connect",
}

// link is two processes of a role, with a proxy between each process and each server.
type link struct {
	*chain
	role    role
	monitor *monitor
	cases   int
}

func newLink(t *testing.T, r role) *link {
	l := &link{chain: &chain{t: t, seed: seed(t), dir: t.TempDir()}, role: r}
	l.monitor = newMonitor()
	l.servers()
	l.env = append(l.env, "LEASE="+shortLease.String(), "RETENTION="+shortKeep.String(), "KEEP_EVENTS="+shortKeep.String(),
		"POLL=100ms", timeoutIn+"=1s")
	l.env = append(l.env, r.env...)
	require.NoError(t, l.redis.XGroupCreateMkStream(t.Context(), stream, group, "0").Err())
	for _, script := range []string{lua.Begin, lua.Complete, lua.Fail} { // Otherwise Redis refuses the first call of each script.
		require.NoError(t, l.redis.ScriptLoad(t.Context(), script).Err())
	}
	t.Cleanup(l.killAll)
	for range 2 {
		p := l.newChild(r.process)
		database := newProxy(t, p, l.monitor, l.db.Config().ConnConfig.Host+":"+fmt.Sprint(l.db.Config().ConnConfig.Port), newSQLCalls)
		redis := newProxy(t, p, l.monitor, l.redis.Options().Addr, func() callReader { return redisCalls{} })
		p.env = []string{
			fmt.Sprintf("DATABASE_URL=postgres://postgres@%s/%s?idle_in_transaction_session_timeout=%s",
				database.addr, l.db.Config().ConnConfig.Database, shortKeep),
			"REDIS_URL=redis://" + redis.addr + "/0",
		}
		p.run()
	}
	return l
}

// choose returns the faults that the i-th point meets.
func (l *link) choose(i int) []fault {
	if os.Getenv("SOAK") != "" {
		return faults
	}
	start := rand.New(rand.NewPCG(l.seed, 0)).IntN(len(faults))
	return faults[(start+i)%len(faults):][:1]
}

func (f *fault) when() string {
	if f.after {
		return "after"
	}
	return "before"
}

// meet lets a process meet a fault at a point, while it does the work of its role.
func (l *link) meet(t *testing.T, p point, f fault) {
	l.cases++
	l.started(t)
	s := newInjection(p, f)
	l.monitor.set(s)
	defer l.monitor.set(nil)
	defer s.heal()
	l.provoke(t, s)
	l.role.work(t, l, s)
}

// started waits until both processes are at work.
func (l *link) started(t *testing.T) {
	t.Helper()
	for _, child := range l.children {
		l.eventually(t, "a process does not start", func() bool { return l.isReady(child) })
	}
}

// provoke makes the processes make calls that they do not make for each event.
func (l *link) provoke(t *testing.T, s *injection) {
	t.Helper()
	switch call := s.point.call; {
	case call == "sql: LISTEN":
		l.one(t, `
			SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND query = 'LISTEN outbox'`)
	case call == "redis: xgroup":
		require.NoError(t, l.redis.XGroupDestroy(t.Context(), stream, group).Err())
	case call == "sql: rollback" && l.role.process == "relay":
		require.NoError(t, l.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
		go func() { <-s.fired; l.redis.ConfigSet(context.Background(), "maxmemory", "0") }()
	case call == "redis: script fail" && l.role.process == "api": // A handler that cannot reach its table in time fails.
		tx, err := l.db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE orders")
		require.NoError(t, err)
		go func() { <-s.fired; _ = tx.Rollback(context.Background()) }()
	case call == "redis: xreadgroup" && s.fault.after: // The reads that wait now do not meet the fault.
		for _, child := range l.children {
			before := l.monitor.count(child, call)
			l.eventually(t, "a process does not read", func() bool { return l.monitor.count(child, call) > before })
		}
	}
}

func (l *link) isReady(p *child) bool {
	if l.role.ready != "" {
		return l.monitor.count(p, l.role.ready) > 0
	}
	res, err := http.Get("http://" + p.addr + "/healthz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusNoContent
}

// heal ends a long fault.
func (s *injection) heal() {
	select {
	case <-s.healed:
	default:
		close(s.healed)
	}
}

func (l *link) eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), what)
	}
}

// met waits until the process has met its fault.
func (l *link) met(t *testing.T, s *injection) {
	t.Helper()
	select {
	case <-s.fired:
	case <-time.After(patience):
		require.Fail(t, "no process has made the call")
	}
}

// over ends a long fault, and waits until the process has finished what it did then: its next call is next.
func (l *link) over(t *testing.T, s *injection, next string) {
	t.Helper()
	process := s.proxy.process
	before := l.monitor.count(process, next)
	s.heal()
	if s.fault.long {
		l.eventually(t, "the process does not go on", func() bool { return l.monitor.count(process, next) > before })
	}
}

// recordsEnd waits until the retention of all records is over, and says so where the fault is a pause.
func (l *link) recordsEnd(t *testing.T, s *injection) {
	if s.fault.is("is paused") {
		l.eventually(t, "a record outlives its retention", func() bool {
			return l.redis.DBSize(t.Context()).Val() == l.redis.Exists(t.Context(), stream).Val()
		})
	}
}

func (l *link) one(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, l.db.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

// checkCalls fails if the processes make a call that is no point.
func (l *link) checkCalls() {
	for _, call := range l.monitor.names() {
		known := strings.Contains(call, "goose") || strings.Contains(call, "pg_") // a migration
		for _, r := range roles {
			isPoint := slices.ContainsFunc(r.points, func(p point) bool { return strings.HasPrefix(call, p.call) })
			known = known || r.process == l.role.process && isPoint
		}
		known = known || slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(call, other) })
		assert.True(l.t, known, "no case has the call %q", call)
	}
}

// placeAndConfirm sends an order to one process, and to the other process until there is a response. Then it confirms the order
// in the same way.
func placeAndConfirm(t *testing.T, l *link, s *injection) {
	item := fmt.Sprintf("book %d", l.cases)
	body := fmt.Sprintf(`{"item": %q, "quantity": 2}`, item)
	location, first := l.sendTwice(t, s, "/orders", item, body)
	_, confirmation := l.sendTwice(t, s, location+"/confirmation", item+" confirm", "")
	l.met(t, s)
	for range 2 {
		_, again := l.sendTwice(t, s, "/orders", item, body)
		assert.Equal(t, first, again)
		_, again = l.sendTwice(t, s, location+"/confirmation", item+" confirm", "")
		assert.Equal(t, confirmation, again)
	}
	assert.Equal(t, 1, l.one(t, "SELECT count(*) FROM orders WHERE item = $1 AND state = 'confirmed'", item))
	assert.Equal(t, 2, l.one(t, "SELECT count(*) FROM outbox JOIN orders o ON o.id = order_id WHERE item = $1", item))
}

// sendTwice sends a request to one process, and sends it to the other process until that responds. If the first process responds
// as well, both responses are the same.
func (l *link) sendTwice(t *testing.T, s *injection, path, key, body string) (location, answer string) {
	t.Helper()
	slow := make(chan response, 1)
	go func() { slow <- l.post(l.children[0], path, key, body) }()
	var first, second response
	waiting := true
	select {
	case first = <-slow:
		waiting = false
	case <-s.fired:
	}
	l.eventually(t, "the other process has no response for "+path, func() bool {
		second = l.post(l.children[1], path, key, body)
		return second.status/100 == 2
	})
	if !s.fault.is("is paused") && waiting { // Nothing hangs, although the fault goes on.
		first, waiting = <-slow, false
	}
	if s.current() != nil {
		l.recordsEnd(t, s)
		s.heal()
	}
	if waiting {
		first = <-slow
	}
	switch {
	case first.status/100 == 2:
		assert.Equal(t, second.body, first.body)
	case first.status == 0:
		assert.True(t, s.fault.is("is killed"), "the process has not responded")
	default:
		assert.Contains(t, []int{http.StatusServiceUnavailable, http.StatusConflict}, first.status, first.body)
	}
	return second.location, second.body
}

// response is what a client gets. Its status is 0 if there is no response.
type response struct {
	status         int
	body, location string
}

// post sends a request once.
func (l *link) post(p *child, path, key, body string) response {
	ctx, cancel := context.WithTimeout(idem.WithKey(context.Background(), key), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		return response{}
	}
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	res, err := plain.RoundTrip(r)
	if err != nil {
		return response{}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return response{}
	}
	return response{res.StatusCode, string(b), res.Header.Get("Location")}
}

var plain = &http.Transport{DisableKeepAlives: true} // A kept connection would send a request again by itself.

// relayEvents writes an order with two events. They come into the stream, in order, and whatever the outbox has as published is
// in the stream.
func relayEvents(t *testing.T, l *link, s *injection) {
	id := l.writeOrder(t)
	l.met(t, s)
	l.checkPublished(t)
	left := func() int {
		return l.one(t, "SELECT count(*) FROM outbox WHERE order_id = $1 AND published_at IS NULL", id)
	}
	l.eventually(t, "an event is not published", func() bool { return left() == 0 })
	if s.fault.is("is paused") {
		l.eventually(t, "the outbox keeps its events", func() bool {
			return l.one(t, "SELECT count(*) FROM outbox WHERE order_id = $1", id) == 0
		})
	}
	l.over(t, s, "sql: begin")
	l.eventually(t, "an event is not published", func() bool { return left() == 0 })
	entries := l.entries(t, id)
	payloads, last := map[int]string{}, 0
	for _, e := range entries {
		if first, again := payloads[e.Version]; again {
			assert.Equal(t, first, string(e.Payload))
			continue
		}
		assert.Equal(t, last+1, e.Version, "an event has overtaken another one")
		payloads[e.Version], last = string(e.Payload), e.Version
	}
	assert.Len(t, payloads, 2)
	assert.LessOrEqual(t, len(entries), 4, "one crash publishes an event twice at most")
}

// writeOrder writes an order and its two events, as the API does.
func (l *link) writeOrder(t *testing.T) int {
	t.Helper()
	return l.one(t, `
		WITH placed AS (
			INSERT INTO orders (operation, customer, item, quantity, state, version)
			VALUES ('case ' || $1::int, 'alice', 'book', 2, 'confirmed', 2) RETURNING id),
		written AS (
			INSERT INTO outbox (order_id, version, type, payload) SELECT id, 1, 'OrderPlaced', '{"n": 1}'::json FROM placed
			UNION ALL SELECT id, 2, 'OrderConfirmed', '{"n": 2}' FROM placed)
		SELECT id FROM placed`, l.cases)
}

// checkPublished looks at the outbox before it looks at the stream, so that no event is missing that is published meanwhile.
func (l *link) checkPublished(t *testing.T) {
	t.Helper()
	rows, err := l.db.Query(t.Context(), "SELECT id::text FROM outbox WHERE published_at IS NOT NULL")
	require.NoError(t, err)
	in := map[string]bool{}
	for _, e := range l.entries(t, 0) {
		in[e.ID] = true
	}
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		assert.True(t, in[id], "event %s is marked as published, and is not in the stream", id)
	}
	require.NoError(t, rows.Err())
}

// entries returns the events of an order in the stream, or of all orders if it is 0.
func (l *link) entries(t *testing.T, order int) (events []event) {
	t.Helper()
	entries, err := l.redis.XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	for _, m := range entries {
		if e := eventOf(m); order == 0 || e.OrderID == int64(order) {
			events = append(events, e)
		}
	}
	return events
}

// add adds an event to the stream.
func (l *link) add(t *testing.T, order, version int) {
	t.Helper()
	require.NoError(t, l.redis.XAdd(t.Context(), l.entry(order, version)).Err())
}

// entry returns the entry of an event. Each order of a link has the number of its case.
func (l *link) entry(order, version int) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: []any{
		"id", fmt.Sprintf("%d-%d", order, version), "order", order, "version", version, "payload", "{}",
		"type", []string{orderPlaced, orderConfirmed}[version-1],
	}}
}

// consumeEvents adds the two events of an order to the stream. Each has its effect once, in order, and what is acknowledged has
// had its effect.
func consumeEvents(t *testing.T, l *link, s *injection) {
	if s.point.call == "redis: xautoclaim" {
		l.leaveBehind(t, l.cases, 1)
	} else {
		l.add(t, l.cases, 1)
	}
	l.add(t, l.cases, 2)
	l.met(t, s)
	l.checkAcknowledged(t)
	done := func() bool {
		return l.one(t, "SELECT coalesce(max(version), 0) FROM shipments WHERE order_id = $1", l.cases) == 2 && l.acknowledged(t)
	}
	l.eventually(t, "an event is not handled", done)
	l.recordsEnd(t, s)
	l.over(t, s, "redis: xautoclaim")
	l.eventually(t, "an event is not handled", done)
	l.checkShipped(t, l.cases)
}

// leaveBehind adds an event that a consumer has read and not acknowledged.
func (l *link) leaveBehind(t *testing.T, order, version int) {
	t.Helper()
	_, err := l.redis.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.XAdd(t.Context(), l.entry(order, version))
		p.XReadGroup(t.Context(), &redis.XReadGroupArgs{Streams: []string{stream, ">"}, Group: group, Consumer: "gone", Block: -1})
		return nil
	})
	require.NoError(t, err)
}

// acknowledged reports whether all events are acknowledged.
func (l *link) acknowledged(t *testing.T) bool {
	t.Helper()
	groups, err := l.redis.XInfoGroups(t.Context(), stream).Result()
	require.NoError(t, err)
	return len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag == 0
}

// checkAcknowledged looks at the stream before it looks at the effects, so that no effect is missing that happens meanwhile.
func (l *link) checkAcknowledged(t *testing.T) {
	t.Helper()
	acknowledged := map[string]bool{}
	groups, err := l.redis.XInfoGroups(t.Context(), stream).Result()
	require.NoError(t, err)
	if len(groups) == 0 {
		return
	}
	read, err := l.redis.XRange(t.Context(), stream, "-", groups[0].LastDeliveredID).Result()
	require.NoError(t, err)
	pending, err := l.redis.XPendingExt(t.Context(), &redis.XPendingExtArgs{
		Stream: stream, Group: group, Start: "-", End: "+", Count: 10000,
	}).Result()
	require.NoError(t, err)
	for _, m := range read {
		acknowledged[m.ID] = true
	}
	for _, p := range pending {
		delete(acknowledged, p.ID)
	}
	for _, m := range read {
		if acknowledged[m.ID] {
			assert.Equal(t, 1, l.one(t, "SELECT count(*) FROM shipping_log WHERE effect AND event_id = $1", eventOf(m).ID),
				"entry %s is acknowledged, and has had no effect", m.ID)
		}
	}
}

// checkShipped compares the effects of an order with its events.
func (l *link) checkShipped(t *testing.T, order int) {
	t.Helper()
	for version := 1; version <= 2; version++ {
		id := fmt.Sprintf("%d-%d", order, version)
		assert.Equal(t, 1, l.one(t, "SELECT count(*) FROM shipping_log WHERE effect AND event_id = $1", id), "effects of event %s", id)
	}
	assert.Equal(t, 1, l.one(t, "SELECT count(*) FROM shipments WHERE order_id = $1 AND version = 2 AND state = 'sent'", order))
	assert.Zero(t, l.one(t, `
		SELECT count(*) FROM shipping_log a JOIN shipping_log b USING (order_id)
		WHERE order_id = $1 AND a.effect AND b.effect AND a.version < b.version AND a.id > b.id`, order), "effects out of order")
}

// exhaustEvent adds an event whose predecessor is missing. It is dead after as many runs as there are attempts.
func exhaustEvent(t *testing.T, l *link, s *injection) {
	before := l.monitor.count(nil, "sql: INSERT INTO shipments")
	l.add(t, l.cases, 2)
	l.met(t, s)
	dead := func() bool { return l.isDead(t, l.cases) && l.acknowledged(t) }
	l.eventually(t, "an event is not dead", dead)
	l.over(t, s, "redis: xautoclaim")
	l.eventually(t, "an event is not dead", dead)
	assert.Equal(t, mostAttempts, l.monitor.count(nil, "sql: INSERT INTO shipments")-before, "runs")
}

func (l *link) isDead(t *testing.T, order int) bool {
	t.Helper()
	dead, err := l.redis.XRange(t.Context(), deadStream, "-", "+").Result()
	require.NoError(t, err)
	for _, m := range dead {
		if eventOf(m).OrderID == int64(order) {
			return true
		}
	}
	return false
}

// reviveEvents kills the process in each run of one more event. Then it adds the missing events, and revives
// what is dead: each event has its effect once.
func reviveEvents(t *testing.T, l *link) {
	t.Run("an event that kills each process that handles it is dead", func(t *testing.T) {
		l.cases++
		s := newInjection(point{call: "sql: SELECT version FROM shipments"}, faultNamed("is killed"))
		s.times = 1000
		l.monitor.set(s)
		defer l.monitor.set(nil)
		l.add(t, l.cases, 2)
		l.eventually(t, "an event is not dead", func() bool { return l.isDead(t, l.cases) && l.acknowledged(t) })
		assert.Equal(t, mostAttempts, s.calls())
	})
	t.Run("dead events are revived", func(t *testing.T) {
		for order := 1; order <= l.cases; order++ {
			l.add(t, order, 1)
		}
		l.eventually(t, "an event is not handled", func() bool {
			return l.one(t, "SELECT count(*) FROM shipments WHERE version = 1") == l.cases && l.acknowledged(t)
		})
		s := connect(t, "DATABASE_URL="+l.db.Config().ConnString(), "REDIS_URL=redis://"+l.redis.Options().Addr+"/0")
		n, err := s.revive(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, n, l.cases)
		l.eventually(t, "an event is not handled", func() bool {
			return l.one(t, "SELECT count(*) FROM shipments WHERE version = 2") == l.cases && l.acknowledged(t)
		})
		for order := 1; order <= l.cases; order++ {
			l.checkShipped(t, order)
		}
	})
}

// seed returns SEED, or a random one.
func seed(t *testing.T) uint64 {
	t.Helper()
	number := rand.Uint64()
	if given := os.Getenv("SEED"); given != "" {
		_, err := fmt.Sscan(given, &number)
		require.NoError(t, err)
	}
	t.Logf("SEED=%d", number)
	return number
}
