package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/movestore"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

// moving is a service that moves from one store to another.
type moving struct {
	*testing.T
	running, released chan bool       // of the handler that hangs
	deploys           [4]http.Handler // one process of each, from that before the move to that of the last deploy
	seen              map[string]bool // the keys that were sent
}

// newMoving returns a service before its move.
func newMoving(t *testing.T, from, to movestore.Backend) *moving {
	m := &moving{T: t, running: make(chan bool), released: make(chan bool), seen: map[string]bool{}}
	stores := [4]driver.Store{from, movestore.Prepare(from, to), movestore.Move(from, to), to}
	for i, store := range stores {
		m.deploys[i] = handler(store, func() { m.running <- true; <-m.released })
	}
	return m
}

// send sends a key to a process of a deploy. The first request with a key runs, and all others are replays.
func (m *moving) send(deploy int, key string) {
	m.Helper()
	response := send(m.deploys[deploy], "alice", key, "")
	assert.Equal(m, http.StatusOK, response.Code)
	assert.Equal(m, m.seen[key], response.Header().Get("Idempotent-Replayed") == "true", "%s in deploy %d", key, deploy)
	m.seen[key] = true
}

// across lets a run begin in one deploy and end in the next one, in which the same request is refused meanwhile, and replayed after it.
func (m *moving) across(deploy int, key string) {
	m.Helper()
	ended := make(chan *httptest.ResponseRecorder)
	go func() { ended <- send(m.deploys[deploy], "alice", key, "hang") }()
	select {
	case <-m.running:
	case response := <-ended:
		require.Fail(m, "it does not run", "%d %s", response.Code, response.Body)
	}
	for _, process := range m.deploys[deploy : deploy+2] {
		assert.Equal(m, http.StatusConflict, send(process, "alice", key, "").Code, "%s runs in deploy %d", key, deploy)
	}
	m.released <- true
	assert.Equal(m, http.StatusOK, (<-ended).Code)
	m.seen[key] = true
	m.send(deploy+1, key)
}

// play takes the service through the deploys 1 and 2, whose processes run beside those of the deploy before, and then through deploy 3,
// before which expire makes the old store lose its records as their retention does.
func (m *moving) play(between func(), expire func()) {
	m.Helper()
	for deploy := range 2 {
		m.send(deploy, "done-before")
		m.across(deploy, fmt.Sprint("across-", deploy))
		for _, process := range []int{deploy + 1, deploy, deploy, deploy + 1} {
			m.send(process, "first-by-the-later-one")
			m.send(process, "done-before")
		}
	}
	m.send(2, nightKey)
	m.send(1, nightKey)
	between()
	expire()
	m.send(3, nightKey)
	m.send(2, nightKey)
	m.across(2, "across-2")
	m.send(3, "new")
	m.send(2, "new")
}

func (n *night) moved() {
	to := pgserver.Database(n.t)
	n.env = []string{"NEW_STORE=" + to}
	printed, code := n.run()
	assert.Equal(n.t, finding, code)
	assert.NotContains(n.t, printed, "the schema is missing")
	assert.Contains(n.t, printed, "there is no record")
	newMoving(n.t, mustConnect(n.t, n.url).(movestore.Backend), mustConnect(n.t, to).(movestore.Backend)).play(func() {
		printed, code := n.run()
		assert.Equal(n.t, 0, code, "the new store has the record")
		assert.Contains(n.t, printed, "no record has this scope and key")
		assert.Contains(n.t, printed, "completed: the outcome is stored")
	}, func() {
		require.NoError(n.t, n.server.Client(n.t).FlushAll(n.t.Context()).Err())
		printed, code := n.run()
		assert.Equal(n.t, finding, code)
		assert.Contains(n.t, printed, "there is no record")
	})
}

// What the table of the section names, and a file of SQLite.
func TestAServiceMoves(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(*testing.T, *redistest.Server) driver.Store{
		"to a Cluster": func(t *testing.T, _ *redistest.Server) driver.Store { return redisstore.New(redistest.Cluster(t)) },
		"to another prefix": func(t *testing.T, old *redistest.Server) driver.Store {
			return redisstore.New(old.Client(t), redisstore.Prefix("new:"))
		},
		"to a file": func(t *testing.T, _ *redistest.Server) driver.Store {
			return mustConnect(t, "sqlite://"+filepath.Join(t.TempDir(), "payments.db"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(t)
			old := redisstore.New(client)
			newMoving(t, old, to(t, server).(movestore.Backend)).play(func() {}, func() {
				keys, err := client.Keys(t.Context(), "idem:*").Result()
				require.NoError(t, err)
				require.NoError(t, client.Del(t.Context(), keys...).Err())
			})
		})
	}
}

// Redis and PostgreSQL together are one store.
func TestAMoveFromRedisToPostgreSQLKeepsTheContract(t *testing.T) {
	t.Parallel()
	old := redisstore.New(redistest.Shared(t).Client(t), redisstore.Prefix("move:"))
	store := movestore.Move(old, mustConnect(t, pgserver.Database(t)).(movestore.Backend))
	storetest.Run(t, func(testing.TB) storetest.Harness { return storetest.Harness{Store: store, Advance: time.Sleep} })
}

// A handler that wants its effects together with its outcome is told that it cannot have that during a move, before it has any.
func TestDuringAMoveInTxIsRefused(t *testing.T) {
	t.Parallel()
	url := pgserver.Database(t)
	to := mustConnect(t, url).(movestore.Backend)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	from := redisstore.New(redistest.Start(t).Client(t))
	for name, store := range map[string]driver.Store{"Prepare": movestore.Prepare(from, to), "Move": movestore.Move(from, to)} {
		engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
		require.NoError(t, err)
		_, err = engine.DoTask(t.Context(), core.Task{Kind: "JOB", Scope: "scope", Key: name}, func(ctx context.Context) (*core.Response, error) {
			return nil, pgstore.InTx(ctx, pool, pgx.TxOptions{}, func(pgx.Tx) error {
				assert.Fail(t, "the transaction begins")
				return nil
			})
		})
		assert.ErrorContains(t, err, "the outcome can not join the transaction", name)
	}
}
