// Command fiberv3 is a payments service on Fiber v3. Its POST /payments is idempotent. A session, without the header fields that
// do not matter here:
//
//	$ go -C examples/fiberv3 run .
//	$ curl -si localhost:8080/payments -H 'Authorization: Bearer alice-token' --json '{"amount": 100, "currency": "EUR"}' \
//	    -H 'Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324'
//	HTTP/1.1 201 Created
//	Location: /payments/3CXG7N2WVQJ4KZ5BHLTAYMD6RE
//
//	{"id":"3CXG7N2WVQJ4KZ5BHLTAYMD6RE","amount":100,"currency":"EUR"}
//
//	$ curl -si localhost:8080/payments -H 'Authorization: Bearer alice-token' --json '{"amount": 100, "currency": "EUR"}' \
//	    -H 'Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324'
//	HTTP/1.1 201 Created
//	Location: /payments/3CXG7N2WVQJ4KZ5BHLTAYMD6RE
//	Idempotent-Replayed: true
//
//	{"id":"3CXG7N2WVQJ4KZ5BHLTAYMD6RE","amount":100,"currency":"EUR"}
//
//	$ curl -s localhost:8080/payments -H 'Authorization: Bearer alice-token'
//	[{"id":"3CXG7N2WVQJ4KZ5BHLTAYMD6RE","amount":100,"currency":"EUR"}]
//
// ADDR sets the address that it listens on (default 127.0.0.1:8080). REDIS_URL sets the Redis that stores the records; without
// it they are in memory. With -page, http://localhost:8080/idem/ is a page for operators, read-only and only for this machine.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/redis/go-redis/v9"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/inspect"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/observe/slogidem"
)

func main() {
	withPage := flag.Bool("page", false, "serve a page for operators at /idem/")
	flag.Parse()
	store, err := newStore(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	monitor := inspect.NewMonitor() // tells the page what this process does
	engine, err := core.New(core.Config{
		Store: store,
		Hooks: slogidem.Hooks(slog.Default(), monitor.Hooks(core.Hooks{})),              // log lines, and what the page shows
		Scope: func(ctx context.Context, _ *core.Request) string { return userOf(ctx) }, // Each user has keys of their own.
		Key:   core.KeyConfig{Required: true, Accept: core.UUIDKey},                     // 400 without a UUID as key
		Lease: core.LeaseConfig{OnUnknown: core.RefuseUnknown},                          // after a crash 409, no second run
	})
	if err != nil {
		log.Fatal(err)
	}
	var page http.Handler
	if *withPage {
		if page, err = inspect.Handler(engine, inspect.Options{Monitor: monitor}); err != nil {
			log.Fatal(err)
		}
	}
	if err := serve(newApp(engine, page), engine); err != nil {
		log.Fatal(err)
	}
}

// newStore returns a store in the Redis of redisURL, or in memory if that is empty.
func newStore(redisURL string) (driver.Store, error) {
	if redisURL == "" {
		log.Print("records live in this process's memory; set REDIS_URL=redis://127.0.0.1:6379/0 to keep them in Redis")
		return memstore.New(), nil
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		// err is not returned, because it may quote the password.
		return nil, errors.New("REDIS_URL is not a URL such as redis://user:password@host:6379/0")
	}
	options.ContextTimeoutEnabled = true // Otherwise a dead Redis delays requests for longer than Limits.StoreTimeout.
	return redisstore.New(redis.NewClient(options)), nil
}

// newApp serves page at /idem/, unless it is nil. The page comes before authentication, since it refuses other machines itself.
func newApp(engine *core.Engine, page http.Handler) *fiber.App {
	p := payments{made: map[string][]payment{}}
	app := fiber.New(fiber.Config{ReadTimeout: 5 * time.Second})
	app.Use(recover.New())
	if page != nil {
		app.All("/idem/*", adaptor.HTTPHandler(page))
	}
	app.Use(authenticate)
	app.Post("/payments", idem.Fiber(engine), p.create)
	app.Get("/payments", p.list)
	return app
}

// tokens are the users of this example, by their tokens. A real service has another authentication.
var tokens = map[string]string{"alice-token": "alice", "bob-token": "bob"}

// userKey is the context key of the authenticated user.
type userKey struct{}

// userOf returns the user that authenticate has stored in the context; "" if there is none.
func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

const unauthenticated = "send Authorization: Bearer alice-token"

// authenticate stores the user in the context, where Config.Scope reads it, and refuses requests without a known token.
func authenticate(c fiber.Ctx) error {
	user, ok := tokens[strings.TrimPrefix(c.Get(fiber.HeaderAuthorization), "Bearer ")]
	if !ok {
		return c.Status(fiber.StatusUnauthorized).JSON(fiber.Map{"error": unauthenticated})
	}
	c.SetContext(context.WithValue(c.Context(), userKey{}, user))
	return c.Next()
}

// serve serves until SIGINT or SIGTERM. It returns when the requests in progress have their responses.
func serve(app *fiber.App, engine *core.Engine) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s", listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // A second signal ends the process at once.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = app.ShutdownWithContext(ctx)
	return errors.Join(err, engine.Close(ctx)) // The engine comes last: it waits until all outcomes are stored.
}

// payment is the body of a request and of its response.
type payment struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"` // in the smallest unit of the currency, such as cents
	Currency string `json:"currency"`
}

func (p payment) valid() bool { return p.Amount > 0 && p.Currency != "" }

const badPayment = `send a payment in JSON, such as {"amount": 100, "currency": "EUR"}`

// payments holds the payments of each user. A second run of create would add a second payment.
type payments struct {
	mu   sync.Mutex
	made map[string][]payment
}

func (p *payments) create(c fiber.Ctx) error {
	var made payment
	if err := c.Bind().JSON(&made); err != nil || !made.valid() {
		return c.Status(fiber.StatusBadRequest).JSON(fiber.Map{"error": badPayment})
	}
	made.ID = rand.Text()
	p.add(userOf(c.Context()), made)
	c.Set(fiber.HeaderLocation, "/payments/"+made.ID)
	return c.Status(fiber.StatusCreated).JSON(made)
}

func (p *payments) list(c fiber.Ctx) error { return c.JSON(p.of(userOf(c.Context()))) }

func (p *payments) add(user string, made payment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[user] = append(p.made[user], made)
}

func (p *payments) of(user string) []payment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]payment{}, p.made[user]...)
}
