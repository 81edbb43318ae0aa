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

// scene is a load. For each key in turn, all clients send the same request at once.
type scene struct {
	title         string
	keys, clients int
	work          time.Duration // how long the handler runs
	life          time.Duration // the TTL of the lock, or the lease
	pause         time.Duration // how long a client waits after a 409
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

// tally counts what happened in a scene.
type tally struct {
	runs    int // runs of the handler
	maxRuns int // the most runs for one key
	maxIDs  int // the most payment IDs that clients got for one key

	mu        sync.Mutex
	created   int             // clients with a 201
	replays   int             // clients with a 201 that has the marker of a replay
	conflicts int             // 409 responses; their clients retry
	errors    int             // clients with any other response, or none
	ids       map[string]bool // the payment IDs of the current key
}

// play runs the scene against a server with the pattern p.
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

// crowd sends all requests of one key at once, and returns when each client has a response other than 409.
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

// count counts one response and returns its status.
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

// reply is a response as a client sees it.
type reply struct {
	status   int // 0 if there was no response
	replayed bool
	id       string
}

// post sends one payment with this key.
func (c *caller) post(key string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}
	}
	r.Header.Set(keyHeader, key)
	response, err := c.Do(r)
	if err != nil {
		return reply{}
	}
	defer response.Body.Close()
	var payment struct{ ID string }
	_ = json.NewDecoder(response.Body).Decode(&payment) // A refusal has no ID.
	return reply{response.StatusCode, response.Header.Get(marker) != "", payment.ID}
}
