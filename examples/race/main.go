// Command race compares three ways to make a handler idempotent on Redis. It sends concurrent requests with one key, and counts
// how often the handler runs: (a) look for a stored response, and store one if there is none; (b) the same under a SETNX lock;
// (c) this engine.
//
//	$ go run ./examples/race
//	$ REDIS_URL=redis://127.0.0.1:6379/0 go run ./examples/race
//
// Its exit code is 1 if the engine ran the handler more than once for a key.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func main() {
	log.SetFlags(0)
	redisURL, err := server(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	rdb, err := connect(redisURL)
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) == 4 && os.Args[1] == "die" { // This process is a child, started by runDie.
		die(rdb, os.Args[2], os.Args[3])
		return
	}
	quickOnce, slowOnce := race(rdb, quick), race(rdb, slow)
	if err := deaths(rdb, redisURL); err != nil {
		log.Fatal(err)
	}
	if !quickOnce || !slowOnce {
		log.Fatal("\nThe engine ran the handler more than once for a key: please report this.")
	}
}

// server returns redisURL, or the URL of a miniredis in this process if redisURL is empty.
func server(redisURL string) (string, error) {
	if redisURL != "" {
		fmt.Println("On the Redis of REDIS_URL.")
		return redisURL, nil
	}
	embedded, err := miniredis.Run()
	if err != nil {
		return "", err
	}
	go func() { // The time of a miniredis only passes by FastForward.
		for last := time.Now(); ; last = last.Add(10 * time.Millisecond) {
			time.Sleep(time.Until(last.Add(10 * time.Millisecond)))
			embedded.FastForward(10 * time.Millisecond)
		}
	}()
	fmt.Println("On miniredis, inside this process. Set REDIS_URL=redis://127.0.0.1:6379/0 to race on a real Redis.")
	return "redis://" + embedded.Addr(), nil
}

// connect returns a client of the Redis, after a first PING.
func connect(redisURL string) (*redis.Client, error) {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		// err is not returned, because it may quote the password.
		return nil, errors.New("REDIS_URL is not a URL such as redis://user:password@host:6379/0")
	}
	options.ContextTimeoutEnabled = true
	rdb := redis.NewClient(options)
	if err := rdb.Ping(context.Background()).Err(); err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return rdb, nil
}

// race runs a scene against each pattern. It reports whether the engine ran the handler at most once for each key.
func race(rdb *redis.Client, sc scene) (once bool) {
	fmt.Printf("\n%s Lock TTL and lease: %v.\n", sc.title, sc.life)
	fmt.Printf("Keys: %d. Clients at once for each: %d.\n", sc.keys, sc.clients)
	w := table("pattern", "handler runs", "most for a key", "201", "replays", "409", "errors", "most ids for a key")
	for _, p := range patterns {
		t := sc.play(rdb, p)
		row(w, p.name, t.runs, t.maxRuns, t.created, t.replays, t.conflicts, t.errors, t.maxIDs)
		once = t.maxRuns <= 1 // The engine is the last pattern.
	}
	_ = w.Flush()
	return once
}

// deaths prints what a client sees that retries after a process died.
func deaths(rdb *redis.Client, redisURL string) error {
	fmt.Printf("\nThe process dies after the payment, before its answer is kept. Lock TTL and lease: %v.\n", deathLife)
	w := table("pattern", "handler runs", "409", "answer", "after", "second run is told of the first")
	for _, p := range patterns {
		d, err := death(rdb, redisURL, p)
		if err != nil {
			return err
		}
		row(w, p.name, 1+d.runs, d.conflicts, d.status, d.waited.Round(10*time.Millisecond), d.told)
	}
	_ = w.Flush()
	fmt.Println("Nothing above takes the first payment back: the run that is told of it can look it up.")
	return nil
}

func table(columns ...any) *tabwriter.Writer {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row(w, columns...)
	return w
}

func row(w *tabwriter.Writer, cells ...any) {
	text := make([]string, len(cells))
	for i, cell := range cells {
		text[i] = fmt.Sprint(cell)
	}
	fmt.Fprintln(w, strings.Join(text, "\t"))
}
