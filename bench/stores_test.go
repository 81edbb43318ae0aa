package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

// server returns the CPU time that the server of a store has used so far.
type server func() time.Duration

// stores are the stores as a service would run them: each claim and each outcome is on a disk, at once or within a second.
var stores = []struct {
	name string
	open func(*testing.B) (driver.Store, server)
}{
	{"memstore", func(*testing.B) (driver.Store, server) { return memstore.New(), nil }},
	{"sqlitestore", func(b *testing.B) (driver.Store, server) {
		store, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "records.db"))
		require.NoError(b, err)
		b.Cleanup(func() { _ = store.Close() })
		return store, nil
	}},
	{"redisstore", func(b *testing.B) (driver.Store, server) {
		s := redistest.Start(b, "--appendonly", "yes")
		return redisstore.New(s.Client(b)), func() time.Duration { return cpuOfRedis(b, s) }
	}},
	{"pgstore", func(b *testing.B) (driver.Store, server) {
		config, err := pgxpool.ParseConfig(pgserver.Start(b, "fsync=on", "full_page_writes=on").URL)
		require.NoError(b, err)
		config.MaxConns = 1 // so that one process of the server serves all calls
		pool, err := pgxpool.NewWithConfig(b.Context(), config)
		require.NoError(b, err)
		b.Cleanup(pool.Close)
		require.NoError(b, pgstore.Migrate(b.Context(), pool))
		pid := 0
		require.NoError(b, pool.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&pid))
		return pgstore.New(pool), func() time.Duration { return cpuOf(b, pid) }
	}},
}

// cpuOfRedis returns the CPU time of a Redis.
func cpuOfRedis(b *testing.B, s *redistest.Server) time.Duration {
	seconds := 0.0
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		used, err := strconv.ParseFloat(s.Info(b, field), 64)
		require.NoError(b, err)
		seconds += used
	}
	return time.Duration(seconds * float64(time.Second))
}

// afterName matches what /proc/PID/stat has after the name of the program: ten fields, and then the CPU time in user and in system
// mode, in hundredths of a second.
var afterName = regexp.MustCompile(`\) \S(?: \S+){10} (\d+) (\d+)`)

// cpuOf returns the CPU time of a process.
func cpuOf(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	fields := afterName.FindStringSubmatch(string(stat))
	require.NotNil(b, fields)
	user, _ := strconv.Atoi(fields[1]) // digits only
	system, _ := strconv.Atoi(fields[2])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// cpuOfThis returns the CPU time of this process.
func cpuOfThis() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStores measures what a new key and a replay cost on each store, one request at a time, for the table of docs/stores.md:
//
//	go -C bench test -run '^$' -bench Stores -benchtime 3000x .
func BenchmarkStores(b *testing.B) {
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			store, used := s.open(b)
			engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
			require.NoError(b, err)
			b.Run("new key", func(b *testing.B) { measureStore(b, engine, used, "new") })
			b.Run("replay", func(b *testing.B) { measureStore(b, engine, used, "") })
		})
	}
}

// runs numbers the keys of one run of a benchmark after the other.
var runs int

// measureStore sends requests and reports the median of their times, and the CPU time of this process and of the server for each. Keys
// that begin with nothing are replays of one key.
func measureStore(b *testing.B, engine *core.Engine, used server, prefix string) {
	runs++
	key := func(i int) string {
		if prefix == "" {
			return "replayed"
		}
		return fmt.Sprint(prefix, "-", runs, "-", i)
	}
	send(b, engine, key(-1))
	if used == nil {
		used = func() time.Duration { return 0 }
	}
	times := make([]time.Duration, 0, b.N)
	own, server := cpuOfThis(), used()
	b.ResetTimer()
	for i := range b.N {
		start := time.Now()
		send(b, engine, key(i))
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	own, server = cpuOfThis()-own, used()-server
	slices.Sort(times)
	micros := func(d time.Duration) float64 { return d.Seconds() * 1e6 }
	b.ReportMetric(micros(times[len(times)/2]), "p50-µs")
	b.ReportMetric(micros(own)/float64(b.N), "cpu-µs")
	b.ReportMetric(micros(server)/float64(b.N), "server-cpu-µs")
}

// body is the response of 512 bytes that the handler makes.
var body = []byte(strings.Repeat("x", 512))

// send sends one request with a key.
func send(b *testing.B, engine *core.Engine, key string) {
	header := func(name string) []string {
		if name == "Idempotency-Key" {
			return []string{key}
		}
		return nil
	}
	request := core.Request{
		Method: "POST", Path: "/payments", Header: header, Body: func(int64) ([]byte, error) { return []byte("{}"), nil },
	}
	result, err := engine.Do(context.Background(), request, func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 201, Body: body}, nil
	})
	if err != nil || result.Problem != "" {
		b.Fatal(result.Problem, err)
	}
}
