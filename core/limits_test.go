package core_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// What a request may cost.

func TestAQuotaRefusesBeforeAnythingIsReadOrStored(t *testing.T) {
	left := map[string]int{"T1": 3}
	f := newFixture(t, func(c *core.Config) {
		c.Limits.Quota = func(_ context.Context, scope string, r *core.Request) bool {
			assert.Equal(t, "POST", r.Method)
			left[scope]--
			return left[scope] >= 0
		}
	})
	t1 := scope("T1")
	f.answered(f.send(changed(t1), made), 201, "made")
	f.replayed(f.send(changed(t1), made), 201, "made") // a replay counts, too
	f.send(changed(t1, method("GET")), made)           // what passes by does not
	f.send(changed(t1, keys()), made)
	f.refused(f.send(changed(t1, body("B'", nil)), made), 422, "fingerprint-mismatch")
	calls := f.calls()
	for _, key := range []string{"K", "K2"} {
		refused := f.send(changed(t1, keys(key), unread(t)), made)
		f.refused(refused, 429, "quota-exceeded")
		assert.Equal(t, []string{"1"}, values(refused.Response, "Retry-After"))
	}
	f.refused(f.send(changed(scope("T2")), made), 429, "quota-exceeded")
	assert.Equal(t, calls, f.calls(), "nothing is stored")
	f.ran(1)
	left["T1"] = 1
	assert.Equal(t, 1, f.runsAgain(changed(t1, keys("K2"))).Attempt, "its key is new")
}

func TestAQuotaIsAskedOncePerRequest(t *testing.T) {
	var asked atomic.Int64
	f := newFixture(t, func(c *core.Config) {
		c.Limits.Quota = func(context.Context, string, *core.Request) bool { asked.Add(1); return true }
	})
	inner := f.With(func(*core.Config) {})
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		_, err := inner.Do(ctx, request("K", "B"), made) // a middleware on a route, behind one on all
		assert.NoError(t, err)
		return made(ctx)
	})
	assert.EqualValues(t, 1, asked.Load())
	f.refused(f.send(changed(scope("")), made), 401, "scope-missing")
	assert.EqualValues(t, 1, asked.Load(), "nobody is asked about nobody")
}

// The functions of the config may read the body, although an adapter can read it only once.
func TestAFunctionOfTheConfigMayReadTheBodyBeforeTheEngine(t *testing.T) {
	reads := func(_ context.Context, r *core.Request) string {
		read, err := r.Body(1)
		return fmt.Sprintf("%s, error: %t", read, err != nil)
	}
	for name, change := range map[string]func(*core.Config){
		"Scope": func(c *core.Config) { c.Scope = reads },
		"Quota": func(c *core.Config) {
			c.Limits.Quota = func(ctx context.Context, _ string, r *core.Request) bool { return reads(ctx, r) != "" }
		},
		"SentAt": func(c *core.Config) {
			c.Key.MaxAge = lease
			c.Key.SentAt = func(r *core.Request, _ string) (time.Time, bool) { return time.Now(), reads(ctx, r) != "" }
		},
		"Func": func(c *core.Config) {
			c.Fingerprint.Func = func(r *core.Request, _ []byte) []byte { return []byte(reads(ctx, r)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, change, func(c *core.Config) { c.Limits.RequestBody = 8 })
			once := func(text string, err error) core.Request {
				return changed(func(r *core.Request) {
					isRead := false
					r.Body = func(limit int64) ([]byte, error) {
						assert.False(t, isRead, "a second call of an adapter's Body finds nothing")
						assert.EqualValues(t, 8, limit)
						isRead = true
						return []byte(text), err
					}
				})
			}
			f.refused(f.send(once("too long for it", nil), made), 413, "body-too-large")
			f.refused(f.send(once("", &http.MaxBytesError{Limit: 8}), made), 413, "body-too-large")
			f.refused(f.send(once("half", errTest), made), 400, "body-unreadable")
			f.answered(f.send(once("body", nil), made), 201, "made")
			f.replayed(f.send(once("body", nil), made), 201, "made")
			if name != "Scope" { // with it, another body is another caller
				f.refused(f.send(once("other", nil), made), 422, "fingerprint-mismatch")
			}
		})
	}
}

// FPR-01: a body that nobody can read any more is a problem only where it is compared. The operator is told what to do.
func TestABodyThatMiddlewareHasTakenIsRefusedWhereItCounts(t *testing.T) {
	taken := changed(body("", driver.ErrBodyTaken))
	f := newFixture(t)
	refused := f.send(taken, made)
	f.refused(refused, 400, "body-unreadable")
	assert.ErrorIs(t, refused.Err, driver.ErrBodyTaken)
	for name, change := range map[string]func(*core.Config){
		"Off":  func(c *core.Config) { c.Fingerprint.Off = true },
		"Func": func(c *core.Config) { c.Fingerprint.Func = func(*core.Request, []byte) []byte { return nil } },
	} {
		f.with(change).answered(f.with(change).send(changed(keys(name), body("", driver.ErrBodyTaken)), made), 201, "made")
	}
}

// away is a store that answers nothing until it is back.
type away struct {
	driver.Store
	back  chan struct{}
	fails atomic.Int64
}

func (a *away) Begin(context.Context, driver.Claim) (driver.Entry, error) {
	return driver.Entry{}, errTest
}

func (a *away) Fail(ctx context.Context, c driver.Claim, failure driver.Failure) error {
	a.fails.Add(1)
	select {
	case <-a.back:
		return a.Store.Fail(ctx, c, failure)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inBackground counts the goroutines that outlive their requests.
func inBackground() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("inflight.(*Group).Go.func1("))
}

// LSE-07: what is done for requests that were refused does not grow with the outage.
func TestRefusedRequestsKeepFewGoroutinesBusy(t *testing.T) {
	inBubble(t, "LSE-07", func(t *testing.T) {
		const requests, few = 1200, 1000
		store := &away{back: make(chan struct{})}
		f := newFixture(t, func(c *core.Config) {
			store.Store = c.Store
			c.Store = store
		})
		for i := range requests {
			f.refused(f.send(request(fmt.Sprint(i), "B"), made), 503, "store-unavailable")
		}
		time.Sleep(storeTimeout + time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, requests, min(store.fails.Load(), requests), "each is given back once, at least")
		busy := inBackground()
		assert.LessOrEqual(t, busy, few)
		assert.Greater(t, busy, few/2, "most are given back as soon as the store is back")
		close(store.back)
		f.close()
		f.ran(0)
	})
}

// A Begin whose answer was lost has run nothing: whatever comes next under the key may run.
func TestABeginWithoutAnAnswerIsNoRun(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"taken": storetest.After, "not taken": storetest.Before} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.store.Inject("begin", fault, 1)
			f.refused(f.send(request("K", "B"), made), 503, "store-unavailable")
			f.close()
			assert.False(t, f.runsAgain(request("K", "B'")).Takeover)
			f.ran(1)
		})
	}
	t.Run("also if the client is a run that has lost its own claim, and the store returns why its context has ended", func(t *testing.T) {
		f := newFixture(t)
		run, lose := context.WithCancelCause(ctx)
		defer lose(nil)
		begun := f.with(func(c *core.Config) {
			c.Store = scripted{Store: f.inner, begin: func(c driver.Claim) (driver.Entry, error) {
				_, err := f.inner.Begin(ctx, c)
				require.NoError(t, err)
				lose(lostBecause("it was overdue"))
				return driver.Entry{}, fmt.Errorf("no response: %w", context.Cause(run))
			}}
		})
		result, err := begun.do(run, request("K", "B"), made)
		require.NoError(t, err)
		f.refused(result, 503, "store-unavailable")
		begun.close()
		assert.False(t, f.runsAgain(request("K", "B'")).Takeover)
	})
	t.Run("but of an engine that fails open, it may be", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.DangerouslyFailOpen = true })
		f.store.Inject("begin", storetest.After, 1)
		f.sends(f.send(request("K", "B"), made), 201, "made")
		f.close()
		f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
		f.runsAgain(request("K", "B"))
	})
	t.Run("nor does it hide what an earlier run may have done", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), answers(500, ""))
		f.store.Inject("begin", storetest.After, 1)
		f.send(request("K", "B"), made)
		f.close()
		f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
	})
}

// A request may have less time than the store.
func TestAStoreThatIsTooSlowForARequestIsHeardOf(t *testing.T) {
	inBubble(t, "its own deadline", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("begin", storetest.Hang, 1)
		hurried, cancel := context.WithTimeout(ctx, storeTimeout/2)
		defer cancel()
		result, err := f.do(hurried, request("K", "B"), made)
		assert.NoError(t, err)
		f.refused(result, 503, "store-unavailable")
		events := f.heard.take()
		if assert.Len(t, events, 1) {
			assert.Equal(t, "store-error", events[0].hook)
			assert.ErrorIs(t, events[0].Err, context.DeadlineExceeded)
		}
		f.close()
	})
	inBubble(t, "a client of the store that gives up", func(t *testing.T) {
		f := newFixture(t, beginAnswers(driver.Entry{}, context.Canceled))
		f.refused(f.send(request("K", "B"), made), 503, "store-unavailable")
		assert.Equal(t, "store-error", f.heard.names())
		f.close()
	})
	inBubble(t, "but not when the client has left", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("begin", storetest.Hang, 1)
		client, leave := context.WithCancel(ctx)
		time.AfterFunc(storeTimeout/2, leave)
		_, err := f.do(client, request("K", "B"), made)
		assert.NoError(t, err)
		assert.Empty(t, f.heard.names())
		f.close()
	})
}

// Requests that look for a record under a previous name release the claims of their own names. While the store does not respond
// to that, they keep few goroutines busy as well.
func TestReleasesOfClaimsUnderAnotherNameKeepFewGoroutinesBusy(t *testing.T) {
	inBubble(t, "SKW-01", func(t *testing.T) {
		const requests, few = 1200, 1000
		store := &away{back: make(chan struct{})}
		f := newFixture(t, secrets(anotherSecret, oneSecret), func(c *core.Config) {
			inner := c.Store
			begin := func(c driver.Claim) (driver.Entry, error) { return inner.Begin(ctx, c) }
			store.Store = inner
			c.Store = scripted{Store: store, begin: begin}
		})
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() { f.answered(f.send(request(fmt.Sprint(i), "B"), made), 201, "made") })
		}
		all.Wait()
		time.Sleep(storeTimeout + time.Millisecond)
		synctest.Wait()
		busy := inBackground()
		assert.LessOrEqual(t, busy, few)
		assert.Greater(t, busy, few/2, "most releases are sent again as soon as the store is back")
		close(store.back)
		f.close()
		f.ran(requests)
	})
}
