package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

func TestARestartThatForgetsEverythingRunsAgainUnderAHigherFence(t *testing.T) {
	t.Parallel()
	s, server, client := onServer(t)
	s.created(s.post("K"))
	server.Kill()
	server.Restart(t)
	require.Zero(t, client.DBSize(ctx).Val(), "nothing was forgotten")
	s.created(s.post("K"))
	effects := s.ledger.effects(t)["K"]
	require.Len(t, effects, 2)
	assert.Equal(t, 1, effects[1].Attempt)
	s.promises(true)
}

// The server crashes while a handler runs, and takes seconds to load its data.
func TestARestartWithAnAppendOnlyFileLosesNothing(t *testing.T) {
	t.Parallel()
	args, slow := []string{"--appendonly", "yes", "--appendfsync", "always"}, false
	if len(redistest.Shared(t).Client(t).ConfigGet(ctx, "loading-process-events-interval-bytes").Val()) > 0 { // a new one
		args, slow = append(args, "--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024"), true
	}
	server := redistest.Start(t, args...)
	client := server.Client(t)
	s := newService(t, redisstore.New(server.Client(t)), func(c *core.Config) { c.Lease.Duration = 20 * time.Second })
	for i := range 20 {
		s.created(s.post(fmt.Sprint("before", i)))
	}
	pipe := client.Pipeline()
	for i := range 5000 {
		pipe.Set(ctx, fmt.Sprint("filler", i), i, 0)
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	require.NoError(t, client.BgRewriteAOF(ctx).Err())
	redistest.Eventually(t, "the file is rewritten", func() bool {
		return server.Info(t, "aof_rewrite_in_progress") == "0" && server.Info(t, "aof_rewrite_scheduled") == "0"
	})
	finish := s.begun("during")
	server.Kill()
	restarted := make(chan struct{})
	go func() { defer close(restarted); server.Restart(t) }()
	if slow {
		require.Eventually(t, func() bool {
			s.away(s.post("new"))
			return s.heard("LOADING")
		}, 20*time.Second, 10*time.Millisecond, "the server was never loading")
		s.ran("new", 0)
	}
	a := finish()
	<-restarted
	s.created(a)
	require.Eventually(t, func() bool { return s.post("during").replayed }, 20*time.Second, 20*time.Millisecond)
	for i := range 20 {
		s.replays(fmt.Sprint("before", i))
	}
	s.ran("during", 1)
	s.soon("new", 20*time.Second)
	s.promises(false)
}

func TestAFullServerRefusesNewRunsAndKeepsTheOthers(t *testing.T) {
	t.Parallel()
	s, server, client := onServer(t)
	s.created(s.post("before"))
	finish := s.begun("during")
	fill(t, server, client, "noeviction")
	server.Config(t, "maxmemory", "2mb") // so that it stays full when a buffer of a connection is freed
	redistest.Eventually(t, "the server says that it is full", func() bool {
		s.away(s.post("new"))
		return s.heard("OOM")
	})
	s.created(finish())
	s.replays("during")
	s.replays("before")
	s.ran("new", 0)
	s.promises(false)
}

// fill writes more than the few MiB that the server may hold from now on.
func fill(t *testing.T, server *redistest.Server, client *redis.Client, policy string) {
	t.Helper()
	server.Config(t, "maxmemory-policy", policy)
	server.Config(t, "maxmemory", "4mb")
	for _, size := range []int{5000, 500, 10} {
		for i := range 5000 {
			if err := client.Set(ctx, fmt.Sprint("filler", size, i), strings.Repeat("x", size), time.Hour).Err(); err != nil {
				break
			}
		}
	}
}

func TestAnEvictedClaimIsLostAndTheNextFenceHigher(t *testing.T) {
	t.Parallel()
	s, server, client := onServer(t)
	finish := s.begun("K")
	record := recordOf(t, client)
	server.Config(t, "maxmemory-samples", "10")
	fill(t, server, client, "allkeys-lru")
	require.Zero(t, client.Exists(ctx, record).Val(), "the claim was not evicted")
	server.Config(t, "maxmemory", "0") // Redis 5.0 refuses scripts while it evicts
	s.lostTo(finish)
}

func TestARecordThatAnOperatorDeletesIsLostAndTheNextFenceHigher(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*redis.Client){
		"FLUSHALL": func(c *redis.Client) { c.FlushAll(ctx) },
		"DEL":      func(c *redis.Client) { c.Del(ctx, c.Keys(ctx, "idem:*").Val()...) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, client := onServer(t)
			finish := s.begun("K")
			recordOf(t, client)
			remove(client)
			require.Zero(t, client.DBSize(ctx).Val())
			s.lostTo(finish)
		})
	}
}

// The key is not known any more, so nothing would keep a retry from running: its client is not asked for one.
func TestARunWhoseRecordIsGoneAsksForNoRetry(t *testing.T) {
	t.Parallel()
	s, _, client := onServer(t)
	finish := s.begun("K")
	recordOf(t, client)
	client.FlushAll(ctx)
	late := finish()
	assert.Equal(t, []any{409, "record-lost", ""}, []any{late.status, late.code, late.retry})
	s.ran("K", 1)
	s.promises(true)
}

// lostTo: another request runs the key whose record is gone; the first run ends as lost, and the outcome is the second's.
func (s *service) lostTo(finish func() answer) {
	s.tb.Helper()
	second := s.post("K")
	s.created(second)
	late := finish()
	assert.Equal(s.tb, 409, late.status, late.body)
	assert.Equal(s.tb, "claim-lost", late.code)
	s.replays("K")
	effects := s.ledger.effects(s.tb)["K"]
	require.Len(s.tb, effects, 2)
	assert.Greater(s.tb, effects[1].Fence, effects[0].Fence)
	assert.Equal(s.tb, effects[1].Body, second.body)
	s.promises(true)
}

// Clients go on sending while a script that never ends blocks the server, until it is killed.
func TestAServerBusyWithAForeignScriptIsRefusedInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--lua-time-limit", "100")
	client := server.Client(t)
	s := newService(t, redisstore.New(server.Client(t)), func(c *core.Config) { c.Lease.Duration = 30 * time.Second })
	s.created(s.post("warm"))
	l := s.traffic(8)
	l.answers(10 * time.Second)
	endless := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = false, time.Minute })
	ended := make(chan error)
	go func() { ended <- endless.Eval(ctx, "while true do end", nil).Err() }()
	require.Eventually(t, func() bool { return redis.HasErrorPrefix(client.Ping(ctx).Err(), "BUSY") }, 10*time.Second, 20*time.Millisecond)
	asked := time.Now()
	s.away(s.post("K"))
	assert.Less(t, time.Since(asked), 5*time.Second, "the store timeout is half a second")
	require.True(t, s.heard("BUSY"))
	s.ran("K", 0)
	redistest.Eventually(t, "every client is refused", func() bool { return l.refused.Load() >= 16 })
	require.NoError(t, client.ScriptKill(ctx).Err())
	assert.ErrorContains(t, <-ended, "killed")
	l.answers(20 * time.Second)
	lost, _ := l.end()
	assert.Zero(t, lost)
	s.soon("K", s.lease+5*time.Second)
	for key, effects := range s.ledger.effects(t) {
		assert.Len(t, effects, 1, key)
	}
	s.promises(false)
}

// scriptsNeedReplicas reports whether min-replicas-to-write holds for the writes of scripts. In Redis 5.0 and 6.0 it does not.
func scriptsNeedReplicas(t *testing.T) bool {
	t.Helper()
	err := redistest.Start(t, "--min-replicas-to-write", "1").Client(t).Eval(ctx, "return redis.call('SET', KEYS[1], '')", []string{"K"}).Err()
	if err != nil {
		require.ErrorContains(t, err, "NOREPLICAS")
	}
	return err != nil
}

// A server that takes no writes changes nothing, and what it refuses to a run in progress it is sent again.
func TestAServerThatTakesNoWritesRunsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		refuse func(*testing.T, *redistest.Server, *redis.Client)
		accept func(*testing.T, *redistest.Server)
	}{
		"NOREPLICAS": {
			nil,
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { s.Config(t, "min-replicas-to-write", "1") },
			func(t *testing.T, s *redistest.Server) { s.Config(t, "min-replicas-to-write", "0") },
		},
		"MISCONF": {
			[]string{"--save", "3600", "1"},
			func(t *testing.T, s *redistest.Server, client *redis.Client) {
				require.NoError(t, os.RemoveAll(client.ConfigGet(ctx, "dir").Val()["dir"]))
				require.NoError(t, client.BgSave(ctx).Err())
				redistest.Eventually(t, "the save has failed", func() bool { return s.Info(t, "rdb_last_bgsave_status") == "err" })
			},
			func(t *testing.T, s *redistest.Server) { s.Config(t, "stop-writes-on-bgsave-error", "no") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "NOREPLICAS" && !scriptsNeedReplicas(t) {
				t.Skip("min-replicas-to-write of this server does not hold for scripts")
			}
			s, server, client := onServer(t, c.args...)
			finish := s.begun("during")
			c.refuse(t, server, client)
			before := client.Dump(ctx, recordOf(t, client)).Val()
			s.away(s.post("new"))
			require.True(t, s.heard(name), "the server has refused nothing: %v", s.errors)
			s.created(finish())
			assert.Equal(t, before, client.Dump(ctx, recordOf(t, client)).Val(), "a refused call must change nothing")
			c.accept(t, server)
			require.Eventually(t, func() bool { return s.post("during").replayed }, 10*time.Second, 20*time.Millisecond)
			s.ran("new", 0)
			s.soon("new", s.lease+5*time.Second)
			s.promises(false)
		})
	}
}

// The disk has no room for the append-only file. What a server that writes it now and then does: it refuses from the second
// write on. One that writes it each time ends, before it has answered.
func TestAFullDiskRunsNothingAndLosesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fills func(*testing.T, *service, *redistest.Server, *redis.Client)
		frees func(*testing.T, *redistest.Server)
	}{
		"everysec": {
			func(t *testing.T, s *service, server *redistest.Server, client *redis.Client) {
				server.FillDisk(t)
				redistest.Eventually(t, "the server refuses writes", func() bool { return redis.HasErrorPrefix(client.Set(ctx, "filler", "x", 0).Err(), "MISCONF") })
				before := client.Dump(ctx, recordOf(t, client)).Val()
				s.away(s.post("new"))
				assert.True(t, s.heard("MISCONF"))
				assert.Equal(t, before, client.Dump(ctx, recordOf(t, client)).Val(), "a refused call must change nothing")
			},
			func(t *testing.T, server *redistest.Server) { server.FreeDisk(t) },
		},
		"always": {
			func(t *testing.T, s *service, server *redistest.Server, client *redis.Client) {
				server.FillDisk(t)
				s.away(s.post("new"))
				assert.Error(t, client.Ping(ctx).Err(), "the server has not ended")
			},
			func(t *testing.T, server *redistest.Server) { server.Restart(t) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", name)
			s := newService(t, redisstore.New(server.Client(t)), func(c *core.Config) { c.Lease.Duration = 20 * time.Second })
			finish := s.begun("during")
			c.fills(t, s, server, server.Client(t))
			s.created(finish())
			s.ran("new", 0)
			c.frees(t, server)
			require.Eventually(t, func() bool { return s.post("during").replayed }, 20*time.Second, 20*time.Millisecond)
			s.soon("new", s.lease+5*time.Second)
			redistest.Eventually(t, "all is written", func() bool { return server.Info(t, "aof_buffer_length") == "0" }) // not at once while the disk is busy
			server.Kill()
			server.Restart(t)
			for _, key := range []string{"during", "new"} {
				s.replays(key)
				s.ran(key, 1)
			}
			s.promises(false)
		})
	}
}

func TestTooManyClientsAreRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	observer := server.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	s := newService(t, redisstore.New(server.Client(t)))
	require.NoError(t, observer.ConfigSet(ctx, "maxclients", "1").Err())
	s.away(s.post("K"))
	require.NotEqual(t, "0", infoField(t, observer, "rejected_connections"), "nobody was refused")
	s.ran("K", 0)
	require.NoError(t, observer.ConfigSet(ctx, "maxclients", "1000").Err())
	s.created(s.post("K"))
	s.promises(false)
}

func TestAnExhaustedPoolRefusesAndDoesNotPileUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond })
	s := newService(t, redisstore.New(client))
	s.created(s.post("warm"))
	server.Pause()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { s.away(s.post(fmt.Sprint("K", i))) })
	}
	wg.Wait()
	server.Resume()
	require.True(t, s.heard("pool timeout"), "%v", s.errors)
	for i := range 20 {
		s.soon(fmt.Sprint("K", i), s.lease+10*time.Second)
		s.ran(fmt.Sprint("K", i), 1)
	}
	s.promises(false)
}

func TestAServerThatDeniesAccessIsRefusedWithoutTellingTheSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-canary"
	t.Run("NOAUTH", func(t *testing.T) {
		server := redistest.Start(t)
		observer := server.Client(t)
		require.NoError(t, observer.Ping(ctx).Err())
		s := newService(t, redisstore.New(server.Client(t)))
		require.NoError(t, observer.ConfigSet(ctx, "requirepass", secret).Err())
		s.deniedUntil("NOAUTH", secret, func() {
			admin := server.Client(t, func(o *redis.Options) { o.Password = secret })
			require.NoError(t, admin.ConfigSet(ctx, "requirepass", "").Err())
		})
	})
	t.Run("NOPERM", func(t *testing.T) {
		server := redistest.Start(t)
		if !server.Knows(t, "ACL") {
			t.Skip("this server has no users with rights")
		}
		admin := server.Client(t)
		acl := func(rules ...any) {
			require.NoError(t, admin.Do(ctx, append([]any{"ACL", "SETUSER", "app", "reset", "on", ">" + secret, "~*"}, rules...)...).Err())
		}
		acl("+@all", "-@scripting")
		s := newService(t, redisstore.New(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", secret })))
		s.deniedUntil("NOPERM", secret, func() { acl("+@all") })
	})
}

func (s *service) deniedUntil(kind, secret string, granted func()) {
	s.tb.Helper()
	a := s.post("K")
	s.away(a)
	require.True(s.tb, s.heard(kind), "%v", s.errors)
	assert.False(s.tb, s.heard(secret), "the secret is in an error")
	assert.NotContains(s.tb, a.body, secret)
	s.ran("K", 0)
	granted()
	s.soon("K", s.lease+5*time.Second)
	s.promises(false)
}

func TestAKeyThatHoldsSomethingElseIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	s, _, client := onServer(t)
	s.created(s.post("K"))
	record := recordOf(t, client)
	for name, put := range map[string]func(){
		"a list":  func() { client.LPush(ctx, record, "foreign") },
		"garbage": func() { client.Set(ctx, record, "garbage", time.Hour) },
		"nothing": func() { client.Set(ctx, record, "", time.Hour) }, // LSE-13
	} {
		require.NoError(t, client.Del(ctx, record).Err())
		put()
		before := client.Dump(ctx, record).Val()
		a := s.post("K")
		assert.Equal(t, 503, a.status, name)
		assert.Equal(t, "record-unreadable", a.code, name)
		assert.Equal(t, before, client.Dump(ctx, record).Val(), name)
	}
	s.ran("K", 1)
}

func TestNoFlippedBitOfAKeptRecordIsReplayedInPartOrRunsAgain(t *testing.T) {
	t.Parallel()
	s, _, client := onServer(t)
	first := s.post("K")
	s.created(first)
	record := recordOf(t, client)
	bytes := []byte(client.Get(ctx, record).Val())
	refused := 0
	for bit := range 8 * len(bytes) {
		flipped := append([]byte{}, bytes...)
		flipped[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, client.Set(ctx, record, flipped, time.Hour).Err())
		switch a := s.post("K"); a.status {
		case 201:
			require.Equal(t, first.body, a.body, "bit %d", bit)
			require.True(t, a.replayed, "bit %d", bit)
		case 503:
			refused++
			require.Equal(t, "record-unreadable", a.code, "bit %d", bit)
		default:
			require.Equal(t, "fingerprint-mismatch", a.code, "bit %d", bit)
		}
	}
	for length := range bytes {
		if length > 0 {
			require.NoError(t, client.Set(ctx, record, bytes[:length], time.Hour).Err())
			require.Equal(t, "record-unreadable", s.post("K").code, "cut to %d bytes", length)
		}
	}
	assert.Greater(t, refused, 8*len(first.body), "damage in the body was not noticed")
	s.ran("K", 1)
}

func TestAThousandDuplicatesAtOnceAreOneRun(t *testing.T) {
	t.Parallel()
	s := newService(t, redisstore.New(redistest.Start(t).Client(t)), func(c *core.Config) {
		c.Lease.Duration, c.Limits.StoreTimeout = 30*time.Second, 15*time.Second // a busy machine answers late
	})
	s.works(func(context.Context, core.Run) int { time.Sleep(200 * time.Millisecond); return http.StatusCreated })
	var firsts, conflicts atomic.Int64
	var wg sync.WaitGroup
	slots := make(chan struct{}, 200)
	for range 1000 {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			switch a := s.post("K"); {
			case a.status == 201 && !a.replayed:
				firsts.Add(1)
			case a.status == 409:
				conflicts.Add(1)
			default:
				assert.True(t, a.replayed, a.body)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, firsts.Load())
	assert.NotZero(t, conflicts.Load(), "no two were there at once")
	s.ran("K", 1)
	s.promises(false)
}

// The memory of a claim is that of its record, whatever the number of keys.
func TestAFloodOfKeysTakesTheMemoryThatOneKeySays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	store := redisstore.New(client)
	begin := func() {
		_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		assert.NoError(t, err)
	}
	begin()
	one := client.MemoryUsage(ctx, recordOf(t, client)).Val()
	memory := func() (n int64) {
		_, _ = fmt.Sscan(server.Info(t, "used_memory_dataset"), &n)
		return n
	}
	const n = 8000
	before := memory()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				begin()
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, n+1, client.DBSize(ctx).Val())
	assert.InEpsilon(t, one, float64(memory()-before)/n, 0.5, "bytes a key")
	assert.LessOrEqual(t, one, int64(400))
}

// infoField asks over a connection that is there.
func infoField(t *testing.T, client *redis.Client, field string) string {
	t.Helper()
	_, rest, found := strings.Cut(client.Info(ctx, "all").Val(), field+":")
	require.True(t, found, field)
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// LSE-16: the server is stopped when the handler ends, for longer than the lease, and wakes up.
func TestAnOutageThatIsLongerThanTheLeaseRunsNothingAgain(t *testing.T) {
	t.Parallel()
	s, server, _ := onServer(t)
	s.created(s.post("warm"))
	s.works(func(context.Context, core.Run) int {
		server.Pause()
		return http.StatusCreated
	})
	first := s.post("K")
	s.created(first)
	end := time.Now().Add(s.lease * 8 / 5)
	for time.Now().Before(end) {
		a := s.post("K")
		assert.Equal(t, http.StatusConflict, a.status, a.body)
		assert.Equal(t, "in-progress", a.code)
	}
	server.Resume()
	s.soon("K", 5*time.Second)
	s.replays("K")
	s.ran("K", 1)
	s.promises(false)
}

// LSE-17: the server takes no text of the outcome's length, and closes the connection on which it is sent.
func TestAnOutcomeThatIsLongerThanTheServerTakesIsKeptWithoutItsBody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--proto-max-bulk-len", "1mb")
	engine, err := core.New(core.Config{
		Store: redisstore.New(server.Client(t)), Scope: core.SingleTenant,
		Lease: core.LeaseConfig{Duration: 2 * time.Second}, Keep: core.KeepConfig{MaxBody: 8 << 20},
	})
	require.NoError(t, err)
	for _, length := range []int{900 << 10, 1<<20 - 100, 1<<20 + 1, 2 << 20} {
		var runs atomic.Int64
		handler := idem.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(make([]byte, length))
		}))
		post := func() *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/orders", nil)
			r.Header.Set("Idempotency-Key", fmt.Sprint(length))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		}
		first := post()
		assert.Equal(t, http.StatusCreated, first.Code)
		assert.Len(t, first.Body.Bytes(), length)
		var last *httptest.ResponseRecorder
		require.Eventually(t, func() bool {
			last = post()
			return last.Header().Get("Idempotent-Replayed") == "true"
		}, 20*time.Second, 50*time.Millisecond)
		assert.Equal(t, http.StatusCreated, last.Code)
		if length > 1<<20 {
			assert.Equal(t, "omitted", last.Header().Get("Idempotent-Body"))
			assert.Empty(t, last.Body.Bytes())
		}
		assert.EqualValues(t, 1, runs.Load(), "%d bytes", length)
	}
	require.NoError(t, engine.Close(ctx))
}
