// Command observed is the service that bench -telemetry runs with and without telemetry: -observe names the packages whose hooks its
// engine has, or -alone those whose calls to their libraries the handler of net/http makes itself. The log of slogidem goes nowhere.
// It prints its address, and responds to GET /cpu with the CPU time of its process in nanoseconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/observe/otelidem"
	"github.com/go-idem/idem/observe/promidem"
	"github.com/go-idem/idem/observe/slogidem"
)

func main() {
	addr := flag.String("redis", "", "keep records in the Redis at this address")
	isFiber := flag.Bool("fiber", false, "serve with Fiber, not net/http")
	observed := flag.String("observe", "", "set the hooks of these, separated by commas: slogidem, promidem, otelidem")
	libraries := flag.String("alone", "", "make the calls to the libraries of these, and set no hooks")
	flag.Parse()
	config := core.Config{
		Store: redisstore.New(redis.NewClient(&redis.Options{Addr: *addr, PoolSize: 100, ContextTimeoutEnabled: true})),
		Scope: core.SingleTenant,
	}
	observe(&config, *observed)
	engine, err := core.New(config)
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	if *isFiber {
		log.Fatal(serveFiber(l, engine))
	}
	log.Fatal(serveHTTP(l, engine, alone(*libraries)))
}

// observe sets the hooks of the packages with these names.
func observe(config *core.Config, names string) {
	config.Name = "payments"
	if strings.Contains(names, "slogidem") {
		config.Hooks = slogidem.Hooks(slog.New(slog.NewTextHandler(io.Discard, nil)), config.Hooks)
	}
	if strings.Contains(names, "promidem") {
		collector := promidem.New(promidem.Config{})
		prometheus.MustRegister(collector)
		config.Hooks = collector.Hooks(config.Hooks)
	}
	if strings.Contains(names, "otelidem") {
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		telemetry, err := otelidem.New(otelidem.Config{MeterProvider: meters, DBSystem: "redis"})
		if err != nil {
			log.Fatal(err)
		}
		config.Hooks, config.Keep.Origin = telemetry.Hooks(config.Hooks), otelidem.Origin
	}
}

// response is 512 bytes, as the clients of package measure want it.
var response = fmt.Appendf(nil, "%0512d", 0)

// cpu returns the CPU time of this process.
func cpu() string {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return fmt.Sprint(u.Utime.Nano() + u.Stime.Nano())
}

func serveHTTP(l net.Listener, engine *core.Engine, calls []func(context.Context)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cpu", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, cpu()) })
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an error means that the client has left
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(response)
		for _, call := range calls {
			call(r.Context())
		}
	})
	mux.Handle("POST /payments", idemhttp.HTTP(engine)(pay))
	return http.Serve(l, mux)
}

func serveFiber(l net.Listener, engine *core.Engine) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/cpu", func(c *fiber.Ctx) error { return c.SendString(cpu()) })
	app.Post("/payments", idemfiber.Fiber(engine), func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		return c.Status(http.StatusCreated).Send(response)
	})
	return app.Listener(l)
}
