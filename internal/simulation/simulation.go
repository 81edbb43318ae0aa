// Package simulation executes whole histories of several engines that share a store, in virtual time, and checks in each of them
// that the promises of package core hold. Clients retry, leave and wait. Handlers take up to 20 leases, panic, hang and stream.
// Calls to the store are lost, delayed and repeated. Processes die between two calls. Everything random comes from one seed.
package simulation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-idem/idem/core/memstore"
)

// execute executes a plan in a bubble of virtual time. wrap gives the store a mistake; nil leaves
// the store as it is. With verbose, the history tells its story.
func execute(t *testing.T, p *plan, wrap func(*memstore.Store) backend, verbose bool) *history {
	h := &history{plan: p, records: map[[32]byte]*record{}, keys: map[int]*keyHistory{}, blobs: map[string][]byte{}, hasMoved: map[int]bool{}, verbose: verbose}
	messageRecords() // outside of the bubble, which forbids to share what is made in it
	synctest.Test(t, func(*testing.T) {
		h.begin = time.Now()
		newStore := func() backend {
			if wrap != nil {
				return wrap(memstore.New())
			}
			return memstore.New()
		}
		h.store, h.newStore = newStore(), newStore()
		if p.failover.promoted > 0 {
			store := &replicated{backend: h.store, replica: newStore()}
			h.store = store
			h.calls.Go(func() { h.failOver(store) })
		}
		h.play()
	})
	return h
}

// play lets all clients act, waits until nothing goes on any more, and checks what is left.
func (h *history) play() {
	for i, s := range h.plan.slots {
		h.processes = append(h.processes, h.newProcess(i, s.option, "process "+string(rune('A'+i))))
	}
	h.startMoves()
	done := make(chan struct{})
	for i := range h.plan.clients {
		go func() {
			h.act(i, &h.plan.clients[i])
			done <- struct{}{}
		}()
	}
	for range h.plan.clients {
		<-done
	}
	for _, f := range h.plan.faults {
		time.Sleep(f.to - h.now())
	}
	time.Sleep(h.plan.failover.promoted - h.now())
	h.calls.Wait()
	time.Sleep(3*lease + lease/2) // late calls take up to two leases, and the claims that they get last another one
	h.settles()
	h.close()
	time.Sleep(watchHangs + lease) // the subscriptions that hang end here
}

// close waits for what goes on in the background.
func (h *history) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 12*lease)
	defer cancel()
	for _, p := range h.all {
		if err := p.engine.Close(ctx); err != nil {
			h.mu.Lock()
			h.broken("nothing hangs", "%s does not close: %v", p.name, err)
			h.mu.Unlock()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkEnd()
}
