// Package measure measures the subjects of package subject, on a redis-server that it starts itself. Client, handlers and
// middleware share the process, the same for every subject; redis-server is a process of its own.
package measure

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/internal/redistest"
)

// Plan says how much is measured.
type Plan struct {
	Rounds   int           // of each subject with each workload
	Round    time.Duration // of load
	Bouts    int           // of each duel
	Bout     time.Duration // of load per subject
	Requests int           // whose allocations are counted
	Calls    int           // of each script per round
	Scripts  int           // rounds of scripts
	Keys     int           // live in the fullest server
	Bodies   int           // kept in each form to weigh them
}

// The plans of a run without and with -short.
var (
	Full = Plan{
		Rounds: 9, Round: 700 * time.Millisecond, Bouts: 25, Bout: 500 * time.Millisecond, Requests: 20_000, Calls: 2000,
		Scripts: 15, Keys: 10_000_000, Bodies: 1000,
	}
	Short = Plan{
		Rounds: 3, Round: 200 * time.Millisecond, Bouts: 3, Bout: 200 * time.Millisecond, Requests: 2000, Calls: 500,
		Scripts: 5, Keys: 1_000_000, Bodies: 100,
	}
)

// Part is one part of the results and how it is measured.
type Part struct {
	Name    string
	Measure func(*Bench) ([]report.Row, error)
}

// Parts are all parts, in the order in which they are measured.
var Parts = []Part{
	{"loads", loads}, {"duels", duels}, {"allocations", allocations}, {"scripts", scripts},
	{"live", live}, {"memory", memory}, {"codecs", codecs},
}

// Bench is what measurements work with.
type Bench struct {
	Plan Plan

	tb       testing.TB // ends the servers
	server   *redistest.Server
	client   *redis.Client
	auto     *redis.AutoPipeliner // on a client of its own
	subjects []*subject.Subject
}

// New starts a redis-server, which ends with tb, and a client that every subject shares. The client's pool has a connection for
// each request, so that no subject waits for one.
func New(tb testing.TB, p Plan) (*Bench, error) {
	server := redistest.Start(tb)
	client := server.Client(tb, func(o *redis.Options) { o.PoolSize = 100 })
	b := &Bench{Plan: p, tb: tb, server: server, client: client, subjects: subject.All()}
	own := server.Client(tb, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 100, false })
	options := redis.DefaultBlockingAutoPipelineOptions()
	// It reads while it writes. With ContextTimeoutEnabled its pipelines would take connections of their own.
	options.FullDuplex = true
	var err error
	if b.auto, err = own.AutoPipelineWithOptions(options); err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = b.auto.Close() })
	return b, subject.LoadScripts(context.Background(), client)
}

// ServerInfo returns the section "server" of INFO.
func (b *Bench) ServerInfo() (string, error) {
	return b.client.Info(context.Background(), "server").Result()
}

// find returns the subject of a framework with a name, nil if there is none.
func (b *Bench) find(framework, name string) *subject.Subject {
	for _, s := range b.subjects {
		if s.Framework == framework && s.Name == name {
			return s
		}
	}
	return nil
}

// Program stands in for a test outside of one: package redistest ends the servers that it starts when the test ends. Call End
// when the program ends.
type Program struct {
	testing.TB
	ends []func()
}

// Helper does nothing: a Program reports no line of a test.
func (*Program) Helper() {}

// Fatal logs args and ends the program.
func (*Program) Fatal(args ...any) { log.Fatal(args...) }

// Fatalf logs a formatted message and ends the program.
func (*Program) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

// Skipf ends the program like Fatalf, since there is nothing to measure without the server that is missing.
func (*Program) Skipf(format string, args ...any) { log.Fatalf(format, args...) }

// Cleanup has f run by End.
func (p *Program) Cleanup(f func()) { p.ends = append(p.ends, f) }

// TempDir returns a new directory, which End removes.
func (p *Program) TempDir() string {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		log.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// End runs the functions given to Cleanup, the last one first.
func (p *Program) End() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

// sizeName returns a number of bytes as text.
func sizeName(bytes int) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}
