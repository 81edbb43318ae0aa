package subject

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

// The handlers of this file are what people write by hand. None of them compares requests, keeps a lock that its handler needs
// for longer, or notices that it has lost the lock.

// How long locks and responses live, and how long lockCheckUnlock sleeps between two tries.
const (
	lockLife  = 30 * time.Second
	keepLife  = 24 * time.Hour
	lockPause = 2 * time.Millisecond
)

// getSetNXSet looks for a response, takes a lock or refuses, runs, keeps the response and releases the lock.
func getSetNXSet(client *redis.Client, p *Payments) handler {
	return func(ctx context.Context, key string, body func() []byte) reply {
		result, lock := "result:"+key, "lock:"+key
		if found, ok := lookUp(ctx, client, result); ok {
			return found
		}
		locked, err := client.SetNX(ctx, lock, "1", lockLife).Result()
		switch {
		case err != nil:
			return unavailable
		case !locked:
			return conflict
		}
		defer client.Del(context.WithoutCancel(ctx), lock)
		return runAndSet(ctx, client, p, result, body)
	}
}

// lookUp returns the response to send if there is a result, or if the server is unavailable.
func lookUp(ctx context.Context, client *redis.Client, result string) (reply, bool) {
	kept, err := client.Get(ctx, result).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return reply{}, false
	case err != nil:
		return unavailable, true
	}
	return replayed(kept), true
}

// runAndSet runs the handler and keeps its response before it is sent.
func runAndSet(ctx context.Context, client *redis.Client, p *Payments, result string, body func() []byte) reply {
	return p.run(body, func(made []byte) error { return client.Set(ctx, result, made, keepLife).Err() })
}

// luaTwoKeys calls a script before the handler and one after it, over a lock and a JSON result.
func luaTwoKeys(client *redis.Client, p *Payments) handler {
	return func(ctx context.Context, key string, body func() []byte) reply {
		owner, keys := rand.Text(), pairKeys(key)
		found, err := pairBegin.EvalSha(ctx, client, keys, owner, pairFingerprint, retentionMillis).StringSlice()
		switch {
		case err != nil:
			return unavailable
		case found[0] == "completed":
			var kept pairResult
			if json.Unmarshal([]byte(found[1]), &kept) != nil {
				return unavailable
			}
			return replayed([]byte(kept.Body))
		case found[0] != "claimed":
			return conflict
		}
		return p.run(body, func(made []byte) error {
			return pairComplete.EvalSha(ctx, client, keys, owner, retentionMillis, pairOutcome(string(made))).Err()
		})
	}
}

// entry is the JSON of oneJSONKey.
type entry struct {
	Done   bool
	Status int
	Header http.Header
	Body   []byte
}

// oneJSONKey puts a placeholder under the key with NX, records the response, and replaces the placeholder.
func oneJSONKey(client *redis.Client, p *Payments) handler {
	return func(ctx context.Context, key string, body func() []byte) reply {
		placeholder, _ := json.Marshal(entry{}) // cannot fail
		claimed, err := client.SetNX(ctx, "json:"+key, placeholder, lockLife).Result()
		switch {
		case err != nil:
			return unavailable
		case !claimed:
			return replayEntry(client.Get(ctx, "json:"+key).Bytes())
		}
		return p.run(body, func(made []byte) error {
			recorder := httptest.NewRecorder()
			recorder.Header().Set("Content-Type", MediaType)
			recorder.WriteHeader(http.StatusCreated)
			_, _ = recorder.Write(made)                                                                   // cannot fail
			kept, _ := json.Marshal(entry{true, recorder.Code, recorder.Header(), recorder.Body.Bytes()}) // cannot fail
			return client.Set(ctx, "json:"+key, kept, keepLife).Err()
		})
	}
}

// replayEntry returns the response of an entry, or a conflict while its run goes on.
func replayEntry(kept []byte, err error) reply {
	var e entry
	switch {
	case err != nil || json.Unmarshal(kept, &e) != nil:
		return unavailable
	case !e.Done:
		return conflict
	}
	return replayed(e.Body)
}

// lockCheckUnlock waits for a lock, looks for a response under it, runs, keeps the response and unlocks.
func lockCheckUnlock(client *redis.Client, p *Payments) handler {
	return func(ctx context.Context, key string, body func() []byte) reply {
		owner, result, lock := rand.Text(), "result:"+key, "lock:"+key
		for {
			locked, err := client.SetNX(ctx, lock, owner, lockLife).Result()
			if err != nil {
				return unavailable
			}
			if locked {
				break
			}
			time.Sleep(lockPause)
		}
		defer unlockScript.EvalSha(context.WithoutCancel(ctx), client, []string{lock}, owner)
		if found, ok := lookUp(ctx, client, result); ok {
			return found
		}
		return runAndSet(ctx, client, p, result, body)
	}
}

// unlockScript deletes a lock if it has this owner.
var unlockScript = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
