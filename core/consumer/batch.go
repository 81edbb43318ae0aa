package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/go-idem/idem/core"
)

// Batch is [Consume] for many messages. It calls handle with those that are to be handled, in order, and handle returns
// as many results. A message that is handled for the first time shares a call with its neighbours; one whose earlier run failed
// or vanished comes alone, in a call of its own. So a poison message, even one that kills its process, fails its neighbours
// once, and uses up no more of their attempts.
//
// An error of handle fails all messages of the call. Handle may return one error for each message instead, nil for those that
// were handled: in an error whose method Unwrap() []error returns as many errors as there are messages. An error from
// [errors.Join] with as many is taken for such.
//
// Messages with one ID are deliveries one after the other, in calls of their own. The context of handle ends with ctx, unlike
// that of Consume's, or when the claim of one of its messages is lost; it belongs to no run, so FromContext, ChildKey and Step do
// not know it. A panic of handle fails the messages of its call; it passes on to the caller when the others are handled, as does one of a hook, of a marshaller, and of
// everything else that runs for a message. With Config.Wait a message that is in progress elsewhere holds up the others.
// However many messages there are, no more than 64 of them are at the store at once.
func Batch[T any](ctx context.Context, c *Consumer, messages []Message, handle func(context.Context, []Message) ([]T, error)) []Delivery[T] {
	b := &batch[T]{
		ctx: ctx, consumer: c, messages: messages, handle: handle,
		deliveries: make([]Delivery[T], len(messages)), store: make(chan struct{}, atStoreAtOnce),
	}
	for _, round := range rounds(messages) {
		b.consume(round)
	}
	return b.deliveries
}

// atStoreAtOnce is how many messages of a batch are at the store at once. Each call of it has the time of one, waiting for a
// connection included, of which small pools have 4.
const atStoreAtOnce = 64

// rounds puts the indices of messages into lists in which no ID is twice.
func rounds(messages []Message) (rounds [][]int) {
	seen := map[name]int{}
	for i, m := range messages {
		n := m.name()
		if seen[n] == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[seen[n]] = append(rounds[seen[n]], i)
		seen[n]++
	}
	return rounds
}

var (
	errPanicked   = errors.New("idem: the handler of a batch panicked")
	errNotHandled = errors.New("idem: the run was over before the handler of its batch was called")
)

// batch is many messages, each of which has a run of its own, and calls of a handler for those that run at the same time.
type batch[T any] struct {
	ctx        context.Context
	consumer   *Consumer
	messages   []Message
	handle     func(context.Context, []Message) ([]T, error)
	deliveries []Delivery[T]

	store   chan struct{}   // has room for those that are at the store
	claimed chan *member[T] // whose run is here and waits; nil for a message that needs none
	over    chan struct{}   // closed when all members are handled

	mu    sync.Mutex
	ended bool // a goroutine of a message has ended by a panic or by runtime.Goexit
	value any  // of the first panic
}

// member is a message whose run waits for the batch.
type member[T any] struct {
	index  int
	run    context.Context
	called bool // the handler was, with it
	result T
	err    error
}

// consume consumes messages that have different IDs.
func (b *batch[T]) consume(round []int) {
	b.claimed, b.over = make(chan *member[T]), make(chan struct{})
	var runs sync.WaitGroup
	for _, i := range round {
		runs.Go(func() { b.guarded(i) })
	}
	var mine []*member[T]
	for range round {
		if m := <-b.claimed; m != nil {
			mine = append(mine, m)
		}
	}
	slices.SortFunc(mine, func(x, y *member[T]) int { return x.index - y.index })
	func() {
		defer runs.Wait()
		defer close(b.over) // also when handle panics
		b.callAll(calls(mine))
	}()
	b.passOn()
}

// guarded is the delivery of one message, in a goroutine whose panic is the caller's.
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

// passOn ends the caller as a message's goroutine has ended.
func (b *batch[T]) passOn() {
	switch {
	case b.value != nil:
		panic(b.value)
	case b.ended:
		runtime.Goexit()
	}
}

// one is the delivery of one message. Its run waits for the batch, and lets others to the store meanwhile.
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
		m = &member[T]{index: i, run: run}
		<-b.store
		b.claimed <- m
		<-b.over
		b.store <- struct{}{}
		return m.result, m.err
	})
	if m != nil && !m.called {
		d.Verdict = Busy
	}
	return d
}

// wait lets another message to the store while one waits for a run elsewhere.
func (b *batch[T]) wait() (done func()) {
	<-b.store
	return func() { b.store <- struct{}{} }
}

// calls divides members into those that share a call of the handler.
func calls[T any](members []*member[T]) (calls [][]*member[T]) {
	shared := false // the last of calls is open
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

// callAll makes the calls. A panic passes on behind the others.
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

// call calls the handler with those of members whose runs go on.
func (b *batch[T]) call(members []*member[T]) {
	together := &shared{Context: b.ctx}
	for _, m := range members {
		together.runs = append(together.runs, m.run)
	}
	ctx, cancel := context.WithCancelCause(together)
	defer cancel(nil)
	members = slices.DeleteFunc(members, func(m *member[T]) bool {
		if m.run.Err() != nil {
			m.err = fmt.Errorf("%w: %w", errNotHandled, context.Cause(m.run))
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

// shared is the context of a call for many messages: it is in none of their runs, which are all around it.
type shared struct {
	context.Context
	runs []context.Context
}

// Value implements context.Context.
func (s *shared) Value(key any) any {
	if key == core.ContextKey {
		return s
	}
	if _, ok := key.(name); ok { // whose consumer each run has
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

// Runs returns the contexts of the runs: see core.ContextKey.
func (s *shared) Runs() []context.Context { return s.runs }

// settleCall tells members what the handler has returned for each.
func settleCall[T any](members []*member[T], results []T, err error) {
	each := make([]error, len(members))
	if own, ok := err.(interface{ Unwrap() []error }); ok && len(own.Unwrap()) == len(members) {
		copy(each, own.Unwrap())
	} else if err != nil {
		each = slices.Repeat([]error{err}, len(members))
	}
	if len(results) != len(members) && slices.Contains(each, nil) {
		each = slices.Repeat([]error{fmt.Errorf("idem: the handler of %d messages returned %d results", len(members), len(results))}, len(members))
	}
	for n, m := range members {
		if m.err = each[n]; m.err == nil {
			m.result = results[n]
		}
	}
}
