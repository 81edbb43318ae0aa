package simulation

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
)

// dispatchBatch delivers the message of d in a batch, with the other messages that the script names.
func (h *history) dispatchBatch(ctx context.Context, d *do) (satisfied bool) {
	all := []*do{d}
	for i := range 4 {
		if key := i*len(kinds) + 2; d.script.also&(1<<i) != 0 && key != d.key {
			all = append(all, h.newDo(d.name+"/"+strconv.Itoa(key), key, d.variant, d.script, d.process))
		}
	}
	messages := make([]consumer.Message, len(all))
	h.mu.Lock()
	for i, d := range all {
		messages[i] = d.message()
		d.isDeaf = true // a message waits for the others
	}
	h.mu.Unlock()
	ctx = context.WithValue(ctx, doKey{}, all)
	handle := func(ctx context.Context, m []consumer.Message) ([]string, error) { return h.handleBatch(ctx, all, m) }
	deliveries := consumer.Batch(ctx, d.process.consumer, messages, handle)
	for i := range deliveries {
		isSatisfied := h.checkDelivery(all[i], &deliveries[i])
		satisfied = isSatisfied && (i == 0 || satisfied)
	}
	return satisfied
}

// handleBatch is the handler of a batch. all has the dos of its messages.
func (h *history) handleBatch(ctx context.Context, all []*do, messages []consumer.Message) ([]string, error) {
	if _, isInRun := core.FromContext(ctx); isInRun || core.ChildKey(ctx, "charge") != "" {
		h.report("the handler of a batch is in no run", all[0])
	}
	results, failures := make([]string, len(messages)), make(eachError, len(messages))
	runs := make([]*run, len(messages))
	isCanceled := func() bool { return errors.Is(context.Cause(ctx), core.ErrLost) }
	for i, m := range messages {
		for _, d := range all {
			if d.record() == m.ID {
				runs[i] = h.started(d, d.script.inBatch(), h.fenceOf(d), isCanceled)
			}
		}
	}
	defer func() {
		for _, r := range runs {
			h.ended(r)
		}
	}()
	for i, r := range runs {
		results[i], failures[i] = h.performInBatch(ctx, all[0].script, r)
	}
	return results, failures
}

// eachError has an error for each message of a batch.
type eachError []error

func (e eachError) Error() string   { return errors.Join(e...).Error() }
func (e eachError) Unwrap() []error { return e }

// performInBatch does what the script says for one message of a batch. r is nil in a run without a claim.
func (h *history) performInBatch(ctx context.Context, s script, r *run) (string, error) {
	body := "no claim"
	if r != nil {
		s, body = r.script, r.body
	}
	timer := time.NewTimer(s.length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	switch s.inBatch().ending {
	case panics:
		panic(errHandler)
	case created:
		return body, nil
	}
	return "", errHandler
}

// inBatch is the script of a handler in a batch, which cannot decide, and has neither steps nor responses.
func (s script) inBatch() script {
	switch s.steps, s.nested = 0, -1; s.ending {
	case decidedRelease, decidedUnknown, streams, cutShort, later:
		s.ending = created
	case hangs, refused, failed, freed:
		s.ending = returnsError
	}
	return s
}

// fenceOf returns the fence of the claim under which a message of a batch runs, 0 for a run without a claim.
func (h *history) fenceOf(d *do) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.fence
}

// messageRecords returns the keys of messages by the names of their records, under each secret.
var messageRecords = sync.OnceValue(func() map[string]int {
	keys := map[string]int{}
	for key := range 4 * len(kinds) {
		for _, secret := range [][]byte{nil, earlierSecret, laterSecret} {
			probe := &probe{}
			engine, err := core.New(core.Config{Store: probe, Scope: core.SingleTenant, Secret: secret})
			if err != nil {
				panic(err)
			}
			d := &do{key: key}
			task := core.Task{Kind: consumer.Kind, Scope: d.message().Group, Key: d.message().ID}
			_, _ = engine.DoTask(context.Background(), task, nil)
			keys[string(driver.AppendRecordName(nil, probe.key))] = key
		}
	}
	return keys
})

// probe is a store that notes for which record it is called.
type probe struct {
	driver.Store
	key [32]byte
}

// Begin implements driver.Store.
func (p *probe) Begin(_ context.Context, c driver.Claim) (driver.Entry, error) {
	p.key = c.Key
	return driver.Entry{State: driver.InProgress}, nil
}
