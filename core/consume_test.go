package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

type receipt struct{ Number int }

var message = consumer.Message{Group: "billing", ID: "event-1", Payload: []byte(`{"amount":100}`)}

// consume handles m and counts the runs.
func (f *fixture) consume(m consumer.Message, handle func(context.Context) (receipt, error)) consumer.Delivery[receipt] {
	return consumer.Consume(ctx, f.consumer, m, func(ctx context.Context) (receipt, error) {
		f.runs.Add(1)
		return handle(ctx)
	})
}

// numbered returns a receipt with the number of the run.
func (f *fixture) numbered(context.Context) (receipt, error) { return receipt{int(f.runs.Load())}, nil }

func fails(context.Context) (receipt, error) { return receipt{}, errTest }

// EVT-01.
func TestAMessageIsHandledOnceAndItsResultHandedToLaterDeliveries(t *testing.T) {
	f := newFixture(t)
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{1}, Attempt: 1}, f.consume(message, f.numbered))
	for range 3 {
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{1}}, f.consume(message, f.numbered))
	}
	f.ran(1)
}

// EVT-02.
func TestAMessageInProgressIsToBeDeliveredLater(t *testing.T) {
	f := newFixture(t)
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan consumer.Delivery[receipt])
	go func() {
		done <- f.consume(message, func(ctx context.Context) (receipt, error) {
			close(entered)
			<-leave
			return f.numbered(ctx)
		})
	}()
	<-entered
	busy := f.consume(message, f.numbered)
	assert.Equal(t, consumer.Busy, busy.Verdict)
	assert.GreaterOrEqual(t, busy.RedeliverAfter, time.Second)
	assert.LessOrEqual(t, busy.RedeliverAfter, lease)
	assert.NoError(t, busy.Err)
	close(leave)
	assert.Equal(t, consumer.Done, (<-done).Verdict)
	f.ran(1)
}

// EVT-03.
func TestAMessageThatFailedIsHandledAgain(t *testing.T) {
	f := newFixture(t)
	failed := f.consume(message, fails)
	assert.Equal(t, consumer.Failed, failed.Verdict)
	assert.ErrorIs(t, failed.Err, errTest)
	assert.Equal(t, 1, failed.Attempt)
	assert.Positive(t, failed.RedeliverAfter)
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{2}, Attempt: 2}, f.consume(message, f.numbered))
}

// EVT-04.
func TestAMessageWhoseHandlerVanishedIsHandledAgainAfterTheLease(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t)
		gone := f.consume(message, func(ctx context.Context) (receipt, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return receipt{}, nil
		})
		assert.Equal(t, consumer.Busy, gone.Verdict)
		assert.ErrorIs(t, gone.Err, core.ErrOutcomeUnknown)
		assert.Equal(t, consumer.Busy, f.consume(message, f.numbered).Verdict)
		time.Sleep(lease)
		d := f.consume(message, func(ctx context.Context) (receipt, error) {
			assert.True(t, f.seen(ctx).Takeover)
			return f.numbered(ctx)
		})
		assert.Equal(t, consumer.Done, d.Verdict)
		assert.Equal(t, 2, d.Attempt)
	})
}

// EVT-05.
func TestGroupsHandleAMessageEachOnTheirOwn(t *testing.T) {
	f := newFixture(t)
	shipping := message
	shipping.Group = "shipping"
	assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	assert.Equal(t, consumer.Done, f.consume(shipping, f.numbered).Verdict)
	f.ran(2)
}

func TestGroupAndIDDoNotRunIntoEachOther(t *testing.T) {
	f := newFixture(t)
	for _, m := range []consumer.Message{{Group: "a:b", ID: "c"}, {Group: "a", ID: "b:c"}, {Group: "ab", ID: "c"}, {Group: "a", ID: "bc"}} {
		assert.Equal(t, consumer.Done, f.consume(m, f.numbered).Verdict, m)
	}
	f.answered(f.send(request("c", ""), made), 201, "made")
}

// EVT-06.
func TestAMessageWithAnotherPayload(t *testing.T) {
	other := message
	other.Payload = []byte(`{"amount":999}`)
	f := newFixture(t)
	f.consume(message, f.numbered)
	dead := f.consume(other, f.numbered)
	assert.Equal(t, consumer.Dead, dead.Verdict)
	assert.ErrorContains(t, dead.Err, "another payload")
	skipping := f.consuming(consumer.Config{SkipMismatch: true})
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Omitted: true, Mismatch: true}, skipping.consume(other, f.numbered))
	f.ran(1)
}

func TestAMessageIsDeadAfterItsLastAttempt(t *testing.T) {
	three := consumer.Config{MaxAttempts: 3}
	t.Run("that returned an error", func(t *testing.T) {
		f := consuming(t, three)
		for range 2 {
			assert.Equal(t, consumer.Failed, f.consume(message, fails).Verdict)
		}
		for range 2 {
			dead := f.consume(message, fails)
			assert.Equal(t, consumer.Dead, dead.Verdict)
			assert.EqualError(t, dead.Err, "test")
		}
		f.ran(3)
	})
	t.Run("that panicked", func(t *testing.T) {
		f := consuming(t, three)
		for range 3 {
			assert.Panics(t, func() { f.consume(message, func(context.Context) (receipt, error) { panic("poison") }) })
		}
		assert.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
		assert.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
		f.ran(3)
	})
	inBubble(t, "that killed its process", func(t *testing.T) {
		f := consuming(t, three)
		for range 3 {
			f.consume(message, func(ctx context.Context) (receipt, error) {
				core.Decide(ctx, core.LeaveUnknown)
				return receipt{}, nil
			})
			time.Sleep(lease)
		}
		assert.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
		f.ran(3)
	})
	for name, fault := range map[string]storetest.Fault{"lost": storetest.Before, "without an answer": storetest.After, "behind its own fail": storetest.Late} {
		t.Run("EVT-08 and deliveries do not count whose begin was "+name, func(t *testing.T) {
			for _, onUnknown := range []func(context.Context, *core.Request) (*core.Response, error){nil, core.RefuseUnknown} {
				f := consuming(t, three, func(c *core.Config) { c.Lease.OnUnknown = onUnknown })
				for run := range 3 {
					for range 5 {
						f.store.Inject("begin", fault, 1)
						assert.Equal(t, consumer.Busy, f.consume(message, f.numbered).Verdict)
						f.close()
					}
					delivery := f.consume(message, fails)
					assert.Equal(t, run+1, delivery.Attempt)
				}
				f.ran(3)
			}
		})
	}
	t.Run("unless that one succeeds", func(t *testing.T) {
		f := consuming(t, three)
		for range 2 {
			f.consume(message, fails)
		}
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
		assert.Equal(t, consumer.Duplicate, f.consume(message, f.numbered).Verdict)
	})
}

func TestTheCauseOfAFailureIsKept(t *testing.T) {
	causes := make(chan string, 1)
	store := failing{memstore.New(), causes}
	f := newFixture(t, func(c *core.Config) { c.Store = store })
	long := strings.Repeat("ä", 150)
	f.consume(message, func(context.Context) (receipt, error) { return receipt{}, errors.New(long) })
	assert.Equal(t, long[:200], <-causes)
}

// failing tells the causes that it is given.
type failing struct {
	driver.Store
	causes chan string
}

func (s failing) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	s.causes <- f.Cause
	return s.Store.Fail(ctx, c, f)
}

func TestAMessageAndTheStore(t *testing.T) {
	t.Run("that is away before it: later", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("begin", storetest.Before, 1)
		d := f.consume(message, f.numbered)
		assert.Equal(t, consumer.Busy, d.Verdict)
		assert.ErrorContains(t, d.Err, "store-unavailable")
		f.ran(0)
		f.close()
	})
	inBubble(t, "that is away after it: done, and kept when it is back", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.Before, 3)
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
		f.close()
		assert.Equal(t, consumer.Duplicate, f.consume(message, f.numbered).Verdict)
	})
	inBubble(t, "that gave the claim to another: later", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("extend", storetest.Before, always)
		d := f.consume(message, func(context.Context) (receipt, error) {
			time.Sleep(lease + time.Second)
			synctest.Wait()
			assert.Equal(t, consumer.Done, f.healed().consume(message, f.numbered).Verdict)
			return receipt{99}, nil
		})
		assert.Equal(t, consumer.Busy, d.Verdict)
		assert.ErrorContains(t, d.Err, "claim-lost")
		assert.Equal(t, receipt{2}, f.consume(message, f.numbered).Result)
	})
	for name, c := range map[string]struct {
		onUnknown func(context.Context, *core.Request) (*core.Response, error)
		verdict   consumer.Verdict
	}{
		"is gone after the run: it is handled again":                           {nil, consumer.Busy},
		"is gone after the run: it is dead, if vanished runs are not repeated": {core.RefuseUnknown, consumer.Dead},
	} {
		t.Run("that "+name, func(t *testing.T) {
			f := newFixture(t, func(cfg *core.Config) {
				cfg.Lease.OnUnknown = c.onUnknown
				cfg.Store = scripted{Store: cfg.Store, complete: func(driver.Claim) error { return driver.ErrGone }}
			})
			d := f.consume(message, f.numbered)
			assert.Equal(t, c.verdict, d.Verdict)
			assert.Equal(t, c.verdict == consumer.Busy, d.RedeliverAfter > 0)
			assert.ErrorIs(t, d.Err, driver.ErrGone)
		})
	}
	t.Run("that holds a result of another type: an error, and no run", func(t *testing.T) {
		f := newFixture(t)
		f.consume(message, f.numbered)
		d := consumer.Consume(ctx, f.consumer, message, func(context.Context) ([]string, error) { return nil, errTest })
		assert.Equal(t, consumer.Duplicate, d.Verdict)
		assert.ErrorIs(t, d.Err, driver.ErrUnreadable)
	})
}

func TestWhatTheHandlerOfAMessageDecides(t *testing.T) {
	for decision, want := range map[core.Disposition]consumer.Verdict{
		core.Keep: consumer.Done, core.Retry: consumer.Failed, core.Release: consumer.Failed, core.LeaveUnknown: consumer.Busy,
	} {
		f := newFixture(t)
		d := f.consume(message, func(ctx context.Context) (receipt, error) {
			core.Decide(ctx, decision)
			return receipt{1}, nil
		})
		assert.Equal(t, want, d.Verdict, "decision %v", decision)
		if decision == core.Keep {
			continue
		}
		other := consumer.Message{Group: "billing", ID: "event-2"}
		unkept := consumer.Consume(ctx, f.consumer, other, func(ctx context.Context) (func(), error) {
			core.Decide(ctx, decision)
			return func() {}, nil
		})
		assert.Equal(t, want, unkept.Verdict, "decision %v on a result that can not be kept", decision)
	}
}

// A message that is said to be dead is kept as such, so that no later delivery says something else, and an operator can revive it.
func TestAMessageIsDeadWhateverItsHandlerHasDecidedForItsLastAttempt(t *testing.T) {
	for _, decision := range []core.Disposition{core.Keep, core.Retry, core.LeaveUnknown} {
		f := consuming(t, consumer.Config{MaxAttempts: 1})
		failed := f.consume(message, func(ctx context.Context) (receipt, error) {
			core.Decide(ctx, decision)
			return fails(ctx)
		})
		assert.Equal(t, consumer.Dead, failed.Verdict)
		again := f.consume(message, f.numbered)
		assert.Equal(t, consumer.Dead, again.Verdict, "decision %v", decision)
		assert.EqualError(t, again.Err, errTest.Error())
		require.NoError(t, f.Resolve(ctx, core.Task{Kind: consumer.Kind, Scope: message.Group, Key: message.ID}, nil))
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	}
}

func TestAMessageOfUnknownOutcomeIsDead(t *testing.T) {
	inBubble(t, "until an operator resolves it", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		f.consume(message, func(ctx context.Context) (receipt, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return receipt{}, nil
		})
		time.Sleep(lease)
		d := f.consume(message, f.numbered)
		assert.Equal(t, consumer.Dead, d.Verdict)
		assert.ErrorIs(t, d.Err, core.ErrOutcomeUnknown)
		which := core.Task{Kind: "MESSAGE", Scope: "billing", Key: "event-1"}
		require.NoError(t, f.Resolve(ctx, which, &core.Response{Status: 200, Body: []byte(`{"Number":7}`)}))
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}, f.consume(message, f.numbered))
	})
}

func TestAMessageWhoseResultIsForgottenIsADuplicate(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Keep.LateRetry = time.Hour })
		f.consume(message, f.numbered)
		time.Sleep(retention)
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Omitted: true}, f.consume(message, f.numbered))
		time.Sleep(time.Hour)
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	})
}

func TestAMessageWithoutGroupOrIDIsDead(t *testing.T) {
	f := newFixture(t)
	for _, m := range []consumer.Message{{Group: "billing"}, {ID: "event-1"}, {}} {
		d := f.consume(m, f.numbered)
		assert.Equal(t, consumer.Dead, d.Verdict)
		assert.ErrorContains(t, d.Err, "Message.Group and Message.ID")
	}
	f.ran(0)
	assert.Zero(t, f.calls())
}

func TestResultsAreMarshalledAsTheConfigSays(t *testing.T) {
	f := newFixture(t, func(c *core.Config) {
		c.Marshal = func(v any) ([]byte, error) { return fmt.Append(nil, v.(receipt).Number), nil }
		c.Unmarshal = func(b []byte, v any) error {
			_, err := fmt.Sscan(string(b), &v.(*receipt).Number)
			return err
		}
	})
	f.consume(message, f.numbered)
	assert.Equal(t, receipt{1}, f.consume(message, f.numbered).Result)
}

func TestAResultThatCannotBeMarshalledIsNoReasonToRunAgain(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		d := consumer.Consume(ctx, f.consumer, message, func(context.Context) (func(), error) {
			f.runs.Add(1)
			return func() {}, nil
		})
		assert.Equal(t, consumer.Dead, d.Verdict)
		assert.ErrorContains(t, d.Err, "can not be marshalled")
	}
	f.ran(1)
}

// each returns as many receipts as there are messages.
func each(_ context.Context, messages []consumer.Message) (receipts []receipt, err error) {
	for i := range messages {
		receipts = append(receipts, receipt{i + 1})
	}
	return receipts, nil
}

func TestABatchHandlesWhatIsToBeHandled(t *testing.T) {
	f := newFixture(t)
	id := func(id string) consumer.Message {
		return consumer.Message{Group: "billing", ID: id, Payload: []byte(id)}
	}
	f.consume(id("b"), f.numbered)
	var calls [][]consumer.Message
	batch := []consumer.Message{id("a"), id("b"), id("c"), id("a"), {}}
	deliveries := consumer.Batch(ctx, f.consumer, batch, func(ctx context.Context, messages []consumer.Message) ([]receipt, error) {
		calls = append(calls, messages)
		return each(ctx, messages)
	})
	assert.Equal(t, [][]consumer.Message{{id("a"), id("c")}}, calls)
	require.Len(t, deliveries, 5)
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{1}, Attempt: 1}, deliveries[0])
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{1}}, deliveries[1])
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{2}, Attempt: 1}, deliveries[2])
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{1}}, deliveries[3], "the same message once more")
	assert.Equal(t, consumer.Dead, deliveries[4].Verdict)
	assert.Empty(t, consumer.Batch(ctx, f.consumer, nil, each))
}

func TestABatchThatFailsFailsAllItsMessages(t *testing.T) {
	batch := []consumer.Message{{Group: "g", ID: "a"}, {Group: "g", ID: "b"}}
	for name, handle := range map[string]func(context.Context, []consumer.Message) ([]receipt, error){
		"by an error":            func(context.Context, []consumer.Message) ([]receipt, error) { return nil, errTest },
		"by a result too little": func(context.Context, []consumer.Message) ([]receipt, error) { return []receipt{{1}}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for _, d := range consumer.Batch(ctx, f.consumer, batch, handle) {
				assert.Equal(t, consumer.Failed, d.Verdict)
				assert.Error(t, d.Err)
			}
			for _, d := range consumer.Batch(ctx, f.consumer, batch, each) {
				assert.Equal(t, consumer.Done, d.Verdict)
				assert.Equal(t, 2, d.Attempt)
			}
		})
	}
	t.Run("by a panic, which passes on", func(t *testing.T) {
		f := newFixture(t)
		assert.PanicsWithValue(t, "poison", func() {
			consumer.Batch(ctx, f.consumer, batch, func(context.Context, []consumer.Message) ([]receipt, error) { panic("poison") })
		})
		for _, d := range consumer.Batch(ctx, f.consumer, batch, each) {
			assert.Equal(t, 2, d.Attempt)
		}
	})
}

func TestABatchIsToldWhenOneOfItsClaimsIsLost(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("extend", storetest.Before, always)
		consumer.Batch(ctx, f.consumer, []consumer.Message{message}, func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
			assert.ErrorIs(t, ended(t, ctx), core.ErrLost)
			return nil, ctx.Err()
		})
	})
}

func TestAMessageWithinItsOwnRunIsOnlyHandled(t *testing.T) {
	f := newFixture(t)
	outer := f.consume(message, func(ctx context.Context) (receipt, error) {
		inner := consumer.Consume(ctx, f.consumer, message, func(ctx context.Context) (receipt, error) { return receipt{7}, nil })
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Done, Result: receipt{7}, Attempt: 1}, inner)
		failed := consumer.Consume(ctx, f.consumer, message, fails)
		assert.Equal(t, consumer.Failed, failed.Verdict)
		return inner.Result, nil
	})
	assert.Equal(t, consumer.Done, outer.Verdict)
	assert.Equal(t, 2, f.calls(), "begin and complete")
}

func TestAResultThatIsTooLongIsOmittedFromDuplicates(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Keep.MaxBody = 5 })
	assert.Equal(t, receipt{1}, f.consume(message, f.numbered).Result)
	assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Omitted: true}, f.consume(message, f.numbered))
}

// The record of a dead message has no cause if it has no body, but its deliveries still say that.
func TestADeadMessageWhoseCauseIsNotKeptSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		cause  error
		change func(*core.Config)
	}{
		"no body is kept":    {errTest, func(c *core.Config) { c.Keep.OmitBody = func(*core.Response) bool { return true } }},
		"the error is empty": {errors.New(""), func(*core.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			f := consuming(t, consumer.Config{MaxAttempts: 1}, c.change)
			for range 2 {
				dead := f.consume(message, func(context.Context) (receipt, error) { return receipt{}, c.cause })
				assert.Equal(t, consumer.Dead, dead.Verdict)
				assert.NotEmpty(t, dead.Err.Error())
			}
		})
	}
}
