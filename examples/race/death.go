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
	died      = 3 // exit code of a process that died as it was meant to
	deathLife = time.Second
)

// die serves one request in a process that ends in the middle of it: the payment is made, its answer is not kept.
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

// bury runs die in a process of its own, and returns when it is dead.
func bury(redisURL string, p pattern, key string) error {
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

// aftermath is what a client meets that retries after the death.
type aftermath struct {
	runs      int64 // besides the one that died
	conflicts int
	waited    time.Duration
	status    int
	told      bool // the run knew that an earlier one had vanished
}

// death lets a process die over a key and retries until the answer is not 409.
func death(rdb *redis.Client, redisURL string, p pattern) (aftermath, error) {
	key := rand.Text()
	if err := bury(redisURL, p, key); err != nil {
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
