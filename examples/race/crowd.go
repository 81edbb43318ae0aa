package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// scene is a load: for one key after another, so many clients send the same request at once.
type scene struct {
	title         string
	keys, clients int
	work          time.Duration // of the handler
	life          time.Duration // of a lock or a lease that nobody gives back
	pause         time.Duration // of a client after a 409
}

var (
	quick = scene{
		title: "A handler that works for 5ms.",
		keys:  50, clients: 100,
		work: 5 * time.Millisecond, life: 5 * time.Second, pause: 10 * time.Millisecond,
	}
	slow = scene{
		title: "A handler that works for 1.8s.",
		keys:  1, clients: 10,
		work: 1800 * time.Millisecond, life: 800 * time.Millisecond, pause: 50 * time.Millisecond,
	}
)

// tally counts what happened.
type tally struct {
	runs    int // of the handler
	maxRuns int // for one key
	maxIDs  int // payments that the clients of one key were told of

	mu        sync.Mutex
	created   int // clients with a 201
	replays   int // of them, with the marker
	conflicts int // 409 answers; their clients ask again
	errors    int // clients with anything else
	ids       map[string]bool
}

// play plays the scene at p.
func (sc scene) play(rdb *redis.Client, p pattern) *tally {
	s := &shop{work: func() { time.Sleep(sc.work) }}
	server := httptest.NewServer(p.wrap(rdb, s, sc.life))
	defer server.Close()
	client := &caller{http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sc.clients}}, server.URL}
	t := &tally{}
	for range sc.keys {
		t.ids = map[string]bool{}
		sc.crowd(client, t)
		runs := int(s.runs.Swap(0))
		t.runs += runs
		t.maxRuns = max(t.maxRuns, runs)
		t.maxIDs = max(t.maxIDs, len(t.ids))
	}
	return t
}

// crowd sends all requests of one key at once, and returns when each client has its answer.
func (sc scene) crowd(c *caller, t *tally) {
	key, start := rand.Text(), make(chan struct{})
	var clients sync.WaitGroup
	for range sc.clients {
		clients.Go(func() {
			<-start
			for t.count(c.post(key)) == http.StatusConflict {
				time.Sleep(sc.pause)
			}
		})
	}
	close(start)
	clients.Wait()
}

// count counts one answer and returns its status.
func (t *tally) count(r reply) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r.status {
	case http.StatusConflict:
		t.conflicts++
	case http.StatusCreated:
		t.created++
		t.ids[r.id] = true
		if r.replayed {
			t.replays++
		}
	default:
		t.errors++
	}
	return r.status
}

const (
	path = "/payments"
	body = `{"amount": 100, "currency": "EUR"}`
)

// caller sends payments to a server.
type caller struct {
	http.Client
	url string
}

// reply is an answer as a client sees it.
type reply struct {
	status   int // 0: there was none
	replayed bool
	id       string
}

func (c *caller) post(key string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}
	}
	r.Header.Set(keyHeader, key)
	answer, err := c.Do(r)
	if err != nil {
		return reply{}
	}
	defer answer.Body.Close()
	var payment struct{ ID string }
	_ = json.NewDecoder(answer.Body).Decode(&payment) // a refusal has no id
	return reply{answer.StatusCode, answer.Header.Get(marker) != "", payment.ID}
}
