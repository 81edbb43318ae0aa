// Command orders is a service that takes orders and ships them. It loses no order and ships none twice, although its processes
// die and its connections break. It has an API, an outbox in PostgreSQL, relays to a Redis Stream, and a consumer. README.md
// has a picture.
//
//	$ docker compose up
//	$ curl -si localhost:8080/orders -H "Authorization: Bearer secret-1" -H "Idempotency-Key: cart-17" -d '{"item": "book", "quantity": 2}'
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/redisstore"
)

// config is read from the environment.
type config struct {
	Roles    []string          `env:"ROLES" envDefault:"api,relay,consumer"` // what this process does
	Addr     string            `env:"ADDR" envDefault:"127.0.0.1:8080"`
	Tokens   map[string]string `env:"TOKENS" envKeyValSeparator:"="` // bearer token=customer,...; needed by the API
	Postgres string            `env:"DATABASE_URL,required"`
	Redis    string            `env:"REDIS_URL,required"`

	Lease     time.Duration `env:"LEASE" envDefault:"10s"`        // how long a retry waits for a process that died
	Retention time.Duration `env:"RETENTION" envDefault:"48h"`    // of outcomes; the database holds on to its own for longer
	Poll      time.Duration `env:"POLL" envDefault:"5s"`          // how late a relay is that was not notified
	KeepFor   time.Duration `env:"KEEP_EVENTS" envDefault:"168h"` // for published events, in outbox and stream
	Relays    int           `env:"RELAYS" envDefault:"2"`         // workers of this process
	Consumers int           `env:"CONSUMERS" envDefault:"4"`      // workers of this process
	Attempts  int           `env:"MAX_ATTEMPTS" envDefault:"25"`  // at handling a message, then it is dead
}

// gap is called at each place where a crash leaves one side written and the other not. Tests crash the process there.
var gap = func(string) {}

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	if err := command(ctx, log, os.Args[1:]); err != nil {
		log.Error("ended", "err", err)
		os.Exit(1)
	}
}

// command runs the roles if there are no arguments. With the argument revive it revives dead events: those with the IDs that
// follow, or all.
func command(ctx context.Context, log *slog.Logger, args []string) error {
	if len(args) == 0 {
		return run(ctx, log)
	}
	if args[0] != "revive" {
		return fmt.Errorf("%q: the only argument is revive, with ids of events behind it or none for all that are dead", args[0])
	}
	cfg, err := env.ParseAs[config]()
	if err != nil {
		return err
	}
	s, err := newService(ctx, &cfg, log)
	if err != nil {
		return err
	}
	defer s.close()
	n, err := s.revive(ctx, args[1:]...)
	log.Info("revived", "events", n)
	return err
}

// run runs the roles until ctx ends or one of them fails. It returns when they have finished their work in progress.
func run(ctx context.Context, log *slog.Logger) error {
	cfg, err := env.ParseAs[config]()
	if err != nil {
		return err
	}
	s, err := newService(ctx, &cfg, log)
	if err != nil {
		return err
	}
	defer s.close()
	roles, ctx := errgroup.WithContext(ctx)
	for _, role := range slices.Compact(slices.Sorted(slices.Values(cfg.Roles))) {
		switch role {
		case "api":
			roles.Go(func() error { return s.serve(ctx) })
		case "relay":
			roles.Go(func() error { return newRelay(s).run(ctx) })
		case "consumer":
			roles.Go(func() error { return newConsumer(s).run(ctx) })
		default:
			roles.Go(func() error { return fmt.Errorf("ROLES has %q: it may have api, relay and consumer", role) })
		}
	}
	return errors.Join(roles.Wait(), s.settle())
}

// service is what the roles share.
type service struct {
	cfg    *config
	log    *slog.Logger
	db     *pgxpool.Pool
	redis  redis.UniversalClient
	engine *core.Engine

	messages *consumer.Consumer // of the stream's events
}

// newService connects to the servers and makes the engine.
func newService(ctx context.Context, cfg *config, log *slog.Logger) (*service, error) {
	options, err := redis.ParseURL(cfg.Redis)
	if err != nil { // err is not returned, because it may quote the password.
		return nil, errors.New("REDIS_URL is not a URL such as redis://user:password@host:6379/0")
	}
	options.ContextTimeoutEnabled = true // Otherwise a dead Redis delays requests for longer than Limits.StoreTimeout.
	s := &service{cfg: cfg, log: log, redis: redis.NewClient(options)}
	if s.engine, err = core.New(s.engineConfig()); err != nil {
		return nil, err
	}
	if s.messages, err = consumer.New(s.engine, consumer.Config{MaxAttempts: s.cfg.Attempts}); err != nil {
		return nil, err
	}
	if s.db, err = openDatabase(ctx, cfg.Postgres); err != nil {
		_ = s.redis.Close()
		return nil, err
	}
	return s, nil
}

func (s *service) engineConfig() core.Config {
	warn := func(message string) core.Hook {
		return func(_ context.Context, e core.Event) {
			s.log.Warn(message, "record", e.Record, "attempt", e.Attempt, "err", e.Err)
		}
	}
	return core.Config{
		Store: redisstore.New(s.redis),
		Scope: func(ctx context.Context, _ *core.Request) string { return customer(ctx) },
		Key:   core.KeyConfig{Required: true},
		Lease: core.LeaseConfig{Duration: s.cfg.Lease},
		Keep:  core.KeepConfig{Retention: s.cfg.Retention},
		Hooks: core.Hooks{
			Takeover: warn("takeover"), Lost: warn("claim lost"), Unknown: warn("outcome unknown"), StoreError: warn("store error"),
		},
	}
}

// longestShutdown is how long the API and the engine may take to finish.
const longestShutdown = 15 * time.Second

// settle waits until all outcomes are stored.
func (s *service) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), longestShutdown)
	defer cancel()
	return s.engine.Close(ctx)
}

func (s *service) close() {
	s.db.Close()
	_ = s.redis.Close()
}

// serve serves the API until ctx ends. It returns when the requests in progress have their responses.
func (s *service) serve(ctx context.Context) error {
	if len(s.cfg.Tokens) == 0 {
		return errors.New("TOKENS is empty: set it to token=customer,... or leave api out of ROLES")
	}
	listener, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return err
	}
	s.log.Info("listening", "addr", listener.Addr().String())
	server := newServer(s)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestShutdown)
	defer cancel()
	return server.Shutdown(ctx)
}

// pause waits for d or until ctx ends, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
