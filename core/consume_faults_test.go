package core_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// What becomes of messages when the result of an earlier run is not at hand, when records are damaged, and in batches of which
// one message is poison.

// gone fails as Blobs do for which there is no such blob.
func gone(context.Context) error { return fmt.Errorf("shelf: %w", fs.ErrNotExist) }

// EVT-10: what cannot be read now comes again, and what is lost is said to be.
func TestAMessageWhoseResultIsInABlob(t *testing.T) {
	consumed := func(t *testing.T) (*fixture, *shelf) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
		require.Len(t, s.ids(), 1)
		return f, s
	}
	t.Run("has it", func(t *testing.T) {
		f, _ := consumed(t)
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{1}}, f.consume(message, f.numbered))
	})
	t.Run("EVT-10 is busy while the blob is away, and a duplicate then", func(t *testing.T) {
		f, s := consumed(t)
		for _, err := range []error{errTest, context.DeadlineExceeded, fmt.Errorf("shelf: %w", context.Canceled)} {
			s.get = func(context.Context) error { return err }
			d := f.consume(message, f.numbered)
			assert.Equal(t, consumer.Busy, d.Verdict)
			assert.Positive(t, d.RedeliverAfter)
			assert.ErrorContains(t, d.Err, "store-unavailable")
			assert.Contains(t, f.heard.names(), "store-error")
		}
		s.get = func(context.Context) error { return nil }
		assert.Equal(t, receipt{1}, f.consume(message, f.numbered).Result)
		f.ran(1)
	})
	t.Run("EVT-10 is a duplicate that says so when the blob is lost", func(t *testing.T) {
		f, s := consumed(t)
		s.get = gone
		d := f.consume(message, f.numbered)
		assert.Equal(t, consumer.Duplicate, d.Verdict)
		assert.True(t, d.Omitted)
		assert.ErrorIs(t, d.Err, fs.ErrNotExist)
		f.ran(1)
	})
	for name, damage := range map[string]func(*fixture, *shelf) *fixture{
		"is damaged": func(f *fixture, s *shelf) *fixture {
			for id, data := range s.blobs {
				s.blobs[id] = append(slices.Clone(data), 'x')
			}
			return f
		},
		"is not configured here": func(f *fixture, _ *shelf) *fixture {
			return f.with(func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = nil, 0 })
		},
	} {
		inBubble(t, "EVT-10 is unreadable when the blob "+name, func(t *testing.T) {
			f, s := consumed(t)
			broken := damage(f, s)
			d := broken.consume(message, f.numbered)
			assert.Equal(t, consumer.Busy, d.Verdict)
			assert.ErrorIs(t, d.Err, driver.ErrUnreadable)
			time.Sleep(15 * time.Minute)
			assert.Equal(t, consumer.Dead, broken.consume(message, f.numbered).Verdict)
			f.ran(1)
		})
	}
	t.Run("of which nobody waits for the result is no failure of the store", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		f.consume(message, f.numbered)
		f.send(request("K", "B"), long)
		for name, retry := range map[string]func(context.Context){
			"a message": func(ctx context.Context) { consumer.Consume(ctx, f.consumer, message, f.numbered) },
			"a request": func(ctx context.Context) { _, _ = f.Do(ctx, request("K", "B"), long) },
		} {
			waiting, leave := context.WithCancel(ctx)
			s.get = func(ctx context.Context) error { leave(); <-ctx.Done(); return ctx.Err() }
			f.heard.take()
			retry(waiting)
			assert.NotContains(t, f.heard.names(), "store-error", name)
		}
	})
	t.Run("and a request goes without it, as ever", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		f.send(request("K", "B"), long)
		for _, err := range []error{errTest, fs.ErrNotExist} {
			s.get = func(context.Context) error { return err }
			f.omitted(f.send(request("K", "B"), long))
		}
	})
}

// vanishes leaves message without an outcome, and returns when its lease has ended.
func (f *fixture) vanishes() {
	f.consume(message, func(ctx context.Context) (receipt, error) {
		core.Decide(ctx, core.LeaveUnknown)
		return receipt{}, nil
	})
	time.Sleep(lease)
}

// EVT-10: what OnUnknown finds is the result, to the delivery that asks and to those behind it.
func TestAMessageWhoseOutcomeIsFoundIsADuplicateWithThatResult(t *testing.T) {
	for name, c := range map[string]struct {
		found *core.Response
		want  consumer.Delivery[receipt]
		later consumer.Delivery[receipt]
	}{
		"a result": {&core.Response{Status: 200, Body: []byte(`{"Number":7}`)},
			consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}},
		"one with the status of a creation": {&core.Response{Status: 201, Body: []byte(`{"Number":7}`)},
			consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}},
		"that its result is not known": {&core.Response{Status: 200, Omitted: true},
			consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Omitted: true}, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Omitted: true}},
		"that it is dead": {&core.Response{Status: 500, Body: []byte("refused by the bank")},
			consumer.Delivery[receipt]{Verdict: consumer.Dead, Err: errors.New("refused by the bank")}, consumer.Delivery[receipt]{Verdict: consumer.Dead, Err: errors.New("refused by the bank")}},
	} {
		inBubble(t, "EVT-10 "+name, func(t *testing.T) {
			f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) { return c.found, nil }))
			f.vanishes()
			assert.Equal(t, c.want, f.consume(message, f.numbered))
			assert.Equal(t, c.later, f.consume(message, f.numbered))
			f.ran(1)
		})
	}
	inBubble(t, "EVT-10 unless another run has stored its own meanwhile", func(t *testing.T) {
		f := newFixture(t)
		asking := f.with(onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict, "a process without OnUnknown takes over")
			return &core.Response{Status: 200, Body: []byte(`{"Number":7}`)}, nil
		}))
		asking.vanishes()
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{2}}, asking.consume(message, f.numbered))
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{2}}, f.consume(message, f.numbered))
	})
	inBubble(t, "EVT-10 and one that is too long to keep is whole for the delivery that asks", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Keep.MaxBody = 5 }, onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			return &core.Response{Status: 200, Body: []byte(`{"Number":7}`)}, nil
		}))
		f.vanishes()
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Result: receipt{7}}, f.consume(message, f.numbered))
		assert.Equal(t, consumer.Delivery[receipt]{Verdict: consumer.Duplicate, Omitted: true}, f.consume(message, f.numbered))
	})
	inBubble(t, "EVT-10 and one of another type is an error", func(t *testing.T) {
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			return &core.Response{Status: 200, Body: []byte(`not JSON`)}, nil
		}))
		f.vanishes()
		d := f.consume(message, f.numbered)
		assert.Equal(t, consumer.Duplicate, d.Verdict)
		assert.ErrorIs(t, d.Err, driver.ErrUnreadable)
	})
	inBubble(t, "but none when its claim is lost meanwhile", func(t *testing.T) {
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			return &core.Response{Status: 200, Body: []byte(`{"Number":7}`)}, nil
		}))
		f.vanishes()
		f = f.with(func(c *core.Config) {
			c.Store = scripted{Store: f.inner, complete: func(driver.Claim) error { return core.ErrLost }}
		})
		assert.Equal(t, consumer.Busy, f.consume(message, f.numbered).Verdict)
	})
}

// unreadable is a store that finds a record which it cannot read, for as long as it says so.
type unreadable struct {
	driver.Store
	damaged *bool
}

func (s unreadable) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if *s.damaged {
		return driver.Entry{}, fmt.Errorf("%w: test", driver.ErrUnreadable)
	}
	return s.Store.Begin(ctx, c)
}

// EVT-07.
func TestAMessageWhoseRecordCannotBeReadIsDeadInTheEnd(t *testing.T) {
	damaged := true
	damage := func(c *core.Config) { c.Store = unreadable{memstore.New(), &damaged} }
	busy := func(t *testing.T, d consumer.Delivery[receipt]) {
		t.Helper()
		assert.Equal(t, consumer.Busy, d.Verdict)
		assert.Positive(t, d.RedeliverAfter)
		assert.ErrorIs(t, d.Err, driver.ErrUnreadable)
	}
	for name, c := range map[string]struct{ set, bound time.Duration }{"by default": {0, 15 * time.Minute}, "as configured": {time.Minute, time.Minute}} {
		inBubble(t, "EVT-07 "+name, func(t *testing.T) {
			f := consuming(t, consumer.Config{MaxUnreadable: c.set}, damage)
			busy(t, f.consume(message, f.numbered))
			time.Sleep(c.bound - time.Nanosecond)
			busy(t, f.consume(message, f.numbered))
			time.Sleep(time.Nanosecond)
			for range 2 {
				dead := f.consume(message, f.numbered)
				assert.Equal(t, consumer.Dead, dead.Verdict)
				assert.ErrorIs(t, dead.Err, driver.ErrUnreadable)
			}
			other := message
			other.ID = "event-2"
			busy(t, f.consume(other, f.numbered))
			f.ran(0)
		})
	}
	inBubble(t, "EVT-07 however seldom it is delivered", func(t *testing.T) {
		f := newFixture(t, damage)
		busy(t, f.consume(message, f.numbered))
		time.Sleep(retention - time.Second)
		assert.Equal(t, consumer.Dead, f.consume(message, f.numbered).Verdict)
		time.Sleep(retention)
		busy(t, f.consume(message, f.numbered))
	})
	inBubble(t, "EVT-07 and is handled when it can be read again", func(t *testing.T) {
		f := newFixture(t, damage)
		busy(t, f.consume(message, f.numbered))
		damaged = false
		defer func() { damaged = true }()
		assert.Equal(t, consumer.Done, f.consume(message, f.numbered).Verdict)
	})
	inBubble(t, "EVT-07 in bounded memory", func(t *testing.T) {
		f := newFixture(t, damage)
		numbered := func(i int) consumer.Message { return consumer.Message{Group: "g", ID: strconv.Itoa(i)} }
		for i := range 10_100 {
			f.consume(numbered(i), f.numbered)
		}
		time.Sleep(15 * time.Minute)
		assert.Equal(t, consumer.Dead, f.consume(numbered(9_999), f.numbered).Verdict)
		assert.Equal(t, consumer.Busy, f.consume(numbered(10_050), f.numbered).Verdict, "there was no room for its time")
		time.Sleep(retention)
		assert.Equal(t, consumer.Busy, f.consume(numbered(10_050), f.numbered).Verdict)
		time.Sleep(15 * time.Minute)
		assert.Equal(t, consumer.Dead, f.consume(numbered(10_050), f.numbered).Verdict)
	})
}

// B7: whatever runs for a message of a batch, its panic is the caller's.
func TestAPanicForOneMessageOfABatchPassesOnToTheCaller(t *testing.T) {
	batch := []consumer.Message{{Group: "g", ID: "a"}, {Group: "g", ID: "b"}, {Group: "g", ID: "c"}}
	poison := func(context.Context, core.Event) { panic("poison") }
	for name, change := range map[string]func(*core.Config){
		"of Hooks.Begin": func(c *core.Config) { c.Hooks.Begin = poison },
		"of Hooks.Kept":  func(c *core.Config) { c.Hooks.Kept = poison },
		"of a marshaller": func(c *core.Config) {
			c.Marshal = func(any) ([]byte, error) { panic("poison") }
			c.Unmarshal = func([]byte, any) error { return nil }
		},
		"of a codec": func(c *core.Config) { c.Keep.Codecs = []driver.Codec{panics{}} },
		"of a store": func(c *core.Config) {
			c.Store = scripted{Store: memstore.New(), begin: func(driver.Claim) (driver.Entry, error) { panic("poison") }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, change)
			assert.PanicsWithValue(t, "poison", func() { consumer.Batch(ctx, f.consumer, batch, each) })
		})
	}
	t.Run("of a result that marshals itself, and the others are done", func(t *testing.T) {
		f := newFixture(t)
		assert.PanicsWithValue(t, "poison", func() {
			consumer.Batch(ctx, f.consumer, batch, func(context.Context, []consumer.Message) ([]explosive, error) {
				return []explosive{{}, {true}, {}}, nil
			})
		})
		for i, want := range []consumer.Verdict{consumer.Duplicate, consumer.Done, consumer.Duplicate} {
			assert.Equal(t, want, f.consume(batch[i], f.numbered).Verdict)
		}
	})
	t.Run("when those are handled that are in the batch twice", func(t *testing.T) {
		for name, change := range map[string]func(*core.Config){
			"of the handler": func(*core.Config) {},
			"of a hook": func(c *core.Config) {
				c.Hooks.Failed = func(context.Context, core.Event) { panic("poison") }
			},
		} {
			f, failsFirst := newFixture(t, change), true
			assert.PanicsWithValue(t, "poison", func() {
				consumer.Batch(ctx, f.consumer, letters("aba"), func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
					if !failsFirst {
						return each(ctx, m)
					}
					failsFirst = false
					if name == "of a hook" {
						return nil, errTest
					}
					panic("poison")
				})
			}, name)
			assert.Equal(t, consumer.Duplicate, f.consume(letters("a")[0], f.numbered).Verdict, name)
		}
	})
	t.Run("and so does the end of its goroutine", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Hooks.Begin = func(context.Context, core.Event) { runtime.Goexit() } })
		returned, ended := false, make(chan struct{})
		go func() {
			defer close(ended)
			consumer.Batch(ctx, f.consumer, batch, each)
			returned = true
		}()
		<-ended
		assert.False(t, returned)
	})
}

type explosive struct{ On bool }

func (e explosive) MarshalJSON() ([]byte, error) {
	if e.On {
		panic("poison")
	}
	return []byte("{}"), nil
}

// panics is a codec that does.
type panics struct{}

func (panics) Encode([32]byte, []byte) []byte                 { panic("poison") }
func (panics) Decode(_ [32]byte, kept []byte) ([]byte, error) { return kept, nil }

// letters are messages named so.
func letters(ids string) (messages []consumer.Message) {
	for _, id := range ids {
		messages = append(messages, consumer.Message{Group: "billing", ID: string(id)})
	}
	return messages
}

// poisoned fails every call with a message named x, and notes the calls.
func poisoned(calls *[]string) func(context.Context, []consumer.Message) ([]receipt, error) {
	return func(ctx context.Context, messages []consumer.Message) ([]receipt, error) {
		ids := ""
		for _, m := range messages {
			ids += m.ID
		}
		*calls = append(*calls, ids)
		if slices.ContainsFunc(messages, func(m consumer.Message) bool { return m.ID == "x" }) {
			return nil, errTest
		}
		return each(ctx, messages)
	}
}

func verdicts[T any](deliveries []consumer.Delivery[T]) (verdicts []consumer.Verdict) {
	for _, d := range deliveries {
		verdicts = append(verdicts, d.Verdict)
	}
	return verdicts
}

// B12: one poison message does not take its batch with it.
func TestAPoisonMessageIsTheOnlyOneOfItsBatchThatDies(t *testing.T) {
	two := consumer.Config{MaxAttempts: 2}
	t.Run("that fails its call", func(t *testing.T) {
		f := consuming(t, two)
		var calls []string
		first := consumer.Batch(ctx, f.consumer, letters("abxc"), poisoned(&calls))
		assert.Equal(t, []consumer.Verdict{consumer.Failed, consumer.Failed, consumer.Failed, consumer.Failed}, verdicts(first))
		second := consumer.Batch(ctx, f.consumer, letters("dabxce"), poisoned(&calls))
		assert.Equal(t, []consumer.Verdict{consumer.Done, consumer.Done, consumer.Done, consumer.Dead, consumer.Done, consumer.Done}, verdicts(second))
		assert.EqualError(t, second[3].Err, "test")
		assert.Equal(t, []string{"abxc", "d", "a", "b", "x", "c", "e"}, calls, "in order, and alone from the second attempt on")
	})
	t.Run("that panics", func(t *testing.T) {
		f := consuming(t, two)
		var calls []string
		handle := poisoned(&calls)
		panicking := func(ctx context.Context, messages []consumer.Message) ([]receipt, error) {
			receipts, err := handle(ctx, messages)
			if err != nil {
				panic("poison")
			}
			return receipts, nil
		}
		for range 2 {
			assert.PanicsWithValue(t, "poison", func() { consumer.Batch(ctx, f.consumer, letters("axb"), panicking) })
		}
		assert.Equal(t, []string{"axb", "a", "x", "b"}, calls, "the others are handled before the panic passes on")
		third := consumer.Batch(ctx, f.consumer, letters("axb"), panicking)
		assert.Equal(t, []consumer.Verdict{consumer.Duplicate, consumer.Dead, consumer.Duplicate}, verdicts(third))
	})
	inBubble(t, "that kills its process", func(t *testing.T) {
		f := consuming(t, two)
		for _, m := range letters("axb") { // a batch whose process is gone
			f.consume(m, func(ctx context.Context) (receipt, error) {
				core.Decide(ctx, core.LeaveUnknown)
				return receipt{}, nil
			})
		}
		time.Sleep(lease)
		var calls []string
		consumer.Batch(ctx, f.consumer, letters("axb"), poisoned(&calls))
		assert.Equal(t, []string{"a", "x", "b"}, calls)
	})
}

// A message that is handled does not wait for its neighbours: a slow one would use up its Lease.MaxRun, and one that kills its
// process would take its result with it.
func TestAMessageOfABatchIsSettledWhenItsCallHasReturned(t *testing.T) {
	inBubble(t, "EVT-01", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Lease.MaxRun = lease * 3 / 2 })
		failed := func(context.Context, []consumer.Message) ([]receipt, error) { return nil, errTest }
		consumer.Batch(ctx, f.consumer, letters("ab"), failed)
		d := consumer.Batch(ctx, f.consumer, letters("ab"), func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
			if m[0].ID == "b" {
				synctest.Wait()
				assert.Equal(t, consumer.Duplicate, f.consume(letters("a")[0], f.numbered).Verdict)
			}
			time.Sleep(lease)
			return each(ctx, m)
		})
		assert.Equal(t, []consumer.Verdict{consumer.Done, consumer.Busy}, verdicts(d), "b was claimed together with a")
	})
}

// errors of messages, as an error of a batch may have them.
type perMessage []error

func (perMessage) Error() string     { return "some failed" }
func (e perMessage) Unwrap() []error { return e }

// B12.
func TestTheHandlerOfABatchMayReturnAnErrorForEachMessage(t *testing.T) {
	fails := errors.New("of x")
	t.Run("nil for those that were handled", func(t *testing.T) {
		f := newFixture(t)
		d := consumer.Batch(ctx, f.consumer, letters("axb"), func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
			return []receipt{{1}, {}, {3}}, perMessage{nil, fails, nil}
		})
		assert.Equal(t, []consumer.Verdict{consumer.Done, consumer.Failed, consumer.Done}, verdicts(d))
		assert.Equal(t, fails, d[1].Err)
		assert.Equal(t, receipt{3}, d[2].Result)
	})
	t.Run("and no results when all have failed", func(t *testing.T) {
		f := newFixture(t)
		d := consumer.Batch(ctx, f.consumer, letters("ab"), func(context.Context, []consumer.Message) ([]receipt, error) {
			return nil, errors.Join(errTest, fails)
		})
		assert.Equal(t, []error{errTest, fails}, []error{d[0].Err, d[1].Err})
	})
	for name, c := range map[string]struct {
		results []receipt
		err     error
		want    string
	}{
		"but as many as there are messages": {[]receipt{{1}, {2}}, perMessage{fails}, "some failed"},
		"and results with them":             {[]receipt{{1}}, perMessage{nil, fails}, "2 messages returned 1 results"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for _, d := range consumer.Batch(ctx, f.consumer, letters("ab"), func(context.Context, []consumer.Message) ([]receipt, error) {
				return c.results, c.err
			}) {
				assert.Equal(t, consumer.Failed, d.Verdict)
				assert.ErrorContains(t, d.Err, c.want)
			}
		})
	}
}

// pool is a store with few connections, each call of which takes its time.
type pool struct {
	driver.Store
	conns     chan struct{}
	mu        sync.Mutex
	now, most int // callers, waiting ones included
}

func (p *pool) call(ctx context.Context, verb func() error) error {
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.now--
		p.mu.Unlock()
	}()
	select {
	case p.conns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.conns }()
	time.Sleep(2 * time.Millisecond)
	return verb()
}

func (p *pool) Begin(ctx context.Context, c driver.Claim) (entry driver.Entry, err error) {
	err = p.call(ctx, func() (err error) { entry, err = p.Store.Begin(ctx, c); return err })
	return entry, err
}

func (p *pool) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return p.call(ctx, func() error { return p.Store.Complete(ctx, c, outcome) })
}

func TestABatchOfThousandsDoesNotStandInItsOwnWay(t *testing.T) {
	inBubble(t, "with four connections", func(t *testing.T) {
		p := &pool{Store: memstore.New(), conns: make(chan struct{}, 4)}
		f := newFixture(t, func(c *core.Config) { c.Store = p })
		messages := make([]consumer.Message, 5_000)
		for i := range messages {
			messages[i] = consumer.Message{Group: "g", ID: strconv.Itoa(i)}
		}
		calls := 0
		for _, d := range consumer.Batch(ctx, f.consumer, messages, func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
			calls++
			return each(ctx, m)
		}) {
			assert.Equal(t, consumer.Done, d.Verdict)
		}
		assert.Equal(t, 1, calls)
		assert.LessOrEqual(t, p.most, 64)
		for _, d := range consumer.Batch(ctx, f.consumer, messages, each) {
			assert.Equal(t, consumer.Duplicate, d.Verdict, "what is kept was kept at once")
		}
	})
}

// Those that wait for a run elsewhere are not at the store.
func TestABatchWaitsForAllThatAreInProgressAtOnce(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, waiting(10*time.Second))
		messages := make([]consumer.Message, 300)
		leave := make(chan struct{})
		for i := range messages {
			messages[i] = consumer.Message{Group: "g", ID: strconv.Itoa(i)}
			go f.consume(messages[i], func(context.Context) (receipt, error) { <-leave; return receipt{}, nil })
		}
		synctest.Wait()
		took := elapsed(func() {
			for _, d := range consumer.Batch(ctx, f.consumer, messages, each) {
				assert.Equal(t, consumer.Busy, d.Verdict)
			}
		})
		assert.Equal(t, 10*time.Second, took)
		close(leave)
	})
}

// A message whose claim is lost while others are still being claimed is not handled, and does not stop the others.
func TestABatchLeavesOutWhatIsLostBeforeItsCall(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		inner := memstore.New()
		slow := scripted{Store: inner,
			begin: func(c driver.Claim) (driver.Entry, error) {
				if c.Key == keyOf(t, "b") {
					time.Sleep(storeTimeout * 9 / 10)
				}
				return inner.Begin(ctx, c)
			},
			extend: func(_ context.Context, c driver.Claim) error {
				if c.Key == keyOf(t, "a") {
					return core.ErrLost
				}
				return inner.Extend(ctx, c)
			},
		}
		f := newFixture(t, func(c *core.Config) {
			c.Store, c.Lease.Duration = slow, 2*storeTimeout
		})
		var handled []consumer.Message
		d := consumer.Batch(ctx, f.consumer, letters("ab"), func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
			handled = m
			assert.NoError(t, ctx.Err())
			return each(ctx, m)
		})
		assert.Equal(t, letters("b"), handled)
		assert.Equal(t, []consumer.Verdict{consumer.Busy, consumer.Done}, verdicts(d))
		assert.ErrorIs(t, d[0].Err, core.ErrLost)
	})
}

// EVT-08: messages that have calls of their own lose no attempt when their process stops in an earlier call.
func TestABatchThatStopsUsesUpNoAttemptOfWhatItHasNotHandled(t *testing.T) {
	f := consuming(t, consumer.Config{MaxAttempts: 2})
	failing := func(context.Context, []consumer.Message) ([]receipt, error) { return nil, errTest }
	consumer.Batch(ctx, f.consumer, letters("ab"), failing)
	running, stop := context.WithCancel(ctx)
	d := consumer.Batch(running, f.consumer, letters("ab"), func(ctx context.Context, m []consumer.Message) ([]receipt, error) {
		assert.Equal(t, letters("a"), m)
		stop()
		return each(ctx, m)
	})
	assert.Equal(t, []consumer.Verdict{consumer.Done, consumer.Busy}, verdicts(d))
	assert.ErrorIs(t, d[1].Err, context.Canceled)
	assert.Equal(t, consumer.Done, consumer.Batch(ctx, f.consumer, letters("b"), each)[0].Verdict)
}

// A handler that returns the error of a batch inside it has been called, whatever became of the messages of that batch.
func TestAHandlerAroundABatchThatCameTooLateHasFailed(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := consuming(t, consumer.Config{MaxAttempts: 1})
		inner := newFixture(t, func(c *core.Config) { c.Hooks.Begin = func(context.Context, core.Event) { time.Sleep(time.Second) } })
		d := f.consume(message, func(context.Context) (receipt, error) {
			soon, cancel := context.WithTimeout(ctx, time.Second/2)
			defer cancel()
			late := consumer.Batch(soon, inner.consumer, letters("a"), each)
			assert.Equal(t, consumer.Busy, late[0].Verdict)
			require.ErrorIs(t, late[0].Err, context.DeadlineExceeded)
			return receipt{}, late[0].Err
		})
		assert.Equal(t, consumer.Dead, d.Verdict, "its attempt counts")
		again := consumer.Batch(ctx, inner.consumer, letters("a"), each)
		assert.Equal(t, 1, again[0].Attempt, "that of a message without a call does not")
	})
}

// keyOf is the record of a message of group billing.
func keyOf(t *testing.T, id string) (key [32]byte) {
	t.Helper()
	f := newFixture(t, func(c *core.Config) {
		c.Store = scripted{Store: memstore.New(), begin: func(c driver.Claim) (driver.Entry, error) {
			key = c.Key
			return driver.Entry{State: driver.InProgress}, nil
		}}
	})
	f.consume(consumer.Message{Group: "billing", ID: id}, f.numbered)
	return key
}
