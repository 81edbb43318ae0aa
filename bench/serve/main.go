// Command serve is the service that bench -compare builds with two versions of this library. It uses only what both versions
// have: keep it small. It prints its address, and responds to GET /cpu with the CPU time of its process in nanoseconds.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"syscall"

	"github.com/redis/go-redis/v9"

	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
)

func main() {
	addr := flag.String("redis", "", "keep records in the Redis at this address; without it in memory")
	flag.Parse()
	config := core.Config{Store: memstore.New(memstore.MaxRecords(1<<30), memstore.MaxBytes(1<<40)), Scope: core.SingleTenant}
	if *addr != "" {
		config.Store = redisstore.New(redis.NewClient(&redis.Options{Addr: *addr, PoolSize: 100, ContextTimeoutEnabled: true}))
	}
	engine, err := core.New(config)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cpu", cpu)
	mux.Handle("POST /payments", idemhttp.HTTP(engine)(http.HandlerFunc(pay)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	log.Fatal(http.Serve(l, mux))
}

// cpu responds with the CPU time of this process.
func cpu(w http.ResponseWriter, _ *http.Request) {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	fmt.Fprint(w, u.Utime.Nano()+u.Stime.Nano())
}

// response is 512 bytes, as the clients of package measure want it.
var response = fmt.Appendf(nil, "%0512d", 0)

// pay is the handler that the engine guards.
func pay(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // an error means that the client has left
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(response)
}
