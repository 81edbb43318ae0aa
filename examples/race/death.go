package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	died      = 3           // the exit code of die
	deathLife = time.Second // the TTL of the lock, or the lease
)

// die serves one request and ends the process in the middle of it: the payment is made, and its response is not stored.
func die(rdb *redis.Client, name, key string) {
	s := &shop{work: func() { os.Exit(died) }}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set(keyHeader, key)
	for _, p := range patterns {
		if p.name == name {
			p.wrap(rdb, s, deathLife).ServeHTTP(httptest.NewRecorder(), r)
		}
	}
}

// runDie runs die in a child process, and returns when that has ended.
func runDie(redisURL string, p pattern, key string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "die", p.name, key)
	cmd.Env = append(os.Environ(), "REDIS_URL="+redisURL)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == died {
		return nil
	}
	return fmt.Errorf("the process that should die did not: %v\n%s", err, out)
}

// aftermath is what a client sees that retries after the process died.
type aftermath struct {
	runs      int64         // runs of the handler, without the one that died
	conflicts int           // 409 responses
	waited    time.Duration // until the first response that is no 409
	status    int           // of that response
	told      bool          // the handler learned that an earlier run had ended without an outcome
}

// death runs one request in a process that dies, and retries it until the response is not 409.
func death(rdb *redis.Client, redisURL string, p pattern) (aftermath, error) {
	key := rand.Text()
	if err := runDie(redisURL, p, key); err != nil {
		return aftermath{}, err
	}
	s := &shop{work: func() {}}
	server := httptest.NewServer(p.wrap(rdb, s, deathLife))
	defer server.Close()
	c, a, began := &caller{url: server.URL}, aftermath{}, time.Now()
	for a.status = c.post(key).status; a.status == http.StatusConflict; a.status = c.post(key).status {
		a.conflicts++
		time.Sleep(deathLife / 20)
	}
	a.runs, a.waited, a.told = s.runs.Load(), time.Since(began), s.told.Load()
	return a, nil
}
