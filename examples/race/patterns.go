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
	retention = time.Minute // short, so that this command leaves nothing behind on a real Redis
)

// shop makes payments. It is the handler that must not run twice for one key.
type shop struct {
	work func()       // what a payment takes
	runs atomic.Int64 // how many payments there are
	told atomic.Bool  // a run was told that an earlier one had vanished
}

func (s *shop) pay(ctx context.Context) []byte {
	run, _ := core.FromContext(ctx)
	s.told.Store(run.Takeover)
	s.runs.Add(1)
	s.work()
	body, _ := json.Marshal(map[string]string{"id": rand.Text()}) // a string: cannot fail
	return body
}

// pattern puts something in front of a shop that should make it idempotent. life is how long a claim lasts when nobody
// gives it back: the TTL of the lock, the lease.
type pattern struct {
	name string
	wrap func(rdb *redis.Client, s *shop, life time.Duration) http.Handler
}

var patterns = []pattern{
	{"a: GET, run, SET", checkThenSet},
	{"b: GET, SETNX lock, run, SET, DEL lock", lockThenSet},
	{"c: this engine", engine},
}

// checkThenSet looks for a kept answer, and makes and keeps one when there is none.
func checkThenSet(rdb *redis.Client, s *shop, _ time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, result := r.Context(), "race:result:"+r.Header.Get(keyHeader)
		if answered(w, rdb.Get(ctx, result)) {
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

// lockThenSet does the same under a lock. The lock has a TTL, or a process that dies would leave it for ever, and it is
// given back after the answer is kept, not before. But answer and lock are two keys: between the GET that finds no
// answer and the SETNX that finds no lock, another request can come to its end. And nobody renews the TTL: a handler
// that takes longer loses the lock without a sign, and then gives back the lock of another.
func lockThenSet(rdb *redis.Client, s *shop, life time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), r.Header.Get(keyHeader)
		result, lock := "race:result:"+key, "race:lock:"+key
		if answered(w, rdb.Get(ctx, result)) {
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

// engine keeps claim and outcome in one record, which one script reads and changes in one step.
func engine(rdb *redis.Client, s *shop, life time.Duration) http.Handler {
	e, err := core.New(core.Config{
		Store: redisstore.New(rdb, redisstore.Prefix("race:")),
		Scope: core.SingleTenant,
		Key:   core.KeyConfig{Required: true},
		Lease: core.LeaseConfig{Duration: life},
		Keep:  core.KeepConfig{Retention: retention},
	})
	if err != nil {
		panic(err) // nothing in the configuration comes from outside
	}
	return idem.HTTP(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { created(w, s.pay(r.Context())) }))
}

// answered answers with what a GET found, and tells whether the request is done with.
func answered(w http.ResponseWriter, found *redis.StringCmd) bool {
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

func created(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // an error means that the client has left
}
