package main

import (
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/gofiber/storage/redis/v3"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
)

// subject is one way to answer a payment.
type subject struct {
	framework string
	name      string
	rank      rank
	beside    rank   // what it is compared with
	marker    string // the header line that replays carry, "" when they carry none
	reason    string // why it may be faster than what it is compared with

	mount func(b *bench, s *shop) mounted
}

// rank tells the subjects apart that others are compared with.
type rank int

const (
	none rank = iota
	bare
	yardstick // two raw script calls
	onRedis   // this library
	onMemory
	locally       // with local replays
	byTable       // a table by hand
	batched       // on Redis, in batches
	autoPipelined // the raw calls, pipelined across goroutines
	byGuard       // a guard by hand
	pipedGuard    // the same, pipelined across goroutines
	byShelf       // the same on a table in the process
)

// subjects returns every subject in the order of the report.
func subjects() (all []*subject) {
	for _, f := range frameworks {
		all = append(all,
			&subject{framework: f.name, name: "bare handler", rank: bare, mount: func(_ *bench, s *shop) mounted {
				return f.mount(s, nil)
			}},
			&subject{framework: f.name, name: "this library, redisstore", rank: onRedis, marker: marker, mount: func(b *bench, s *shop) mounted {
				return f.mount(s, newEngine(redisstore.New(b.client)))
			}},
			&subject{framework: f.name, name: "this library, redisstore in batches", rank: batched, marker: marker, mount: func(b *bench, s *shop) mounted {
				return f.mount(s, newEngine(redisstore.New(b.client, redisstore.Batch())))
			}},
			&subject{framework: f.name, name: "this library, local replays", rank: locally, marker: marker, mount: func(b *bench, s *shop) mounted {
				engine := newEngine(redisstore.New(b.client))
				return f.mount(s, engine.With(func(c *core.Config) { c.Keep.LocalReplays = localBytes }))
			}},
			&subject{framework: f.name, name: "this library, memstore", rank: onMemory, marker: marker, mount: func(_ *bench, s *shop) mounted {
				return f.mount(s, newEngine(newMemstore()))
			}},
			&subject{framework: f.name, name: "two raw script calls", rank: yardstick, beside: onRedis, marker: marker, reason: rawReason,
				mount: func(b *bench, s *shop) mounted { return f.raw(rawScripts(b.client, s)) }},
			&subject{framework: f.name, name: "two raw script calls in AutoPipeline", rank: autoPipelined, beside: batched, marker: marker, reason: rawReason,
				mount: func(b *bench, s *shop) mounted { return f.raw(rawScripts(b.duplex, s)) }},
			&subject{framework: f.name, name: "a guard by hand", rank: byGuard, beside: onRedis, marker: marker, reason: guardReason,
				mount: func(b *bench, s *shop) mounted { return f.guard(onServer{b.client}, s) }},
			&subject{framework: f.name, name: "a guard by hand in AutoPipeline", rank: pipedGuard, beside: batched, marker: marker, reason: guardReason,
				mount: func(b *bench, s *shop) mounted { return f.guard(onServer{b.duplex}, s) }},
			&subject{framework: f.name, name: "a table by hand", rank: byTable, beside: locally, marker: marker, reason: tableReason,
				mount: func(_ *bench, s *shop) mounted { return f.raw(rawTable(s)) }},
			&subject{framework: f.name, name: "a guard by hand on a table", rank: byShelf, beside: locally, marker: marker, reason: shelfReason,
				mount: func(_ *bench, s *shop) mounted { return f.guard(newShelf(localBytes), s) }},
		)
		switch f.name {
		case "http":
			all = append(all, byHand...)
		case "fiber":
			all = append(all, gofiber...)
		}
	}
	return all
}

// localBytes is the room for local replays.
const localBytes = 256 << 20

func newMemstore() *memstore.Store {
	return memstore.New(memstore.MaxRecords(1<<30), memstore.MaxBytes(1<<40))
}

func newEngine(store driver.Store) *core.Engine {
	e, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
	if err != nil {
		panic(err) // nothing in the configuration comes from outside
	}
	return e
}

const rawReason = "nothing is captured, hashed, renewed or compared, and status and header lines are not stored"

const guardReason = "no lease is renewed, there are no limits and no hooks, no key is given back, and no panic is noticed"

const tableReason = "no store, so nothing outlives the process or meets a request to another; nothing is dropped"

const shelfReason = "no store, so nothing outlives the process or meets a request to another; there are no scopes, no limits and no hooks"

// byHand are the handlers of patterns.go.
var byHand = []*subject{
	{
		framework: "http", name: "GET, SETNX, SET", beside: onRedis, marker: marker,
		reason: "plain commands; requests are not compared, and a run that ends between GET and SETNX is repeated",
		mount:  func(b *bench, s *shop) mounted { return mounted{std: getSetNXSet(b.client, s)} },
	},
	{
		framework: "http", name: "Lua over two keys", beside: onRedis, marker: marker,
		reason: "no fence and no takeover, so shorter scripts; nothing is captured or hashed",
		mount:  func(b *bench, s *shop) mounted { return mounted{std: luaTwoKeys(b.client, s)} },
	},
	{
		framework: "http", name: "one JSON key, httptest.Recorder", beside: onRedis, marker: marker,
		reason: "plain commands; requests are not compared, and a late run overwrites a newer one",
		mount:  func(b *bench, s *shop) mounted { return mounted{std: oneJSONKey(b.client, s)} },
	},
	{
		framework: "http", name: "lock, check, unlock", beside: onRedis, marker: marker,
		reason: "requests are not compared, and a lock that runs out is not noticed",
		mount:  func(b *bench, s *shop) mounted { return mounted{std: lockCheckUnlock(b.client, s)} },
	},
}

// gofiber is Fiber's own middleware. Its lock is in the process, also with a store that is not.
var gofiber = []*subject{
	{
		framework: "fiber", name: "gofiber idempotency, memory", beside: onMemory,
		reason: "requests are not compared, and there are no scopes, leases or fences",
		mount:  func(_ *bench, s *shop) mounted { return gofiberApp(s, nil) },
	},
	{
		framework: "fiber", name: "gofiber idempotency, storage/redis", beside: onRedis,
		reason: "its lock is in the process, so two processes run twice; a replay is a plain GET, and requests are not compared",
		mount:  func(b *bench, s *shop) mounted { return gofiberApp(s, redis.NewFromConnection(b.client)) },
	},
}

func gofiberApp(s *shop, storage fiber.Storage) mounted {
	return fiberApp(s, idempotency.New(idempotency.Config{
		KeyHeader: keyHeader,
		Lifetime:  time.Minute, // so that the memory of earlier rounds is freed
		Storage:   storage,
	}))
}
