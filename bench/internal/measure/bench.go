// Package measure measures the subjects of package subject, on a redis-server that it starts itself. Client, handlers and
// middleware share the process, the same for every subject; redis-server is a process of its own.
//
// The CPU time of a request is therefore that of its client, too. It is the same client for all, so a difference of two subjects
// is one of the subjects, while their ratio is closer to 1 than that of two services without clients.
package measure

import (
	"context"
	"log"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/internal/redistest"
)

// Plan says how much is measured. Nearly all figures are medians of rounds, so more rounds make them more exact.
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

// Parts are all parts, in the order in which they are measured. loads, duels and newer have whole requests, and allocations serves them
// without a network. scripts, commands, pipelines and live have the calls to Redis alone. memory and codecs weigh what the calls
// have stored.
var Parts = []Part{
	{"loads", loads}, {"duels", duels}, {"newer", newer}, {"allocations", allocations}, {"scripts", scripts},
	{"commands", commands}, {"pipelines", pipelines}, {"live", live}, {"memory", memory}, {"codecs", codecs},
}

// Bench is what measurements work with.
type Bench struct {
	Plan Plan

	tb       testing.TB // ends the servers
	client   *redis.Client
	auto     *redis.AutoPipeliner // on a client of its own
	subjects []*subject.Subject
}

// New starts a redis-server, which ends with tb, and a client that every subject shares. The client's pool has a connection for
// each request, so that no subject waits for one. New loads the scripts of the raw calls, of the guard and of the patterns; a
// store loads its own while the clients warm up.
func New(tb testing.TB, p Plan) (*Bench, error) {
	server := redistest.Start(tb)
	client := server.Client(tb, func(o *redis.Options) { o.PoolSize = 100 })
	b := &Bench{Plan: p, tb: tb, client: client, subjects: subject.All()}
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

// ServerInfo returns the section "server" of INFO. If the server does not respond, all that is measured fails, too.
func (b *Bench) ServerInfo() string { return serverInfo(b.client) }

// serverInfo is ServerInfo of the server of a client.
func serverInfo(client *redis.Client) string {
	return client.Info(context.Background(), "server").Val()
}

// find returns the index of the subject of a framework with a name, -1 if there is none.
func (b *Bench) find(framework, name string) int {
	return slices.IndexFunc(b.subjects, func(s *subject.Subject) bool { return s.Framework == framework && s.Name == name })
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
