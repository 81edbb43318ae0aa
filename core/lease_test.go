package core_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

func TestShortRunSendsNoExtension(t *testing.T) {
	inBubble(t, "a third of the lease", func(t *testing.T) {
		f := newFixture(t)
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(lease/3 - time.Millisecond)
		f.answered(running.finish(), 201, "made")
		time.Sleep(5 * lease)
		assert.Zero(t, f.store.Calls("extend"))
		assert.Equal(t, 2, f.calls(), "begin and complete")
		assert.Equal(t, "begin kept", f.heard.names())
	})
}

// LSE-03.
func TestLongRunStaysTheOnlyOne(t *testing.T) {
	inBubble(t, "five leases", func(t *testing.T) {
		f := newFixture(t)
		running := f.hold(ctx, request("K", "B"), made)
		for range 5 * 7 {
			time.Sleep(lease / 7)
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			assert.NoError(t, running.run.Err())
		}
		f.answered(running.finish(), 201, "made")
		assert.InDelta(t, 3*5, f.store.Calls("extend"), 1, "one at each third of a lease")
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

// A retention that ends during the run would open the key.
func TestLongRunOutlastsTheRetention(t *testing.T) {
	inBubble(t, "retention", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Keep.Retention = lease + time.Second })
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(4 * lease)
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		running.finish()
		f.ran(1)
	})
}

func TestLostClaimCancelsTheHandler(t *testing.T) {
	inBubble(t, "lost", func(t *testing.T) {
		f := newFixture(t, losesClaims)
		var cause error
		took := elapsed(func() {
			result := f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				cause = ended(t, ctx)
				return made(ctx)
			})
			f.refused(result, 409, "claim-lost")
		})
		assert.Equal(t, core.ErrLost, cause)
		assert.Equal(t, lease/3, took, "the first extension tells")
	})
}

// deaf is a store whose Extend does not come back before the test is over, whatever its context says.
func deaf(over <-chan struct{}) func(*core.Config) {
	return func(c *core.Config) {
		c.Store = scripted{Store: c.Store, extend: func(context.Context, driver.Claim) error { <-over; return errTest }}
	}
}

func TestSilentStoreCancelsTheHandlerWhenTheLeaseIsOver(t *testing.T) {
	for name, silence := range map[string]func(f *fixture){
		"it fails":           func(f *fixture) { f.store.Inject("extend", storetest.Before, always) },
		"it hangs":           func(f *fixture) { f.store.Inject("extend", storetest.Hang, always) },
		"it hangs and hangs": func(*fixture) {},
	} {
		inBubble(t, name, func(t *testing.T) {
			over := make(chan struct{})
			defer close(over)
			var changes []func(*core.Config)
			if name == "it hangs and hangs" {
				changes = append(changes, deaf(over))
			}
			f := newFixture(t, changes...)
			silence(f)
			running := f.hold(ctx, request("K", "B"), made)
			time.Sleep(lease - time.Nanosecond)
			synctest.Wait()
			assert.NoError(t, running.run.Err(), "the lease may still run")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.Equal(t, core.ErrLost, context.Cause(running.run))
			running.finish()
			time.Sleep(storeTimeout) // the last extension may be under way
		})
	}
}

// The lease is counted from when a confirmed call was sent: the store may have granted it then.
func TestLeaseIsCountedFromTheLastConfirmedCall(t *testing.T) {
	inBubble(t, "a slow begin", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) {
			store := c.Store
			c.Store = scripted{Store: store, begin: func(c driver.Claim) (driver.Entry, error) {
				entry, err := store.Begin(ctx, c)
				time.Sleep(storeTimeout / 2)
				return entry, err
			}}
		})
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(lease - storeTimeout/2)
		synctest.Wait()
		assert.Equal(t, core.ErrLost, context.Cause(running.run))
		running.finish()
	})
	inBubble(t, "an extension", func(t *testing.T) {
		f := newFixture(t)
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(lease/3 + time.Millisecond)
		f.store.Inject("extend", storetest.Before, always)
		time.Sleep(lease - 2*time.Millisecond)
		synctest.Wait()
		assert.NoError(t, running.run.Err())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, core.ErrLost, context.Cause(running.run))
		running.finish()
	})
}

func TestStoreThatIsBackInTimeKeepsTheHandlerRunning(t *testing.T) {
	for fault, name := range faultName {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			f.store.Inject("extend", fault, 4)
			running := f.hold(ctx, request("K", "B"), made)
			time.Sleep(3 * lease)
			assert.NoError(t, running.run.Err())
			f.answered(running.finish(), 201, "made")
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			assert.Equal(t, "begin store-error store-error store-error store-error kept replay", f.heard.names())
		})
	}
}

func TestExtensionUnderWayWhenTheRunEndsChangesNothing(t *testing.T) {
	inBubble(t, "late answer", func(t *testing.T) {
		over := make(chan struct{})
		f := newFixture(t, deaf(over))
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(lease / 2)
		f.answered(running.finish(), 201, "made")
		close(over)
		time.Sleep(5 * lease)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		assert.NotContains(t, f.heard.names(), "lost")
	})
}

// ways are the ways for a run to end.
var ways = map[string]func(*fixture, core.Request){
	"answered": func(f *fixture, r core.Request) { _, _ = f.do(ctx, r, made) },
	"failed":   func(f *fixture, r core.Request) { _, _ = f.do(ctx, r, answers(500, "")) },
	"error": func(f *fixture, r core.Request) {
		_, _ = f.do(ctx, r, func(context.Context) (*core.Response, error) { return nil, errTest })
	},
	"panicked": func(f *fixture, r core.Request) {
		defer func() { _ = recover() }()
		_, _ = f.do(ctx, r, func(context.Context) (*core.Response, error) { panic(errTest) })
	},
	"left": func(f *fixture, r core.Request) {
		client, leave := context.WithCancel(ctx)
		_, _ = f.do(client, r, func(ctx context.Context) (*core.Response, error) {
			leave()
			return made(ctx)
		})
	},
	"left-while-streaming": func(f *fixture, r core.Request) {
		client, leave := context.WithCancel(ctx)
		_, _ = f.do(client, r, func(ctx context.Context) (*core.Response, error) {
			core.CancelOnDisconnect(ctx)
			leave()
			_ = ended(f.tb, ctx)
			return made(ctx)
		})
	},
	"in-time": func(f *fixture, r core.Request) {
		client, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		_, _ = f.do(client, r, made)
	},
}

func TestTenThousandRunsLeaveNoGoroutineBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	f := newFixture(t)
	var wg sync.WaitGroup
	for name, end := range ways {
		wg.Go(func() {
			for i := range 10_000/len(ways) + 1 {
				end(f, request(fmt.Sprint(name, i), "B"))
			}
		})
	}
	wg.Wait()
	f.close()
	assert.GreaterOrEqual(t, f.runs.Load(), int64(10_000))
}

func TestRunsThatEndedSendNothingMore(t *testing.T) {
	inBubble(t, "ten leases later", func(t *testing.T) {
		f := newFixture(t)
		for name, end := range ways {
			end(f, request(name, "B"))
		}
		f.close()
		f.ran(int64(len(ways)))
		calls := f.calls()
		f.heard.take()
		time.Sleep(10 * lease)
		assert.Equal(t, calls, f.calls())
		assert.Empty(t, f.heard.names())
	})
}

// What a run was given is free when it has ended, though the context that it came with lives on, and though its lease
// would still run: no timer and no callback holds on to it.
func TestRunThatEndedHoldsOnToNothing(t *testing.T) {
	service, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	ways := map[string]handler{
		"answered": made,
		"streamed": func(ctx context.Context) (*core.Response, error) {
			core.CancelOnDisconnect(ctx)
			return made(ctx)
		},
	}
	for name, h := range ways {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			freed := make(chan struct{})
			func() {
				payload := &[64]byte{}
				runtime.AddCleanup(payload, func(freed chan struct{}) { close(freed) }, freed)
				r := request(name, "B")
				r.Body = func(int64) ([]byte, error) { return payload[:], nil }
				_, err := f.do(service, r, h)
				assert.NoError(t, err)
			}()
			assert.True(t, isFreed(freed), "something holds on to the request")
			runtime.KeepAlive(f)
		})
	}
}

// isFreed collects garbage until freed is closed, or for some seconds.
func isFreed(freed <-chan struct{}) bool {
	for range 50 {
		runtime.GC()
		select {
		case <-freed:
			return true
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}
