package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
)

const (
	keyHeader = "Idempotency-Key"
	marker    = "Idempotent-Replayed"
	retention = time.Minute // short, so that a real Redis soon forgets this command
)

// shop makes payments. It is the handler that must not run twice for one key.
type shop struct {
	work func()       // takes the time of a payment
	runs atomic.Int64 // the number of payments
	told atomic.Bool  // the last run learned that an earlier run had ended without an outcome
}

// pay makes one payment and returns the body of its response.
func (s *shop) pay(ctx context.Context) []byte {
	run, _ := core.FromContext(ctx)
	s.told.Store(run.Takeover)
	s.runs.Add(1)
	s.work()
	body, _ := json.Marshal(map[string]string{"id": rand.Text()}) // A map of strings can always be encoded.
	return body
}

// pattern is a way to make a shop idempotent. wrap returns the shop's handler with the pattern around it. life is how long a
// claim lasts if its process dies: the TTL of the lock, or the lease.
type pattern struct {
	name string
	wrap func(rdb *redis.Client, s *shop, life time.Duration) http.Handler
}

var patterns = []pattern{
	{"a: GET, run, SET", checkThenSet},
	{"b: GET, SETNX lock, run, SET, DEL lock", lockThenSet},
	{"c: this engine", engine},
}

// checkThenSet looks for a stored response. If there is none, it runs the handler and stores the response. Two requests at once
// both find none.
func checkThenSet(rdb *redis.Client, s *shop, _ time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, result := r.Context(), "race:result:"+r.Header.Get(keyHeader)
		if replayed(w, rdb.Get(ctx, result)) {
			return
		}
		body := s.pay(ctx)
		if err := rdb.Set(ctx, result, body, retention).Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		created(w, body)
	})
}

// lockThenSet does the same under a lock. The lock has a TTL, because a process that dies would leave it for ever. It is released
// after the response is stored. Two gaps remain:
//   - Response and lock are two keys. Between a GET that finds no response and the SETNX that finds no lock, another request can
//     run from start to end.
//   - Nobody renews the TTL. A handler that takes longer loses the lock without notice, and then releases the lock of another
//     request.
func lockThenSet(rdb *redis.Client, s *shop, life time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), r.Header.Get(keyHeader)
		result, lock := "race:result:"+key, "race:lock:"+key
		if replayed(w, rdb.Get(ctx, result)) {
			return
		}
		locked, err := rdb.SetNX(ctx, lock, "1", life).Result()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if !locked {
			http.Error(w, "in progress", http.StatusConflict)
			return
		}
		defer rdb.Del(context.WithoutCancel(ctx), lock)
		body := s.pay(ctx)
		if err := rdb.Set(ctx, result, body, retention).Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		created(w, body)
	})
}

// engine is this library. Claim and outcome are one record, which one script reads and changes atomically.
func engine(rdb *redis.Client, s *shop, life time.Duration) http.Handler {
	e, err := core.New(core.Config{
		Store: redisstore.New(rdb, redisstore.Prefix("race:")),
		Scope: core.SingleTenant,
		Key:   core.KeyConfig{Required: true},
		Lease: core.LeaseConfig{Duration: life},
		Keep:  core.KeepConfig{Retention: retention},
	})
	if err != nil {
		panic(err) // No value of the configuration comes from outside.
	}
	return idem.HTTP(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { created(w, s.pay(r.Context())) }))
}

// replayed writes the response that a GET found. It reports whether it wrote one, or an error.
func replayed(w http.ResponseWriter, found *redis.StringCmd) bool {
	body, err := found.Bytes()
	if errors.Is(err, redis.Nil) {
		return false
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return true
	}
	w.Header().Set(marker, "true")
	created(w, body)
	return true
}

// created writes the response to a payment.
func created(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // An error means that the client has left.
}
