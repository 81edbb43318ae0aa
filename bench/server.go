package main

import (
	"context"
	"log"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/internal/redistest"
)

// program stands in for a test: package redistest ends what it starts when the test ends.
type program struct {
	testing.TB
	ends []func()
}

func (*program) Helper()                           {}
func (*program) Fatal(args ...any)                 { log.Fatal(args...) }
func (*program) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*program) Skipf(format string, args ...any)  { log.Fatalf(format, args...) }
func (p *program) Cleanup(f func())                { p.ends = append(p.ends, f) }

func (p *program) TempDir() string {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		log.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end ends what was started, the last first.
func (p *program) end() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

// newBench starts a redis-server and a client that every subject shares. Its pool has a connection for each request of
// the largest crowd, so that no subject waits for one.
func newBench(tb testing.TB, p plan) (*bench, error) {
	server := redistest.Start(tb)
	client := server.Client(tb, func(o *redis.Options) { o.PoolSize = crowdSize })
	b := &bench{tb: tb, plan: p, server: server, client: client, subjects: subjects()}
	own := b.dial(false)
	tb.Cleanup(func() { _ = own.Close() })
	duplex, err := fullDuplex(own)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = duplex.Close() })
	b.duplex = duplex
	return b, loadScripts(context.Background(), client)
}
