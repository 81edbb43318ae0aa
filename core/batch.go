package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ConsumeBatch is [Consume] for many messages and one call of handle, which gets those that are to be handled, in order, and
// returns as many results. An error fails all of them. Messages with one ID are deliveries one after the other, in calls of
// their own. The context of handle ends when the claim of one of them is lost; it belongs to no run, so FromContext,
// ChildKey and Step do not know it. With Config.Wait a message that is in progress elsewhere holds up the others.
func ConsumeBatch[T any](ctx context.Context, e *Engine, messages []Message, handle func(context.Context, []Message) ([]T, error)) []Delivery[T] {
	deliveries := make([]Delivery[T], len(messages))
	for _, round := range rounds(messages) {
		b := &batch[T]{messages: messages, claimed: make(chan int), over: make(chan struct{}), err: errPanicked}
		b.consume(ctx, e, round, deliveries, handle)
	}
	return deliveries
}

// rounds puts the indices of messages into lists in which no ID is twice.
func rounds(messages []Message) (rounds [][]int) {
	type name struct{ group, id string }
	seen := map[name]int{}
	for i, m := range messages {
		n := name{m.Group, m.ID}
		if seen[n] == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[seen[n]] = append(rounds[seen[n]], i)
		seen[n]++
	}
	return rounds
}

var errPanicked = errors.New("idem: the handler of a batch panicked")

// batch is one call of a handler for many messages, each of which has a run of its own.
type batch[T any] struct {
	messages []Message
	claimed  chan int      // the index of a message whose run is here and waits, or -1 for one that needs none
	over     chan struct{} // closed when results and err are there
	results  map[int]T
	err      error
}

func (b *batch[T]) consume(ctx context.Context, e *Engine, round []int, deliveries []Delivery[T], handle func(context.Context, []Message) ([]T, error)) {
	together, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var runs sync.WaitGroup
	for _, i := range round {
		runs.Go(func() { deliveries[i] = b.one(ctx, e, i, cancel) })
	}
	var mine []int
	for range round {
		if i := <-b.claimed; i >= 0 {
			mine = append(mine, i)
		}
	}
	defer runs.Wait()
	defer close(b.over) // also when handle panics
	if len(mine) > 0 {
		slices.Sort(mine)
		b.handle(together, mine, handle)
	}
}

// one is the delivery of one message. Its run waits for the batch.
func (b *batch[T]) one(ctx context.Context, e *Engine, i int, cancel context.CancelCauseFunc) Delivery[T] {
	ran := false
	d := Consume(ctx, e, b.messages[i], func(run context.Context) (T, error) {
		ran = true
		unbind := context.AfterFunc(run, func() { cancel(context.Cause(run)) })
		defer unbind()
		b.claimed <- i
		<-b.over
		return b.results[i], b.err
	})
	if !ran {
		b.claimed <- -1
	}
	return d
}

func (b *batch[T]) handle(ctx context.Context, mine []int, handle func(context.Context, []Message) ([]T, error)) {
	messages := make([]Message, len(mine))
	for n, i := range mine {
		messages[n] = b.messages[i]
	}
	results, err := handle(ctx, messages)
	if err == nil && len(results) != len(mine) {
		err = fmt.Errorf("idem: the handler of %d messages returned %d results", len(mine), len(results))
	}
	if b.err = err; err != nil {
		return
	}
	b.results = make(map[int]T, len(mine))
	for n, i := range mine {
		b.results[i] = results[n]
	}
}
