package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

// servesIn is the variable of the environment that makes a process of the tests a service, with the URL of its store.
const servesIn = "IDEM_TEST_SERVES"

// The variables of the environment that make a process of the tests the command itself, or the service of a proxy.
const (
	isCommand   = "IDEM_TEST_COMMAND"
	paysInto    = "IDEM_TEST_PAYS_INTO"    // the file of the payments
	paysAt      = "IDEM_TEST_PAYS_AT"      // the address
	paysForever = "IDEM_TEST_PAYS_FOREVER" // the service hangs after its first payment
)

func TestMain(m *testing.M) {
	if os.Getenv(isCommand) != "" {
		main()
	}
	if file := os.Getenv(paysInto); file != "" {
		pay(file)
		return
	}
	if url := os.Getenv(servesIn); url != "" {
		serve(url)
		return
	}
	redis.SetLogger(silent{})          // as main does
	_ = flag.Set("test.parallel", "8") // Most tests wait for leases. The command line may have another number.
	m.Run()
}

// lease is that of the services of the tests.
const lease = 2 * time.Second

// serve is a service of its own process. It prints its address, and a line for each run that hangs.
func serve(url string) {
	store, err := connect(url)
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, handler(store, func() { fmt.Println("hangs"); select {} })))
}

// connect returns the store of a URL without a prefix or schema.
func connect(url string) (driver.Store, error) {
	if path, isFile := strings.CutPrefix(url, "sqlite://"); isFile {
		return sqlitestore.Open(context.Background(), path, sqlitestore.NormalSync())
	}
	if strings.HasPrefix(url, "postgres") {
		pool, err := pgxpool.New(context.Background(), url)
		if err == nil {
			err = pgstore.Migrate(context.Background(), pool)
		}
		if err != nil {
			return nil, err
		}
		return pgstore.New(pool), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	return redisstore.New(redis.NewClient(options)), nil
}

// handler returns the guarded handler of a service that refuses unknown outcomes. The header field Do says what becomes of a
// request; hang is called for those that hang.
func handler(store driver.Store, hang func(), changes ...func(*core.Config)) http.Handler {
	cfg := core.Config{Store: store, Scope: core.ScopeByAdapter}
	cfg.Lease.Duration, cfg.Lease.OnUnknown = lease, core.RefuseUnknown
	for _, change := range changes {
		change(&cfg)
	}
	engine, err := core.New(cfg)
	if err != nil {
		panic(err)
	}
	scope := idem.Scope(func(r *http.Request) string { return r.Header.Get("Caller") })
	return idem.HTTP(engine, scope)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Do") {
		case "hang":
			hang()
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case "vanish":
			core.Decide(r.Context(), core.LeaveUnknown)
		default:
			_, _ = io.WriteString(w, "very private")
		}
	}))
}

// request returns a request of a caller with a key.
func request(caller, key, do string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://service/refunds", strings.NewReader("{}"))
	for name, value := range map[string]string{"Caller": caller, "Idempotency-Key": key, "Do": do} {
		r.Header.Set(name, value)
	}
	return r
}

// send sends a request to a handler in this process.
func send(h http.Handler, caller, key, do string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(caller, key, do))
	return w
}

// result is what one call of the command has returned and printed.
type result struct {
	code           int
	stdout, stderr string
}

// call runs the command in this process with a store, and with what more of the environment is given.
func call(t *testing.T, url string, environment map[string]string, args ...string) result {
	t.Helper()
	return callWith(t, t.Context(), &program{stdin: strings.NewReader(""), getenv: func(name string) string {
		if name == "IDEM_STORE" {
			return url
		}
		return environment[name]
	}}, args...)
}

// callWith runs a program and returns what it prints.
func callWith(t *testing.T, ctx context.Context, p *program, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p.stdout, p.stderr = &stdout, &stderr
	code := p.run(ctx, append([]string{"idem"}, args...)...)
	t.Logf("idem %q: %d\n%s%s", args, code, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// redisURL returns the URL of an empty Redis.
func redisURL(t *testing.T) string {
	t.Helper()
	return "redis://" + redistest.Start(t).Addr
}

// onEachStore runs a test with the URL of an empty Redis, of an empty PostgreSQL, and of a file of SQLite.
func onEachStore(t *testing.T, test func(t *testing.T, url string)) {
	onBothServers(t, test)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		url := "sqlite://" + filepath.Join(t.TempDir(), "payments.db")
		mustConnect(t, url)
		test(t, url)
	})
}

// onBothServers runs a test with the URL of an empty Redis, and of an empty PostgreSQL.
func onBothServers(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redisURL(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, pgserver.Database(t))
	})
}

// mustConnect returns the store of a URL.
func mustConnect(t *testing.T, url string) driver.Store {
	t.Helper()
	store, err := connect(url)
	require.NoError(t, err)
	return store
}
