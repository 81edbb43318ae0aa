package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiberv3 "github.com/gofiber/fiber/v3"
	idempotencyv3 "github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"

	idem "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
)

// lease is how long the claim or the lock of a process that died blocks its keys, where that can be set.
const lease = time.Second

// subject is a middleware with its settings. start starts a process of a service with it, whose handler is handle.
type subject struct {
	name  string
	start func(addr string, handle handler) process
}

// process is a process of the service.
type process interface {
	send(r *http.Request) (*http.Response, error)
	kill()               // cuts it off from the store
	stop() (goOn func()) // makes what it sends to the store wait
}

// subjects are the columns of the table.
var subjects = []subject{
	{"Fiber v2, defaults", func(_ string, handle handler) process {
		return onFiber(handle, idempotency.New())
	}},
	{"Fiber v2, Redis and a shared lock", func(addr string, handle handler) process {
		client := redis.NewClient(&redis.Options{Addr: addr})
		p := onFiber(handle, idempotency.New(idempotency.Config{Storage: storage(addr), Lock: &lock{locker: redislock.New(client)}}))
		p.cut = client.Close
		return p
	}},
	{"Fiber v3, defaults", func(_ string, handle handler) process {
		return onFiberV3(handle, idempotencyv3.New())
	}},
	{"Fiber v3, Redis and a shared lock", func(addr string, handle handler) process {
		client := redis.NewClient(&redis.Options{Addr: addr})
		p := onFiberV3(handle, idempotencyv3.New(idempotencyv3.Config{Storage: storage(addr), Lock: &lock{locker: redislock.New(client)}}))
		p.cut = client.Close
		return p
	}},
	{"idem on Redis, defaults", func(addr string, handle handler) process {
		return onIdem(handle, addr, core.Config{})
	}},
	{"idem on Redis, safest settings", func(addr string, handle handler) process {
		return onIdem(handle, addr, core.Config{
			Lease: core.LeaseConfig{OnUnknown: core.RefuseUnknown}, Keep: core.KeepConfig{Policy: core.KeepAll, MaxBody: 4 << 20},
			Wait: core.WaitConfig{Timeout: 5 * lease},
		})
	}},
}

// storage is the storage of Fiber for Redis.
func storage(addr string) *fiberredis.Storage {
	return fiberredis.New(fiberredis.Config{Addrs: []string{addr}})
}

// lock is a lock that processes share, for the middleware of Fiber.
type lock struct {
	locker *redislock.Client
	held   held
}

// Lock waits for the lock of a key.
func (l *lock) Lock(key string) error {
	obtained, err := l.locker.Obtain(context.Background(), "lock:"+key, lease, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond),
	})
	if err == nil {
		l.held.Store(key, obtained)
	}
	return err
}

// Unlock frees the lock of a key. A lock that has ended is no error.
func (l *lock) Unlock(key string) error {
	obtained, ok := l.held.LoadAndDelete(key)
	if ok {
		_ = obtained.(*redislock.Lock).Release(context.Background())
	}
	return nil
}

// app is a process with an app of Fiber.
type app struct {
	test  func(*http.Request) (*http.Response, error)
	pause func() (goOn func())
	cut   func() error
}

func (a *app) send(r *http.Request) (*http.Response, error) { return a.test(r) }

func (a *app) kill() {
	if a.cut != nil {
		_ = a.cut()
	}
}

func (a *app) stop() (goOn func()) {
	if a.pause == nil {
		return func() {}
	}
	return a.pause()
}

// onFiber returns a process with an app of Fiber v2.
func onFiber(handle handler, middleware fiber.Handler) *app {
	service := fiber.New(fiber.Config{BodyLimit: 8 << 20})
	service.Use(middleware)
	service.Post("/*", func(c *fiber.Ctx) error {
		a := handle(c.Path(), c.Get("Authorization"), runOf(c.UserContext()))
		if a.err != nil {
			return a.err
		}
		if a.isStream {
			c.Context().SetBodyStreamWriter(a.writeStream)
			return nil
		}
		return c.Status(a.status).Send(a.body)
	})
	return &app{test: func(r *http.Request) (*http.Response, error) { return service.Test(r, -1) }}
}

// onFiberV3 returns a process with an app of Fiber v3.
func onFiberV3(handle handler, middleware fiberv3.Handler) *app {
	service := fiberv3.New(fiberv3.Config{BodyLimit: 8 << 20})
	service.Use(middleware)
	service.Post("/*", func(c fiberv3.Ctx) error {
		a := handle(c.Path(), c.Get("Authorization"), run{})
		if a.err != nil {
			return a.err
		}
		if a.isStream {
			return c.SendStreamWriter(a.writeStream)
		}
		return c.Status(a.status).Send(a.body)
	})
	return &app{test: func(r *http.Request) (*http.Response, error) {
		return service.Test(r, fiberv3.TestConfig{Timeout: 0})
	}}
}

// onIdem returns a process with this library on Fiber v2.
func onIdem(handle handler, addr string, config core.Config) *app {
	var network paused
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, Dialer: network.dial})
	config.Store, config.Scope, config.Lease.Duration = redisstore.New(client), core.ScopeByAdapter, lease
	config.Key.Header, config.Limits.StoreTimeout = "X-Idempotency-Key", lease/2
	engine, err := core.New(config)
	if err != nil {
		panic(err)
	}
	tenant := func(c *fiber.Ctx) string { return c.Get("Authorization") }
	p := onFiber(handle, idem.Fiber(engine, idem.Scope(tenant)))
	p.cut, p.pause = client.Close, network.pause
	return p
}

// paused is the network of a process that can be paused. Fiber's middleware sends nothing while a handler runs, and needs none.
type paused struct{ mu sync.RWMutex }

// pause makes writes wait until goOn is called.
func (p *paused) pause() (goOn func()) {
	p.mu.Lock()
	return p.mu.Unlock
}

// dial connects, for go-redis.
func (p *paused) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &pausedConn{conn, p}, err
}

// pausedConn is a connection of a process that can be paused.
type pausedConn struct {
	net.Conn
	network *paused
}

// Write implements net.Conn.
func (c *pausedConn) Write(b []byte) (int, error) {
	c.network.mu.RLock()
	defer c.network.mu.RUnlock()
	return c.Conn.Write(b)
}

// runOf returns what idem tells the handler of its run.
func runOf(ctx context.Context) run {
	told, _ := core.FromContext(ctx)
	return run{isTold: told.Takeover || told.Attempt > 1}
}
