package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

var redisDatabases atomic.Int64

// start returns a service with servers of its own, and with what more of the environment is given.
func start(t *testing.T, environment ...string) *service {
	t.Helper()
	s := connect(t, append([]string{
		"DATABASE_URL=" + pgserver.Database(t),
		"REDIS_URL=redis://" + redistest.Shared(t).Addr + "/" + strconv.FormatInt(redisDatabases.Add(1)%16, 10),
	}, environment...)...)
	require.NoError(t, s.redis.FlushDB(t.Context()).Err())
	return s
}

// connect returns a service on the servers of the environment.
func connect(t *testing.T, environment ...string) *service {
	t.Helper()
	vars := map[string]string{"TOKENS": "secret-1=alice,secret-2=bob", "MAX_ATTEMPTS": "3", "LEASE": "2s", "POLL": "1h"}
	for _, line := range environment {
		name, value, _ := strings.Cut(line, "=")
		vars[name] = value
	}
	cfg, err := env.ParseAsWithOptions[config](env.Options{Environment: vars})
	require.NoError(t, err)
	s, err := newService(t.Context(), &cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.settle())
		s.close()
	})
	return s
}

// inGap lets f run in the gaps of this test.
func inGap(t *testing.T, f func(string)) {
	t.Helper()
	before := gap
	gap = f
	t.Cleanup(func() { gap = before })
}

// background runs a role until the test ends.
func background(t *testing.T, role func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- role(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
}

// send sends a request with one of the tokens.
func (s *service) send(t *testing.T, method, path, token, key, body string) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	newServer(s).Handler.ServeHTTP(w, r)
	answer, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(answer), w.Header()
}

const book = `{"item": "a \"book\" \u00fc", "quantity": 2}`

// ordered places an order, and confirms it if it should.
func (s *service) ordered(t *testing.T, confirmed bool) (id int64) {
	t.Helper()
	key := strconv.FormatInt(s.count(t, "SELECT count(*) FROM orders"), 10)
	status, body, header := s.send(t, "POST", "/orders", "secret-1", key, book)
	require.Equal(t, http.StatusCreated, status, body)
	if confirmed {
		status, body, _ = s.send(t, "POST", header.Get("Location")+"/confirmation", "secret-1", key+"-confirm", "")
		require.Equal(t, http.StatusOK, status, body)
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(header.Get("Location"), "/orders/"), 10, 64)
	require.NoError(t, err)
	return id
}

func (s *service) count(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, s.db.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

func (s *service) pending(t *testing.T) int64 {
	t.Helper()
	p, err := s.redis.XPending(t.Context(), stream, group).Result()
	require.NoError(t, err)
	return p.Count
}

func (s *service) length(t *testing.T, name string) int64 {
	t.Helper()
	n, err := s.redis.XLen(t.Context(), name).Result()
	require.NoError(t, err)
	return n
}

const patience = 30 * time.Second

func TestAPI(t *testing.T) {
	s := start(t)
	t.Run("a request without a token is refused before the engine sees it", func(t *testing.T) {
		status, _, header := s.send(t, "POST", "/orders", "guess", "", "")
		assert.Equal(t, http.StatusUnauthorized, status)
		assert.Equal(t, "Bearer", header.Get("WWW-Authenticate"))
	})
	t.Run("an order without a key is refused", func(t *testing.T) {
		status, body, _ := s.send(t, "POST", "/orders", "secret-1", "", book)
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Contains(t, body, "key-missing")
	})
	t.Run("a bad order is explained", func(t *testing.T) {
		for i, bad := range []string{``, `{`, `{"item": "book"}`, `{"item": "", "quantity": 1}`, `{"item": "book", "quantity": -1}`} {
			status, body, _ := s.send(t, "POST", "/orders", "secret-1", "bad-"+strconv.Itoa(i), bad)
			assert.Equal(t, http.StatusBadRequest, status, bad)
			assert.Contains(t, body, "send an order in JSON")
		}
	})
	assert.Zero(t, s.count(t, "SELECT count(*) FROM orders"))
	t.Run("a retry gets the first answer, and another customer an order of its own", func(t *testing.T) {
		status, first, header := s.send(t, "POST", "/orders", "secret-1", "key", book)
		require.Equal(t, http.StatusCreated, status, first)
		status, second, again := s.send(t, "POST", "/orders", "secret-1", "key", book)
		assert.Equal(t, http.StatusCreated, status)
		assert.Equal(t, first, second)
		assert.Equal(t, "true", again.Get("Idempotent-Replayed"))
		assert.Equal(t, header.Get("Location"), again.Get("Location"))
		_, other, _ := s.send(t, "POST", "/orders", "secret-2", "key", book)
		assert.NotEqual(t, first, other)
		assert.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM orders"))

		path := header.Get("Location")
		status, _, _ = s.send(t, "GET", path, "secret-2", "", "")
		assert.Equal(t, http.StatusNotFound, status)
		status, _, _ = s.send(t, "POST", path+"/confirmation", "secret-2", "confirm", "")
		assert.Equal(t, http.StatusNotFound, status)
		for _, key := range []string{"confirm", "confirm", "confirm-again"} {
			status, body, _ := s.send(t, "POST", path+"/confirmation", "secret-1", key, "")
			assert.Equal(t, http.StatusOK, status, body)
			assert.Contains(t, body, `"state":"confirmed"`)
		}
		assert.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM outbox WHERE order_id::text = $1", strings.TrimPrefix(path, "/orders/")))
	})
	t.Run("no order is found under what is no id", func(t *testing.T) {
		status, _, _ := s.send(t, "GET", "/orders/x", "secret-1", "", "")
		assert.Equal(t, http.StatusNotFound, status)
	})
}

func TestHealth(t *testing.T) {
	s := start(t)
	t.Run("it is healthy", func(t *testing.T) {
		status, _, _ := s.send(t, "GET", "/healthz", "", "", "")
		assert.Equal(t, http.StatusNoContent, status)
	})
	t.Run("it is not healthy without its database", func(t *testing.T) {
		s.db.Close()
		status, _, _ := s.send(t, "GET", "/healthz", "", "", "")
		assert.Equal(t, http.StatusServiceUnavailable, status)
		status, _, header := s.send(t, "POST", "/orders", "secret-1", "away", book)
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Equal(t, "1", header.Get("Retry-After"))
	})
}

func TestASecondRunOfARequestFindsTheOrderOfTheFirst(t *testing.T) {
	s := start(t)
	inGap(t, func(string) { panic(http.ErrAbortHandler) })
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { s.send(t, "POST", "/orders", "secret-1", "key", book) })
	gap = func(string) {}
	status, first, header := s.send(t, "POST", "/orders", "secret-1", "key", book)
	assert.Equal(t, http.StatusCreated, status)
	assert.Empty(t, header.Get("Idempotent-Replayed"), "it ran")
	require.NoError(t, s.redis.FlushDB(t.Context()).Err())
	_, second, header := s.send(t, "POST", "/orders", "secret-1", "key", book)
	assert.Empty(t, header.Get("Idempotent-Replayed"), "it ran, because its record is gone")
	assert.Equal(t, first, second)
	assert.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM orders"))
	assert.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM outbox"))
}

func TestAKeyStaysWithItsOrderAfterTheRetention(t *testing.T) {
	s := start(t)
	_, first, _ := s.send(t, "POST", "/orders", "secret-1", "key", book)
	require.NoError(t, s.redis.FlushDB(t.Context()).Err())
	status, body, _ := s.send(t, "POST", "/orders", "secret-1", "key", `{"item": "pen", "quantity": 5}`)
	assert.Equal(t, http.StatusUnprocessableEntity, status, body)
	status, again, _ := s.send(t, "POST", "/orders", "secret-1", "key", book)
	assert.Equal(t, http.StatusCreated, status)
	assert.Equal(t, first, again)
	assert.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM orders"))
}

func TestNoEventOvertakesAnEarlierOneOfItsOrder(t *testing.T) {
	s := start(t)
	s.ordered(t, true)
	r := newRelay(s)
	other, err := s.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	claimed, err := claim(t.Context(), other)
	require.NoError(t, err)
	require.Len(t, claimed, 1, "only the order's first event is open")
	n, err := r.publish(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "the first event is another worker's")
	require.NoError(t, other.Rollback(t.Context()))
	for range 2 {
		n, err := r.publish(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}
	entries, err := s.redis.XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for i, entry := range entries {
		e := eventOf(entry)
		assert.Equal(t, i+1, e.Version)
		assert.Contains(t, string(e.Payload), `a \"book\" ü`)
	}
}

func TestAnEventIsPublishedAgainWhenTheOutboxWasNotMarked(t *testing.T) {
	s := start(t)
	s.ordered(t, false)
	r := newRelay(s)
	inGap(t, func(string) { panic("crash") })
	assert.Panics(t, func() { _, _ = r.publish(t.Context()) })
	gap = func(string) {}
	n, err := r.publish(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	entries, err := s.redis.XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.Equal(t, entries[0].Values, entries[1].Values)
	n, err = r.publish(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestRelaysFindEvents(t *testing.T) {
	t.Run("when they are notified", func(t *testing.T) {
		s := start(t, "POLL=1h")
		background(t, newRelay(s).run)
		require.Eventually(t, func() bool {
			return s.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN outbox'") == 1
		}, patience, 10*time.Millisecond)
		s.ordered(t, true)
		assert.Eventually(t, func() bool {
			return s.count(t, "SELECT count(*) FROM outbox WHERE published_at IS NULL") == 0 && s.length(t, stream) == 2
		}, patience, 10*time.Millisecond)
	})
	t.Run("when nobody notifies them", func(t *testing.T) {
		s := start(t, "POLL=20ms")
		r := newRelay(s)
		background(t, func(ctx context.Context) error { r.work(ctx); return nil })
		for n := range int64(5) {
			s.ordered(t, false)
			require.Eventually(t, func() bool { return s.length(t, stream) == n+1 }, patience, 10*time.Millisecond)
		}
	})
	t.Run("and delete them when they are old", func(t *testing.T) {
		s := start(t, "KEEP_EVENTS=1s")
		background(t, newRelay(s).run)
		s.ordered(t, true)
		assert.Eventually(t, func() bool { return s.count(t, "SELECT count(*) FROM outbox") == 0 }, patience, 10*time.Millisecond)
	})
}

func TestTidyingGoesOnWhenTheDatabaseIsSilent(t *testing.T) {
	before := longestTransaction
	longestTransaction = 100 * time.Millisecond
	t.Cleanup(func() { longestTransaction = before })
	url, m, process := pgserver.Database(t), newMonitor(), &child{}
	server := strings.TrimPrefix(url, "postgres://postgres@")
	server, name, _ := strings.Cut(server, "/")
	p := newProxy(t, process, m, server, newSQLCalls)
	s := start(t, "KEEP_EVENTS=1s", "DATABASE_URL=postgres://postgres@"+p.addr+"/"+name)
	silence := newInjection(point{call: "sql: DELETE FROM outbox"}, faultNamed("hears nothing"))
	m.set(silence)
	t.Cleanup(silence.heal)
	background(t, func(ctx context.Context) error { newRelay(s).tidy(ctx); return nil })
	require.Eventually(t, func() bool { return silence.current() != nil }, patience, patience/1000)
	connections := m.count(process, "connect")
	assert.Eventually(t, func() bool { return m.count(process, "connect") > connections }, patience, patience/1000, "it tries again")
}

// publish puts an event of an order straight into the stream.
func (s *service) publish(t *testing.T, e event) {
	t.Helper()
	require.NoError(t, newRelay(s).add(t.Context(), []event{e}))
}

func TestAnEventThatComesEarlyWaitsForTheOneBeforeIt(t *testing.T) {
	s := start(t)
	placed := event{ID: "1", OrderID: 7, Version: 1, Type: orderPlaced, Payload: []byte("{}")}
	confirmed := event{ID: "2", OrderID: 7, Version: 2, Type: orderConfirmed, Payload: []byte("{}")}
	s.publish(t, confirmed)
	c := newConsumer(s)
	early := make(chan struct{}, 100)
	handle := c.handle
	c.handle = func(ctx context.Context, e event) (shipped, error) {
		result, err := handle(ctx, e)
		if err != nil {
			assert.ErrorIs(t, err, errEarly)
			early <- struct{}{}
		}
		return result, err
	}
	background(t, c.run)
	require.Eventually(t, func() bool { return len(early) > 0 }, patience, 10*time.Millisecond)
	s.publish(t, placed)
	s.publish(t, placed)
	assert.Eventually(t, func() bool {
		return s.count(t, "SELECT count(*) FROM shipments WHERE version = 2 AND state = 'sent'") == 1
	},
		patience, 10*time.Millisecond)
	assert.Eventually(t, func() bool { return s.pending(t) == 0 }, patience, 10*time.Millisecond)
	assert.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM shipping_log"))
	assert.EqualValues(t, 1, s.count(t, "SELECT version FROM shipping_log ORDER BY id LIMIT 1"))
	assert.Zero(t, s.length(t, deadStream))
}

func TestWhatCannotBeHandledGoesToTheDead(t *testing.T) {
	s := start(t, "MAX_ATTEMPTS=2")
	s.publish(t, event{ID: "1", OrderID: 7, Version: 1, Type: "OrderSold", Payload: []byte("{}")})
	s.publish(t, event{OrderID: 8, Version: 1, Type: orderPlaced})
	background(t, newConsumer(s).run)
	assert.Eventually(t, func() bool { return s.length(t, deadStream) == 2 && s.pending(t) == 0 }, patience, 10*time.Millisecond)
	dead, err := s.redis.XRange(t.Context(), deadStream, "-", "+").Result()
	require.NoError(t, err)
	assert.Equal(t, "idem: Message.Group and Message.ID are required", dead[0].Values["cause"])
	assert.Equal(t, `there is no event "OrderSold"`, dead[1].Values["cause"])
	assert.Equal(t, "1", dead[1].Values["id"])
	assert.Zero(t, s.count(t, "SELECT count(*) FROM shipments"))
}

func TestADeadEventIsHandledUnderANewID(t *testing.T) {
	s := start(t, "MAX_ATTEMPTS=1", "CONSUMERS=1", "POLL=20ms")
	c, broken := newConsumer(s), atomic.Bool{}
	handle := c.handle
	c.handle = func(ctx context.Context, e event) (shipped, error) {
		if broken.Load() {
			return shipped{}, errors.New("broken")
		}
		return handle(ctx, e)
	}
	broken.Store(true)
	background(t, c.run)
	background(t, newRelay(s).run)
	id := s.ordered(t, true)
	require.Eventually(t, func() bool { return s.length(t, deadStream) == 2 }, patience, 10*time.Millisecond)
	broken.Store(false)
	_, err := s.db.Exec(t.Context(), "UPDATE outbox SET id = DEFAULT, published_at = NULL WHERE order_id = $1", id)
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return s.count(t, "SELECT count(*) FROM shipments WHERE version = 2") == 1 }, patience, 10*time.Millisecond)
}

func TestAFailureIsDeliveredAgainWhenItIsWorthIt(t *testing.T) {
	s := start(t, "LEASE=20s")
	s.publish(t, event{ID: "1", OrderID: 7, Version: 2, Type: orderConfirmed, Payload: []byte("{}")})
	c := newConsumer(s)
	joined, cursor := false, "0-0"
	require.NoError(t, c.round(t.Context(), &joined, &cursor))
	left, err := s.redis.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: stream, Group: group, Start: "-", End: "+", Count: 10}).Result()
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.GreaterOrEqual(t, left[0].Idle, c.abandoned()-time.Second, "it is not left to this consumer for longer than RedeliverAfter")
	assert.EqualValues(t, 1, left[0].RetryCount)
}

func TestARunAfterTheEffectDoesNotRepeatIt(t *testing.T) {
	s := start(t)
	e := event{ID: "1", OrderID: 7, Version: 1, Type: orderPlaced, Payload: []byte("{}")}
	deliver := func() consumer.Delivery[shipped] {
		return consumer.Consume(t.Context(), s.messages, consumer.Message{Group: group, ID: e.ID, Payload: e.Payload},
			func(ctx context.Context) (shipped, error) { return newConsumer(s).handle(ctx, e) })
	}
	inGap(t, func(string) { panic("crash") })
	assert.Panics(t, func() { deliver() })
	gap = func(string) {}
	assert.Equal(t, consumer.Delivery[shipped]{Verdict: consumer.Done, Result: shipped{"reserved"}, Attempt: 2}, deliver())
	assert.Equal(t, consumer.Delivery[shipped]{Verdict: consumer.Duplicate, Result: shipped{"reserved"}}, deliver())
	assert.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM shipping_log"))
	assert.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM shipping_log WHERE effect"))
}

func TestAConsumerJoinsAgainWhenTheStreamIsGone(t *testing.T) {
	s := start(t)
	background(t, newConsumer(s).run)
	joined := func() bool {
		groups, err := s.redis.XInfoGroups(t.Context(), stream).Result()
		return err == nil && len(groups) == 1
	}
	require.Eventually(t, joined, patience, 10*time.Millisecond)
	require.NoError(t, s.redis.Del(t.Context(), stream).Err())
	assert.Eventually(t, joined, patience, 10*time.Millisecond)
}

func TestConfigErrorsNameTheVariableAndTellNoPassword(t *testing.T) {
	for name, c := range map[string]struct{ name, value string }{
		"a database": {"DATABASE_URL", "postgres://u:hush@[::/orders"},
		"a Redis":    {"REDIS_URL", "http://:hush@127.0.0.1"},
		"a role":     {"ROLES", "cook"},
		"no tokens":  {"TOKENS", ""},
		"a duration": {"LEASE", "10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DATABASE_URL", pgserver.Database(t))
			t.Setenv("REDIS_URL", "redis://"+redistest.Shared(t).Addr+"/0")
			t.Setenv("ROLES", "api")
			t.Setenv(c.name, c.value)
			err := run(t.Context(), slog.New(slog.DiscardHandler))
			require.Error(t, err)
			assert.Contains(t, strings.ReplaceAll(err.Error(), `"Lease"`, "LEASE"), c.name)
			assert.NotContains(t, err.Error(), "hush")
		})
	}
}
