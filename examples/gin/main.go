// Command gin is a payments service on Gin whose POST /payments is idempotent. A session, without the header
// lines that do not matter here:
//
//	$ go run ./examples/gin
//	$ curl -si localhost:8080/payments -H 'Idempotency-Key: order-17' --json '{"amount": 100, "currency": "EUR"}'
//	HTTP/1.1 201 Created
//	Location: /payments/3CXG7N2WVQJ4KZ5BHLTAYMD6RE
//
//	{"id":"3CXG7N2WVQJ4KZ5BHLTAYMD6RE","amount":100,"currency":"EUR"}
//
//	$ curl -si localhost:8080/payments -H 'Idempotency-Key: order-17' --json '{"amount": 100, "currency": "EUR"}'
//	HTTP/1.1 201 Created
//	Idempotent-Replayed: true
//	Location: /payments/3CXG7N2WVQJ4KZ5BHLTAYMD6RE
//
//	{"id":"3CXG7N2WVQJ4KZ5BHLTAYMD6RE","amount":100,"currency":"EUR"}
//
//	$ curl -s localhost:8080/payments
//	[{"id":"3CXG7N2WVQJ4KZ5BHLTAYMD6RE","amount":100,"currency":"EUR"}]
//
// ADDR sets where it listens, REDIS_URL where its records are kept.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	idem "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
)

func main() {
	store, err := newStore(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	engine, err := core.New(core.Config{
		Store: store,
		Scope: core.SingleTenant, // all callers share one set of keys; a real service returns the authenticated principal
		Key:   core.KeyConfig{Required: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(newServer(engine), engine); err != nil {
		log.Fatal(err)
	}
}

func newStore(redisURL string) (core.Store, error) {
	if redisURL == "" {
		log.Print("records live in this process's memory; set REDIS_URL=redis://127.0.0.1:6379/0 to keep them in Redis")
		return memstore.New(), nil
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		// err may quote the password.
		return nil, errors.New("REDIS_URL is not a URL such as redis://user:password@host:6379/0")
	}
	options.ContextTimeoutEnabled = true // or a dead Redis holds requests up for longer than Limits.StoreTimeout
	return redisstore.New(redis.NewClient(options)), nil
}

func newServer(engine *core.Engine) *http.Server {
	var p payments
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.POST("/payments", idem.Gin(engine), p.create)
	router.GET("/payments", p.list)
	return &http.Server{Handler: router, ReadHeaderTimeout: 5 * time.Second}
}

// serve serves until a signal comes, and returns when the requests in progress are answered.
func serve(server *http.Server, engine *core.Engine) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s", listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = server.Shutdown(ctx)
	return errors.Join(err, engine.Close(ctx)) // after the server, so that no request is left with an outcome to keep
}

type payment struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"` // in the smallest unit of the currency
	Currency string `json:"currency"`
}

func (p payment) valid() bool { return p.Amount > 0 && p.Currency != "" }

const badPayment = `send a payment in JSON, such as {"amount": 100, "currency": "EUR"}`

// payments is what was really made.
type payments struct {
	mu   sync.Mutex
	made []payment
}

func (p *payments) create(c *gin.Context) {
	var made payment
	if err := c.ShouldBindJSON(&made); err != nil || !made.valid() {
		c.JSON(http.StatusBadRequest, gin.H{"error": badPayment})
		return
	}
	made.ID = rand.Text()
	p.add(made)
	c.Header("Location", "/payments/"+made.ID)
	c.JSON(http.StatusCreated, made)
}

func (p *payments) list(c *gin.Context) { c.JSON(http.StatusOK, p.all()) }

func (p *payments) add(made payment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, made)
}

func (p *payments) all() []payment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]payment{}, p.made...)
}
