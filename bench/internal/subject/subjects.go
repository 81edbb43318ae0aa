package subject

import (
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
)

// Subject is one way to answer a payment on one framework.
type Subject struct {
	Framework string
	Name      string
	Beside    string // the subject of the same framework that it is compared with, "" for none
	Reason    string // why it may be faster than that
	Unmarked  bool   // its replays carry no marker

	// Mount returns the payment handler as the subject guards it.
	Mount func(c Clients, p *Payments) App
}

// Clients reach the server that subjects keep their records in.
type Clients struct {
	Plain *redis.Client
	Auto  *redis.AutoPipeliner // puts the commands of many goroutines into one pipeline
}

// The names of subjects that others are compared with.
const (
	Bare     = "bare handler"
	Redis    = "this library, redisstore"
	Batched  = "this library, redisstore in batches"
	Local    = "this library, local replays"
	Memory   = "this library, memstore"
	Raw      = "two raw script calls"
	ByHand   = "a guard by hand"
	AutoHand = "a guard by hand in AutoPipeline"

	FiberOnRedis = "gofiber idempotency, storage/redis"
)

// guardReason says why a guard by hand may be faster than this library.
const guardReason = "no lease is renewed, there are no limits and no hooks, no key is released, and a panic is not noticed"

// All returns every subject in the order of the report.
func All() (all []*Subject) {
	for _, f := range Frameworks {
		all = append(all, f.subjects()...)
		if f.Name == "http" || f.Name == "fiber" {
			all = append(all, f.byHand()...)
		}
		all = append(all, others[f.Name]...)
	}
	return all
}

// subjects are those that every framework has.
func (f Framework) subjects() []*Subject {
	library := func(name string, store func(Clients) driver.Store, local int) *Subject {
		change := func(c *core.Config) { c.Keep.LocalReplays = local }
		return &Subject{Framework: f.Name, Name: name, Mount: func(c Clients, p *Payments) App {
			return f.Mount(p, NewEngine(store(c)).With(change))
		}}
	}
	onRedis := func(c Clients) driver.Store { return redisstore.New(c.Plain) }
	return []*Subject{
		{Framework: f.Name, Name: Bare, Unmarked: true, Mount: func(_ Clients, p *Payments) App { return f.Mount(p, nil) }},
		library(Redis, onRedis, 0),
		library(Batched, func(c Clients) driver.Store { return redisstore.New(c.Plain, redisstore.Batch()) }, 0),
		library(Local, onRedis, 256<<20),
		library(Memory, func(Clients) driver.Store { return NewMemstore() }, 0),
		f.pattern(Raw, rawCalls, "nothing is captured, hashed, renewed or compared; status and header fields are not stored"),
	}
}

// byHand are the guards by hand.
func (f Framework) byHand() []*Subject {
	byHand := func(name, beside string, client func(Clients) redis.Scripter) *Subject {
		return &Subject{Framework: f.Name, Name: name, Beside: beside, Reason: guardReason, Mount: func(c Clients, p *Payments) App {
			return f.mount(p.handle, nil, &guard{client(c)})
		}}
	}
	return []*Subject{
		byHand(ByHand, Redis, func(c Clients) redis.Scripter { return c.Plain }),
		byHand(AutoHand, Batched, func(c Clients) redis.Scripter { return c.Auto }),
	}
}

// NewMemstore returns a store in memory that drops nothing.
func NewMemstore() *memstore.Store {
	return memstore.New(memstore.MaxRecords(1<<30), memstore.MaxBytes(1<<40))
}

// NewEngine returns an engine with the default configuration.
func NewEngine(store driver.Store) *core.Engine {
	e, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
	if err != nil {
		panic(err) // nothing in the configuration comes from outside
	}
	return e
}

// others are the handlers of patterns.go, and Fiber's own middleware. Its lock is in the process, also with a storage that is not.
var others = map[string][]*Subject{
	"http": {
		Frameworks[0].pattern("GET, SETNX, SET", getSetNXSet,
			"plain commands; requests are not compared, and a run that ends between GET and SETNX is repeated"),
		Frameworks[0].pattern("Lua over two keys", luaTwoKeys,
			"no fence and no takeover, so shorter scripts; nothing is captured or hashed"),
		Frameworks[0].pattern("one JSON key, httptest.Recorder", oneJSONKey,
			"plain commands; requests are not compared, and a late run overwrites a newer one"),
		Frameworks[0].pattern("lock, check, unlock", lockCheckUnlock,
			"requests are not compared, and a lock that runs out is not noticed"),
	},
	"fiber": {
		ownFiber("gofiber idempotency, memory", Memory, func(Clients) fiber.Storage { return nil },
			"requests are not compared, and there are no scopes, leases or fences"),
		ownFiber(FiberOnRedis, Redis,
			func(c Clients) fiber.Storage { return fiberredis.NewFromConnection(c.Plain) },
			"its lock is in the process, so two processes run twice; a replay is a plain GET, and requests are not compared"),
	},
}

// pattern is a handler that guards itself.
func (f Framework) pattern(name string, handle func(*redis.Client, *Payments) handler, reason string) *Subject {
	return &Subject{Framework: f.Name, Name: name, Beside: Redis, Reason: reason, Mount: func(c Clients, p *Payments) App {
		return f.mount(handle(c.Plain, p), nil, nil)
	}}
}

// ownFiber is Fiber's middleware with a storage; without one it keeps responses in memory.
func ownFiber(name, beside string, storage func(Clients) fiber.Storage, reason string) *Subject {
	return &Subject{Framework: "fiber", Name: name, Beside: beside, Reason: reason, Unmarked: true,
		Mount: func(c Clients, p *Payments) App {
			return fiberApp(p.handle, idempotency.New(idempotency.Config{
				KeyHeader: KeyHeader,
				Lifetime:  time.Minute, // so that the memory of earlier rounds is freed
				Storage:   storage(c),
			}))
		}}
}
