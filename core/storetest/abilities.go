package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// watch watches a key. Each wake sends a value to the returned channel; stop ends the watch.
func (s *suite) watch(key [32]byte) (woken <-chan struct{}, stop func()) {
	s.Helper()
	wakes := make(chan struct{}, 100)
	stop, err := s.store.(driver.Notifier).Watch(context.Background(), key, func() { wakes <- struct{}{} })
	if err != nil {
		s.Fatalf("Watch returned the error %v, want none", err)
	}
	return wakes, stop
}

// subscribe sends the Begin of a rival of a running claim that will wait for its end. Only then must the store notify: it may
// save the notification of a claim for which nobody waits.
func (s *suite) subscribe(c driver.Claim) {
	s.Helper()
	waiter := rival(c)
	waiter.Subscribed = true
	s.wantState(s.begin(waiter), driver.InProgress)
}

// wantWake fails the test unless a wake comes within 10 seconds, which is far more than a busy machine needs.
func (s *suite) wantWake(woken <-chan struct{}) {
	s.Helper()
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		s.Fatalf("wake was not called within 10 seconds of %s, want one call", s.story.lastCall())
	}
}

// ends are the ways for a claim to end by a call of its owner. Each of them must notify.
var ends = []func(*suite, driver.Claim) error{
	func(s *suite, c driver.Claim) error { return s.complete(c, "kept") },
	func(s *suite, c driver.Claim) error { return s.fail(c, false) },
}

// notifying are the tests of a driver.Notifier. A lost wake delays a request; a wake that blocks or leaks stops a process.
var notifying = []test{
	// Without a notification a waiting request learns of the outcome only when it asks again. Two requests wait for the same
	// key, once for an outcome and once for a failure, and a third one does not wait. A store fails here if it keeps one waiter
	// for each key, notifies on Complete only, or asks the last request alone whether it waits.
	{"a waiting request is notified when the claim ends", func(s *suite) {
		for _, end := range ends {
			c := s.claimed(long)
			woken, stop := s.watch(c.Key)
			also, stopAlso := s.watch(c.Key)
			s.subscribe(c)
			s.wantState(s.begin(rival(c)), driver.InProgress)
			s.wantError(end(s, c), nil)
			s.wantWake(woken)
			s.wantWake(also)
			stop()
			stopAlso()
		}
	}},
	// A request waits for the end of whichever claim holds its key, not for that of the claim which it found. A store fails
	// here if a takeover discards the note that requests are subscribed.
	{"a waiting request is notified when the claim that took over ends", func(s *suite) {
		c := NewClaim(moment, longer)
		woken, stop := s.watch(c.Key) // before the claim, since a first watch may take as long as its lease
		defer stop()
		s.claim(&c)
		s.subscribe(c)
		s.advance(moment + overtime)
		heir := rival(c)
		heir.Lease = long
		s.claim(&heir)
		s.wantError(s.complete(heir, "kept"), nil)
		s.wantWake(woken)
	}},
	// The key is free at once when an operator forgets a claim that has vanished. A store fails here if Forget only deletes.
	{"a waiting request is notified when the claim that it waits for is forgotten", func(s *suite) {
		if _, ok := s.story.store.(driver.Inspector); !ok {
			s.Skip("the store is no Inspector")
		}
		c := NewClaim(moment, longer)
		woken, stop := s.watch(c.Key) // before the claim, since a first watch may take as long as its lease
		defer stop()
		s.claim(&c)
		s.subscribe(c)
		s.advance(moment + overtime)
		s.wantError(s.forget(s.look(c)), nil)
		s.wantWake(woken)
	}},
	// A stopped watch belongs to a request that is over. If it stayed registered, each waiting request would leave something
	// behind in the process. A store fails here if the stop of one watch ends those of other keys, or if a second stop
	// panics.
	{"a stopped watch is not notified, and others are", func(s *suite) {
		c, d := s.claimed(long), s.claimed(long)
		woken, stop := s.watch(c.Key)
		alone, leave := s.watch(d.Key)
		defer stop()
		s.subscribe(c)
		s.subscribe(d)
		leave()
		leave() // twice does no harm
		s.wantError(s.complete(d, "kept"), nil)
		s.wantError(s.complete(c, "kept"), nil)
		s.wantWake(woken)
		select {
		case <-alone:
			s.Fatalf("wake was called after stop had returned, want no call")
		default:
		}
	}},
	// The engine may call the store from wake. A store fails here, by a deadlock, if it calls wake with a lock that Begin
	// needs, or from the only goroutine that reads its connection.
	{"wake may call the store", func(s *suite) {
		c := s.claimed(long)
		returned := make(chan error, 100)
		wake := func() {
			_, err := s.store.Begin(context.Background(), rival(c))
			returned <- err
		}
		stop, err := s.store.(driver.Notifier).Watch(context.Background(), c.Key, wake)
		s.wantError(err, nil)
		defer stop()
		s.subscribe(c)
		go func() {
			if err := s.complete(c, "kept"); err != nil {
				returned <- err
			}
		}()
		select {
		case err := <-returned:
			s.wantError(err, nil)
		case <-time.After(10 * time.Second):
			s.Fatalf("no Begin that wake called has returned within 10 seconds of Complete, want one without an error")
		}
	}},
	// The engine gives up a Watch when its time is over. A store fails here if it returns another error, since the caller
	// could not tell it from a defect, or a stop function that panics.
	{"a Watch whose context has ended is an error, or a watch that can be stopped", func(s *suite) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		stop, err := s.store.(driver.Notifier).Watch(ctx, NewClaim(long, longer).Key, func() {})
		if err == nil { // a store whose watch needs nobody to answer
			stop()
		} else if !errors.Is(err, context.Canceled) {
			s.Fatalf("Watch with a context that has ended returned %v, want no error or %v", err, context.Canceled)
		}
	}},
}

// checkpoint stores the result of a step.
func (s *suite) checkpoint(c driver.Claim, step, result string) error {
	return s.store.(driver.Checkpointer).Checkpoint(context.Background(), c, step, []byte(result))
}

// wantSteps fails the test unless the run of c finds exactly these steps and results.
func (s *suite) wantSteps(c driver.Claim, want map[string]string) {
	s.Helper()
	steps, err := s.store.(driver.Checkpointer).Checkpoints(context.Background(), c)
	s.wantError(err, nil)
	got := map[string]string{}
	for step, result := range steps {
		got[step] = string(result)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("Checkpoints returned %q, want %q", got, want)
	}
}

// checkpointing are the tests of a driver.Checkpointer. A step whose result is lost runs twice, and a result that is found under
// another request or operation makes a run skip what it has never done.
var checkpointing = []test{
	// A stored step is skipped by the next run; a result that is lost lets its effect happen twice. Names and results are
	// arbitrary bytes, and the last result of a step counts. The vanished owner stores nothing after the takeover. A store
	// fails here if it ties the steps to the claim that stored them, or if a Fail deletes them.
	{"finished steps are returned to the run that takes over", func(s *suite) {
		c := s.claimed(moment)
		s.wantSteps(c, nil)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.checkpoint(c, "charge", "2"), nil)
		s.wantError(s.checkpoint(c, "notify \x00", "\x00\xff"), nil)
		s.wantError(s.checkpoint(c, "\x00", "3"), nil)
		s.advance(moment + overtime)
		heir := rival(c)
		heir.Lease = long
		s.claim(&heir)
		s.wantSteps(heir, map[string]string{"charge": "2", "notify \x00": "\x00\xff", "\x00": "3"})
		s.wantError(s.checkpoint(c, "charge", "late"), driver.ErrLost)
		s.wantError(s.fail(heir, false), nil)
		next := rival(heir)
		s.claim(&next)
		s.wantSteps(next, map[string]string{"charge": "2", "notify \x00": "\x00\xff", "\x00": "3"})
	}},
	// Only the holder of the claim may store results, and only while it runs. A store fails here if it writes steps without
	// the comparison of owner, fence and state that guards its other writes, for example because they are in a table of their
	// own.
	{"steps belong to a claim that runs", func(s *suite) {
		c := s.claimed(long)
		stale := c
		stale.Fence--
		s.wantError(s.checkpoint(stale, "charge", "1"), driver.ErrLost)
		s.wantError(s.checkpoint(rival(c), "charge", "1"), driver.ErrLost)
		s.wantError(s.checkpoint(NewClaim(long, longer), "charge", "1"), driver.ErrLost)
		s.wantError(s.complete(c, "kept"), nil)
		s.wantError(s.checkpoint(c, "charge", "1"), driver.ErrLost)
		_, err := s.store.(driver.Checkpointer).Checkpoints(context.Background(), c)
		s.wantError(err, driver.ErrLost)
	}},
	// As with Extend, ErrGone says that nothing protects the key any more. A store fails here if it writes or reads steps
	// without a look at the record.
	{"calls with steps say that an absent record is gone", func(s *suite) {
		c := NewClaim(long, longer)
		c.Fence = 1
		s.wantError(s.checkpoint(c, "charge", "1"), driver.ErrGone)
		_, err := s.store.(driver.Checkpointer).Checkpoints(context.Background(), c)
		s.wantError(err, driver.ErrGone)
	}},
	// A caller without a fence does not know that it may run. A store fails here if its comparison takes 0 for any fence.
	{"a claim without a fence neither stores nor reads steps", func(s *suite) {
		c := s.claimed(long)
		unknown := c
		unknown.Fence = 0
		s.wantError(s.checkpoint(unknown, "charge", "1"), driver.ErrLost)
		_, err := s.store.(driver.Checkpointer).Checkpoints(context.Background(), unknown)
		s.wantError(err, driver.ErrLost)
		s.wantSteps(c, nil)
	}},
	// Results belong to the input from which they were made. Another request that found them would skip steps that it has
	// never run. A store fails here if it finds steps by the key alone.
	{"another request under the key does not find the steps of the first", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.fail(c, true), nil)
		mended := other(c)
		s.claim(&mended)
		s.wantSteps(mended, nil)
		s.wantError(s.checkpoint(mended, "notify", "2"), nil)
		s.wantSteps(mended, map[string]string{"notify": "2"})
	}},
	// With Claim.Steps an Extend must renew the steps as well. A store fails here if the steps have an expiry of their own
	// that Extend leaves: a run after a crash would then repeat steps that are done.
	{"an extension keeps the steps alive", func(s *suite) {
		c := NewClaim(moment/2, moment)
		s.claim(&c)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		c.Retention, c.Steps = longer, true
		s.wantError(s.extend(c), nil)
		s.advance(moment + overtime)
		heir := rival(c)
		heir.Lease = long
		s.claim(&heir)
		s.wantSteps(heir, map[string]string{"charge": "1"})
	}},
	// When the outcome is over, the next run is another operation, which must not skip its steps. A store fails here if
	// Complete leaves the steps to an expiry that is later than that of the outcome.
	{"an outcome takes the place of the steps", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		c.Retention, c.Steps = short, true
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(overtime)
		next := rival(c)
		next.Retention = longer
		s.claim(&next)
		s.wantSteps(next, nil)
	}},
	// Both calls show that the run is alive, so both restart the retention, and the claim stays as it is. A store fails here if
	// it treats Checkpoints as a mere read: the record of a long run would expire during the run.
	{"Checkpoint and Checkpoints renew the retention", func(s *suite) {
		stored, read := NewClaim(moment/2, moment), NewClaim(moment/2, moment)
		s.claim(&stored)
		s.wantError(s.checkpoint(prolonged(stored), "charge", "1"), nil)
		s.claim(&read)
		s.wantSteps(prolonged(read), nil)
		s.advance(moment + overtime)
		for _, c := range []driver.Claim{stored, read} {
			s.wantState(s.begin(other(c)), driver.Mismatch)
			s.wantError(s.extend(c), nil)
		}
	}},
	// NoEffects of a later run does not undo the steps of an earlier run. A store fails here if each Fail with NoEffects
	// deletes the steps.
	{"steps stay when a run without effects follows one that may have had effects", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.fail(c, false), nil)
		next := rival(c)
		s.claim(&next)
		s.wantError(s.fail(next, true), nil)
		last := rival(c)
		s.claim(&last)
		s.wantSteps(last, map[string]string{"charge": "1"})
	}},
}
