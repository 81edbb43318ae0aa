package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// Engine.Resolve of messages that are dead.

var dead = core.Task{Kind: "MESSAGE", Scope: "billing", Key: "event-1"}

// dies handles message until it is dead.
func (f *fixture) dies(t *testing.T) {
	t.Helper()
	require.Equal(t, consumer.Failed, f.consume(message, fails).Verdict)
	require.Equal(t, consumer.Dead, f.consume(message, fails).Verdict)
	f.heard.take()
}

var two = consumer.Config{MaxAttempts: 2}

// EVT-11.
func TestAnOperatorRevivesADeadMessage(t *testing.T) {
	inBubble(t, "EVT-11 and it has all its attempts again", func(t *testing.T) {
		f := consuming(t, two)
		f.dies(t)
		require.NoError(t, f.Resolve(ctx, dead, nil))
		d := f.consume(message, func(ctx context.Context) (receipt, error) {
			run := f.seen(ctx)
			assert.Equal(t, 1, run.Attempt)
			assert.True(t, run.Takeover, "earlier runs may have had effects")
			return receipt{}, errTest
		})
		assert.Equal(t, consumer.Failed, d.Verdict)
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{4}, Attempt: 2}, f.consume(message, f.numbered))
		assert.Equal(t, receipt{4}, f.consume(message, f.numbered).Result)
	})
	inBubble(t, "EVT-11 as often as it dies", func(t *testing.T) {
		f := consuming(t, two)
		for range 3 {
			f.dies(t)
			require.NoError(t, f.Resolve(ctx, dead, nil))
		}
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	})
	inBubble(t, "EVT-11 or says what its result is", func(t *testing.T) {
		f := consuming(t, two)
		f.dies(t)
		require.NoError(t, f.Resolve(ctx, dead, &core.Response{Status: 200, Body: []byte(`{"Number":7}`)}))
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}, f.consume(message, f.numbered))
		f.ran(2)
	})
	inBubble(t, "EVT-11 if the fence names no run", func(t *testing.T) {
		f, named := consuming(t, two), dead
		f.dies(t)
		named.Fence = 7
		assert.ErrorIs(t, f.Resolve(ctx, named, nil), core.ErrNotUnknown)
		named.Fence = -1
		require.NoError(t, f.Resolve(ctx, named, nil))
		f.vanishes()
		assert.ErrorIs(t, f.Resolve(ctx, named, nil), core.ErrNotUnknown, "the fence -1 settles no run")
		require.NoError(t, f.Resolve(ctx, dead, nil))
	})
	inBubble(t, "EVT-11 of the same payload only", func(t *testing.T) {
		f := consuming(t, two)
		f.dies(t)
		require.NoError(t, f.Resolve(ctx, dead, nil))
		other := message
		other.Payload = []byte("other")
		assert.ErrorContains(t, f.consume(other, f.numbered).Err, "another payload")
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	})
	for name, change := range map[string]func(*core.Config){
		"whose outcome is sealed":                 func(c *core.Config) { c.Keep.Codecs = []driver.Codec{tagged{"seal", new([]string)}} },
		"whose outcome is in a blob":              func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = newShelf(), 1 },
		"that leaves a tombstone":                 func(c *core.Config) { c.Keep.LateRetry = retention },
		"that is remembered here":                 func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 },
		"of an engine with another key per route": func(c *core.Config) { c.Key.PerRoute = true },
		"whose result cannot be marshalled": func(c *core.Config) {
			c.Marshal = func(v any) ([]byte, error) {
				if v.(receipt).Number < 3 {
					return nil, errTest
				}
				return []byte("3"), nil
			}
			c.Unmarshal = func([]byte, any) error { return nil }
		},
	} {
		inBubble(t, "EVT-11 "+name, func(t *testing.T) {
			f := consuming(t, two, change)
			require.Equal(t, consumer.Failed, f.consume(message, fails).Verdict)
			if strings.Contains(name, "marshalled") {
				require.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
			} else {
				require.Equal(t, consumer.Dead, f.consume(message, fails).Verdict)
			}
			require.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
			require.NoError(t, f.Resolve(ctx, dead, nil))
			assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
		})
	}
	inBubble(t, "EVT-11 whose tombstone does not take it for done when it fails again", func(t *testing.T) {
		f := consuming(t, two, func(c *core.Config) { c.Keep.LateRetry = 10 * retention })
		f.dies(t)
		require.NoError(t, f.Resolve(ctx, dead, nil))
		assert.Equal(t, consumer.Failed, f.consume(message, fails).Verdict)
		time.Sleep(retention)
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	})
}

// EVT-11: nothing that lives is broken.
func TestAnOperatorRevivesOnlyWhatIsDead(t *testing.T) {
	for name, outcome := range map[string]*core.Response{"to be handled": nil, "with a result": {Status: 200, Body: []byte(`{"Number":7}`)}} {
		inBubble(t, "not a message that is done, "+name, func(t *testing.T) {
			f := consuming(t, two)
			f.consume(message, f.numbered)
			nothingIsUnknown(t, f.Resolve(ctx, dead, outcome), "completed")
			assert.Equal(t, receipt{1}, f.consume(message, f.numbered).Result)
		})
		inBubble(t, "nor one that has attempts left, "+name, func(t *testing.T) {
			f := consuming(t, two)
			f.consume(message, fails)
			nothingIsUnknown(t, f.Resolve(ctx, dead, outcome), "no record of a run")
			assert.Equal(t, 2, f.consume(message, f.numbered).Attempt)
		})
		inBubble(t, "nor one that is revived, "+name, func(t *testing.T) {
			f := consuming(t, two)
			f.dies(t)
			require.NoError(t, f.Resolve(ctx, dead, nil))
			nothingIsUnknown(t, f.Resolve(ctx, dead, outcome), "no record of a run")
			assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{3}, Attempt: 1}, f.consume(message, f.numbered))
		})
		inBubble(t, "nor a request with status 500, "+name, func(t *testing.T) {
			f := newFixture(t, func(c *core.Config) { c.Keep.Policy = core.KeepAll })
			f.send(request("K", "B"), answers(500, "final"))
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "completed")
			f.replayed(f.send(request("K", "B"), made), 500, "final")
		})
		inBubble(t, "nor one that another settles at this moment, "+name, func(t *testing.T) {
			f := consuming(t, two)
			f.dies(t)
			raced := false
			racing := f.with(func(c *core.Config) {
				c.Store = beforeReopen{f.inner, func() {
					if !raced {
						raced = true
						require.NoError(t, f.Resolve(ctx, dead, nil))
						assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
					}
				}}
			})
			nothingIsUnknown(t, racing.Resolve(ctx, dead, outcome), "at this moment")
			assert.Equal(t, receipt{3}, f.consume(message, f.numbered).Result)
		})
		eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
			for _, verb := range []string{"begin", "reopen", "complete"} {
				f := consuming(t, two)
				f.dies(t)
				f.store.Inject(verb, fault, 1)
				hurried, cancel := context.WithTimeout(ctx, storeTimeout)
				err := f.Resolve(hurried, dead, outcome)
				cancel()
				if err == nil {
					continue // the verb is not sent
				}
				assert.NotErrorIs(t, err, core.ErrNotUnknown)
				time.Sleep(lease)
				if err := f.healed().Resolve(ctx, dead, outcome); err != nil {
					assert.ErrorIs(t, err, core.ErrNotUnknown, "it has been said")
				}
				d := f.healed().consume(message, f.numbered)
				assert.Contains(t, []consumer.Verdict{consumer.Done, consumer.Duplicate}, d.Verdict)
			}
		})
	}
	inBubble(t, "nor one that cannot be read", func(t *testing.T) {
		f := consuming(t, two)
		f.dies(t)
		odd := f.with(func(c *core.Config) { c.Keep.Codecs = []driver.Codec{unreadableCodec{}} })
		assert.ErrorIs(t, odd.Resolve(ctx, dead, nil), driver.ErrUnreadable)
		assert.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
	})
	t.Run("and says so where the store cannot", func(t *testing.T) {
		f := consuming(t, two, func(c *core.Config) { c.Store = scripted{Store: c.Store} })
		f.dies(t)
		assert.ErrorIs(t, f.Resolve(ctx, dead, nil), errors.ErrUnsupported)
		assert.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
	})
}

// secondBegin is a store whose second Begin is another.
type secondBegin struct {
	*storetest.Faulty
	begins int
	second func() (driver.Entry, error)
}

func (s *secondBegin) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if s.begins++; s.begins == 2 {
		return s.second()
	}
	return s.Faulty.Begin(ctx, c)
}

// A message that is revived, and not settled in the same call, is handled.
func TestARevivedMessageThatIsNotSettledIsHandled(t *testing.T) {
	result := &core.Response{Status: 200, Body: []byte(`{"Number":7}`)}
	for name, c := range map[string]struct {
		entry driver.Entry
		err   error
		want  string
	}{
		"the store is away":         {driver.Entry{}, errTest, errTest.Error()},
		"a delivery is there first": {driver.Entry{State: driver.InProgress}, nil, "it is revived, and in-progress"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := consuming(t, two)
			f.dies(t)
			store := &secondBegin{Faulty: f.store, second: func() (driver.Entry, error) { return c.entry, c.err }}
			err := f.with(func(cfg *core.Config) { cfg.Store = store }).Resolve(ctx, dead, result)
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, c.err == nil, errors.Is(err, core.ErrNotUnknown))
			assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
		})
	}
}

// beforeReopen does something before a Reopen.
type beforeReopen struct {
	driver.Store
	do func()
}

func (s beforeReopen) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	s.do()
	return s.Store.(interface {
		Reopen(context.Context, driver.Claim, []byte) error
	}).Reopen(ctx, c, outcome)
}

// EVT-08: attempts are runs.
func TestADeliveryThatIsNotHandledUsesUpNoAttempt(t *testing.T) {
	one := consumer.Config{MaxAttempts: 1}
	handled := func(t *testing.T, f *fixture) {
		t.Helper()
		d := f.consume(message, f.numbered)
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{int(f.runs.Load())}, Attempt: 1}, d)
	}
	for refuse, onUnknownIs := range map[string]func(*core.Config){"by default": func(*core.Config) {}, "for who refuses unknown outcomes": onUnknown(core.RefuseUnknown)} {
		for fault, kind := range map[string]storetest.Fault{"is lost": storetest.Before, "has no answer": storetest.After, "hangs": storetest.Hang} {
			inBubble(t, "EVT-08 whose begin "+fault+", "+refuse, func(t *testing.T) {
				f := consuming(t, one, onUnknownIs)
				for range 5 {
					f.store.Inject("begin", kind, 1)
					assert.Equal(t, consumer.Busy, f.consume(message, f.numbered).Verdict)
					f.close()
				}
				f.ran(0)
				handled(t, f)
			})
		}
		inBubble(t, "EVT-08 whose begin is not durable, "+refuse, func(t *testing.T) {
			f := consuming(t, one, onUnknownIs)
			short := f.with(func(c *core.Config) {
				c.Store = scripted{Store: f.inner, begin: func(c driver.Claim) (driver.Entry, error) {
					_, err := f.inner.Begin(ctx, c)
					assert.NoError(t, err)
					return driver.Entry{}, driver.ErrNotDurable
				}}
			})
			for range 5 {
				d := short.consume(message, f.numbered)
				assert.Equal(t, consumer.Busy, d.Verdict)
				assert.ErrorContains(t, d.Err, "not-durable")
				f.close()
			}
			handled(t, f)
		})
	}
	inBubble(t, "EVT-08 whose begin is answered after its lease, in an engine that fails open", func(t *testing.T) {
		f := consuming(t, one)
		late := f.with(func(c *core.Config) {
			c.DangerouslyFailOpen = true
			c.Store = scripted{Store: f.inner, begin: func(c driver.Claim) (driver.Entry, error) {
				entry, err := f.inner.Begin(ctx, c)
				time.Sleep(lease)
				return entry, err
			}}
		})
		for range 3 {
			assert.Equal(t, consumer.Busy, late.consume(message, f.numbered).Verdict)
			f.close()
		}
		f.ran(0)
		handled(t, f)
	})
	inBubble(t, "EVT-08 whose consumer stops before begin has an answer, in an engine that fails open", func(t *testing.T) {
		f := consuming(t, one)
		var stop func()
		stopping := f.with(func(c *core.Config) {
			c.DangerouslyFailOpen = true
			c.Store = scripted{Store: f.inner, begin: func(c driver.Claim) (driver.Entry, error) {
				_, err := f.inner.Begin(ctx, c)
				assert.NoError(t, err)
				stop()
				return driver.Entry{}, context.Canceled
			}}
		})
		for range 3 {
			client, cancel := context.WithCancel(ctx)
			stop = cancel
			assert.Equal(t, consumer.Busy, consumer.Consume(client, stopping.consumer, message, f.numbered).Verdict)
			cancel()
			f.close()
		}
		f.ran(0)
		handled(t, f)
	})
	t.Run("EVT-08 whose hook panics before", func(t *testing.T) {
		f := consuming(t, one)
		broken := f.with(func(c *core.Config) { c.Hooks.Begin = func(context.Context, core.Event) { panic("hook") } })
		for range 3 {
			assert.Panics(t, func() { broken.consume(message, f.numbered) })
		}
		handled(t, f)
	})
	t.Run("EVT-08 whose handler decides that it could do nothing", func(t *testing.T) {
		f := consuming(t, one)
		for range 3 {
			d := f.consume(message, func(ctx context.Context) (receipt, error) {
				core.Decide(ctx, core.Release)
				return receipt{}, errTest
			})
			assert.Equal(t, consumer.Failed, d.Verdict)
			assert.ErrorIs(t, d.Err, errTest)
			assert.Positive(t, d.RedeliverAfter)
		}
		handled(t, f)
	})
	t.Run("but one that has kept a step has done something", func(t *testing.T) {
		f := consuming(t, one)
		charged := 0
		f = f.consuming(two)
		for _, want := range []consumer.Verdict{consumer.Failed, consumer.Failed, consumer.Dead} {
			d := f.consume(message, func(ctx context.Context) (receipt, error) {
				_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { charged++; return 1, nil })
				assert.NoError(t, err)
				core.Decide(ctx, core.Release)
				return receipt{}, errTest
			})
			assert.Equal(t, want, d.Verdict)
		}
		assert.Equal(t, 1, charged)
	})
	inBubble(t, "EVT-08 that is left out of the call of its batch", func(t *testing.T) {
		f := consuming(t, one)
		late, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		slow := f.with(func(c *core.Config) {
			c.Store = scripted{Store: f.inner, begin: func(c driver.Claim) (driver.Entry, error) {
				entry, err := f.inner.Begin(ctx, c)
				<-late.Done() // begin is answered, and the deadline of the batch is over
				return entry, err
			}}
		})
		d := consumer.Batch(late, slow.consumer, []consumer.Message{message}, func(context.Context, []consumer.Message) ([]receipt, error) {
			t.Error("it is handled")
			return nil, nil
		})
		assert.Equal(t, consumer.Busy, d[0].Verdict)
		f.close()
		handled(t, f)
	})
}

// EVT-11: a reopening whose answer was lost may have taken effect, so this process does not take the message for dead any more.
func TestAMessageWhoseRevivalHadNoAnswerIsNotRememberedAsDead(t *testing.T) {
	inBubble(t, "EVT-11", func(t *testing.T) {
		f := consuming(t, two, func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 })
		f.dies(t)
		f.store.Inject("reopen", storetest.After, 1)
		require.ErrorIs(t, f.Resolve(ctx, dead, nil), storetest.ErrInjected)
		require.ErrorIs(t, f.Resolve(ctx, dead, nil), core.ErrNotUnknown, "there is nothing to say again")
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	})
}
