package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"
)

// What people write by hand, on net/http. None tells one request from another, keeps a lock that its handler needs for
// longer, or notices that it has lost it.

const (
	lockLife  = 30 * time.Second
	keepLife  = 24 * time.Hour
	lockPause = 2 * time.Millisecond
)

// answered answers with what a GET found, and tells whether the request is done with.
func answered(w http.ResponseWriter, found *redis.StringCmd) bool {
	body, err := found.Bytes()
	if errors.Is(err, redis.Nil) {
		return false
	}
	if err != nil {
		unavailable(w, err)
		return true
	}
	replayed(w, body)
	return true
}

// getSetNXSet looks for an answer, takes a lock or refuses, runs, keeps the answer and gives the lock back.
func getSetNXSet(client *redis.Client, s *shop) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), r.Header.Get(keyHeader)
		result, lock := "result:"+key, "lock:"+key
		if answered(w, client.Get(ctx, result)) {
			return
		}
		locked, err := client.SetNX(ctx, lock, "1", lockLife).Result()
		switch {
		case err != nil:
			unavailable(w, err)
		case !locked:
			conflict(w)
		default:
			defer client.Del(context.WithoutCancel(ctx), lock)
			runAndSet(w, r, client, s, result)
		}
	})
}

// runAndSet runs the handler and keeps its answer under result before it is sent.
func runAndSet(w http.ResponseWriter, r *http.Request, client *redis.Client, s *shop, result string) {
	readBody(r)
	body := s.pay()
	if err := client.Set(r.Context(), result, body, keepLife).Err(); err != nil {
		unavailable(w, err)
		return
	}
	created(w, body)
}

// luaTwoKeys has a script before the handler and one behind it, over a lock and a JSON result.
func luaTwoKeys(client *redis.Client, s *shop) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, owner := r.Context(), rand.Text()
		keys := pairKeys(r.Header.Get(keyHeader))
		found, err := pairBegin.EvalSha(ctx, client, keys, owner, pairFingerprint, retentionMillis).StringSlice()
		switch {
		case err != nil:
			unavailable(w, err)
		case found[0] == "completed":
			var result pairResult
			if err := json.Unmarshal([]byte(found[1]), &result); err != nil {
				unavailable(w, err)
				return
			}
			replayed(w, []byte(result.Body))
		case found[0] != "claimed":
			conflict(w)
		default:
			readBody(r)
			body := s.pay()
			if err := pairComplete.EvalSha(ctx, client, keys, owner, retentionMillis, newPairResult(body)).Err(); err != nil {
				unavailable(w, err)
				return
			}
			created(w, body)
		}
	})
}

// entry is the one JSON key of oneJSONKey.
type entry struct {
	Done   bool
	Status int
	Header http.Header
	Body   []byte
}

// oneJSONKey puts a placeholder under the key with NX, records the handler's answer with an httptest.ResponseRecorder, and
// replaces the placeholder.
func oneJSONKey(client *redis.Client, s *shop) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), "json:"+r.Header.Get(keyHeader)
		placeholder, _ := json.Marshal(entry{}) // cannot fail
		claimed, err := client.SetNX(ctx, key, placeholder, lockLife).Result()
		if err != nil {
			unavailable(w, err)
			return
		}
		if !claimed {
			replayEntry(w, client.Get(ctx, key))
			return
		}
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, r)
		kept, _ := json.Marshal(entry{true, recorder.Code, recorder.Header(), recorder.Body.Bytes()}) // cannot fail
		if err := client.Set(ctx, key, kept, keepLife).Err(); err != nil {
			unavailable(w, err)
			return
		}
		created(w, recorder.Body.Bytes())
	})
}

func replayEntry(w http.ResponseWriter, found *redis.StringCmd) {
	var e entry
	kept, err := found.Bytes()
	if err == nil {
		err = json.Unmarshal(kept, &e)
	}
	switch {
	case err != nil:
		unavailable(w, err)
	case !e.Done:
		conflict(w)
	default:
		replayed(w, e.Body)
	}
}

// lockCheckUnlock waits for a lock, looks for an answer under it, runs, keeps the answer and unlocks.
func lockCheckUnlock(client *redis.Client, s *shop) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key, owner := r.Context(), r.Header.Get(keyHeader), rand.Text()
		result, lock := "result:"+key, "lock:"+key
		for {
			locked, err := client.SetNX(ctx, lock, owner, lockLife).Result()
			if err != nil {
				unavailable(w, err)
				return
			}
			if locked {
				break
			}
			time.Sleep(lockPause)
		}
		defer unlockScript.EvalSha(context.WithoutCancel(ctx), client, []string{lock}, owner)
		if !answered(w, client.Get(ctx, result)) {
			runAndSet(w, r, client, s, result)
		}
	})
}

var unlockScript = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
