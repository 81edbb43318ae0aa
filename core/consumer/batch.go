package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// Batch is [Consume] for many messages. It calls handle with the messages that are to be handled, in order, and handle returns
// as many results. A message that is handled for the first time shares a call with its neighbours. A message whose earlier run
// failed or vanished has a call of its own. So a poison message, even one that kills its process, fails its neighbours once,
// and uses up no more of their attempts.
//
// An error of handle fails all messages of the call. Handle may instead return one error for each message, nil for a message that
// was handled: an error with a method Unwrap() []error that returns as many errors as there are messages. An error of
// [errors.Join] with as many errors counts as such.
//
// Messages with one ID are handled one after the other, in calls of their own. The context of handle ends with ctx, unlike the
// context in Consume, or when the claim of one of its messages is lost. Messages for which handle is not called before ctx ends are
// Busy. The context belongs to no run, so core.FromContext, core.ChildKey and core.Step do not find one.
//
// A panic of handle fails the messages of its call and reaches the caller when the others are handled. So does a panic of a
// hook, a marshaller, or anything else that runs for a message. With Config.Wait a message that is in progress elsewhere holds
// up the others. At most 64 messages of a batch use the store at the same time.
func Batch[T any](
	ctx context.Context, c *Consumer, messages []Message, handle func(context.Context, []Message) ([]T, error),
) []Delivery[T] {
	b := &batch[T]{
		ctx: ctx, consumer: c, messages: messages, handle: handle,
		deliveries: make([]Delivery[T], len(messages)), store: make(chan struct{}, maxAtStore),
	}
	b.consumeAll(waves(messages))
	return b.deliveries
}

// maxAtStore is how many messages of a batch use the store at the same time. Limits.StoreTimeout bounds each call with its
// wait for a connection, and a small pool has four connections.
const maxAtStore = 64

// waves divides the indices of messages into lists that have each message once at most.
func waves(messages []Message) (waves [][]int) {
	seen := map[name]int{}
	for i, m := range messages {
		n := m.name()
		if seen[n] == len(waves) {
			waves = append(waves, nil)
		}
		waves[seen[n]] = append(waves[seen[n]], i)
		seen[n]++
	}
	return waves
}

var errPanicked = errors.New("idem: the handler of a batch panicked")

// notHandled marks the error of a message whose run or batch was over before the handler was called for it. It does not leave the
// package, because a handler around the batch may return what it gets, and has been called.
type notHandled struct{ error }

// batch is one call of Batch. Each message has a run of its own, in a goroutine of its own. When all runs of a wave have
// begun, or turned out not to be necessary, the batch calls the handler for them. A run goes on when its call has returned.
type batch[T any] struct {
	ctx        context.Context
	consumer   *Consumer
	messages   []Message
	handle     func(context.Context, []Message) ([]T, error)
	deliveries []Delivery[T]

	store   chan struct{}   // has one element for each message that uses the store
	claimed chan *member[T] // gets a member when its run waits for the handler, and nil for a message that is not to be handled

	mu    sync.Mutex
	ended bool // a goroutine of a message has ended by a panic or by runtime.Goexit
	value any  // the value of the first panic
}

// member is a message that has a run, which waits until the batch has called the handler.
type member[T any] struct {
	done   chan struct{}   // closed when its call has returned
	index  int             // in the messages of the batch
	run    context.Context // of the message's run
	called bool            // the handler was called with this message
	result T
	err    error
}

// consumeAll handles the waves one after the other. A panic, or runtime.Goexit, goes on when all are handled.
func (b *batch[T]) consumeAll(waves [][]int) {
	if len(waves) == 0 {
		return
	}
	defer b.consumeAll(waves[1:])
	b.consume(waves[0])
}

// consume handles a wave: messages that have different names.
func (b *batch[T]) consume(wave []int) {
	b.claimed = make(chan *member[T])
	var runs sync.WaitGroup
	for _, i := range wave {
		runs.Go(func() { b.guarded(i) })
	}
	var claimed []*member[T]
	for range wave {
		if m := <-b.claimed; m != nil {
			claimed = append(claimed, m)
		}
	}
	slices.SortFunc(claimed, func(x, y *member[T]) int { return x.index - y.index })
	func() {
		defer runs.Wait() // also when handle panics
		b.callAll(calls(claimed))
	}()
	b.passOn()
}

// guarded handles one message, and notes how its goroutine ends if that is not by a return.
func (b *batch[T]) guarded(i int) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover() // nil: runtime.Goexit
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.ended = true; b.value == nil {
			b.value = value
		}
	}()
	b.deliveries[i] = b.one(i)
	returned = true
}

// passOn panics, or ends its goroutine, if a goroutine of a message has done so.
func (b *batch[T]) passOn() {
	switch {
	case b.value != nil:
		panic(b.value)
	case b.ended:
		runtime.Goexit()
	}
}

// one handles one message. While its run waits for the handler of the batch, another message may use the store.
func (b *batch[T]) one(i int) Delivery[T] {
	var m *member[T]
	b.store <- struct{}{}
	defer func() { <-b.store }()
	defer func() {
		if m == nil {
			b.claimed <- nil
		}
	}()
	d := consume(b.ctx, b.consumer, b.messages[i], b.wait, func(run context.Context) (T, error) {
		m = &member[T]{done: make(chan struct{}), index: i, run: run}
		<-b.store
		b.claimed <- m
		<-m.done
		b.store <- struct{}{}
		return m.result, m.err
	})
	if m != nil && !m.called {
		d.Verdict = Busy
	}
	if unhandled, isMarked := d.Err.(notHandled); isMarked {
		d.Err = unhandled.error
	}
	return d
}

// wait lets another message use the store while one waits for a run elsewhere.
func (b *batch[T]) wait() (done func()) {
	<-b.store
	return func() { b.store <- struct{}{} }
}

// calls divides members by the calls of the handler that they share.
func calls[T any](members []*member[T]) (calls [][]*member[T]) {
	shared := false // another new message may join the last call
	for _, m := range members {
		run, _ := core.FromContext(m.run)
		isNew := run.Attempt <= 1
		if isNew && shared {
			last := len(calls) - 1
			calls[last] = append(calls[last], m)
			continue
		}
		calls = append(calls, []*member[T]{m})
		shared = isNew
	}
	return calls
}

// callAll makes the calls. A panic goes on when all calls are made.
func (b *batch[T]) callAll(calls [][]*member[T]) {
	made := 0
	defer func() {
		if made < len(calls) {
			b.callAll(calls[made:])
		}
	}()
	for made < len(calls) {
		made++
		b.call(calls[made-1])
	}
}

// call calls the handler with the members that still have their claims, unless the context of the batch has ended.
func (b *batch[T]) call(members []*member[T]) {
	together := &shared{Context: b.ctx}
	for _, m := range members {
		together.runs = append(together.runs, m.run)
		defer close(m.done) // also when handle panics
	}
	ctx, cancel := context.WithCancelCause(together)
	defer cancel(nil)
	members = slices.DeleteFunc(members, func(m *member[T]) bool {
		if why := cmp.Or(context.Cause(m.run), context.Cause(b.ctx)); why != nil {
			m.err = notHandled{fmt.Errorf("idem: the run or its batch was over before the handler was called: %w", why)}
		}
		return m.err != nil
	})
	if len(members) == 0 {
		return
	}
	messages := make([]Message, len(members))
	for n, m := range members {
		unbind := context.AfterFunc(m.run, func() { cancel(context.Cause(m.run)) })
		defer unbind()
		messages[n] = b.messages[m.index]
		m.called, m.err = true, errPanicked
	}
	results, err := b.handle(ctx, messages)
	settleCall(members, results, err)
}

// shared is the context of a call for many messages. It belongs to none of their runs, and all of them go on around it.
type shared struct {
	context.Context
	runs []context.Context
}

// Value implements context.Context.
func (s *shared) Value(key any) any {
	if key == driver.ContextKey {
		return s
	}
	if _, ok := key.(name); ok {
		return s.consumer(key)
	}
	return s.Context.Value(key)
}

// consumer returns the consumer of the run around s that has the message of the given name; nil without one.
func (s *shared) consumer(name any) any {
	for _, run := range s.runs {
		if c := run.Value(name); c != nil {
			return c
		}
	}
	return nil
}

// Runs returns the contexts of the runs: see driver.ContextKey.
func (s *shared) Runs() []context.Context { return s.runs }

// settleCall gives each member its result and its error.
func settleCall[T any](members []*member[T], results []T, err error) {
	each := make([]error, len(members))
	if own, ok := err.(interface{ Unwrap() []error }); ok && len(own.Unwrap()) == len(members) {
		copy(each, own.Unwrap())
	} else if err != nil {
		each = slices.Repeat([]error{err}, len(members))
	}
	if len(results) != len(members) && slices.Contains(each, nil) {
		err = fmt.Errorf("idem: the handler of %d messages returned %d results", len(members), len(results))
		each = slices.Repeat([]error{err}, len(members))
	}
	for n, m := range members {
		if m.err = each[n]; m.err == nil {
			m.result = results[n]
		}
	}
}
