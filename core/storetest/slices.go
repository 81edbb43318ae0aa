package storetest

import (
	"context"
	"maps"

	"github.com/go-idem/idem/core/driver"
)

// copying are the tests that nobody sees the changes of a slice that belongs to somebody else. A store that sends its data to
// a server passes them by itself; one in memory, or with a buffer or cache, may not.
var copying = []test{
	// The caller may use its buffer again after a call without an error. A store in memory fails here if it keeps the slice
	// itself: the next response would then overwrite a stored one.
	{"the caller may change an outcome after Complete", func(s *suite) {
		c := s.claimed(long)
		outcome := []byte("kept")
		s.wantError(s.store.Complete(context.Background(), c, outcome), nil)
		copy(outcome, "lost")
		s.wantOutcome(c, "kept")
	}},
	// Replays share the bytes that Begin returned. A store fails here if it returns a part of a read buffer that a later call
	// uses again: a client would then get the response to somebody else.
	{"an outcome that Begin returned does not change", func(s *suite) {
		first, second := s.claimed(long), s.claimed(long)
		s.wantError(s.complete(first, "first"), nil)
		s.wantError(s.complete(second, "other"), nil)
		entry := s.begin(rival(first))
		s.wantState(entry, driver.Completed)
		s.wantOutcome(second, "other")
		if string(entry.Outcome) != "first" {
			s.Fatalf("the outcome that Begin returned has changed from %q to %q during a later Begin", "first", entry.Outcome)
		}
	}},
}

// copyingSteps are the same tests for the results of steps.
var copyingSteps = []test{
	// The same holds for the result of a step: the store copies what it keeps.
	{"the caller may change a result after Checkpoint", func(s *suite) {
		c := s.claimed(long)
		result := []byte("1")
		s.wantError(s.store.(driver.Checkpointer).Checkpoint(context.Background(), c, "charge", result), nil)
		result[0] = '2'
		s.wantSteps(c, map[string]string{"charge": "1"})
	}},
	// The map, unlike the results in it, belongs to the caller. A store in memory fails here if it returns its own map: a
	// change by one run would change the steps of every later run.
	{"the map that Checkpoints returns belongs to the caller", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		delete(s.checkpoints(c), "charge")
		s.wantSteps(c, map[string]string{"charge": "1"})
		s.checkpoints(c)["notify"] = []byte("2")
		s.wantSteps(c, map[string]string{"charge": "1"})
	}},
	// A run reads its steps once and stores more of them. A store in memory fails here if a later Checkpoint writes into the
	// map, or into the bytes, that it has returned before.
	{"what Checkpoints returned does not change with a later Checkpoint", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		before := s.checkpoints(c)
		s.wantError(s.checkpoint(c, "charge", "2"), nil)
		s.wantError(s.checkpoint(c, "notify", "3"), nil)
		if len(before) != 1 || string(before["charge"]) != "1" {
			s.Fatalf("the map that Checkpoints returned has changed to %q during a later Checkpoint", before)
		}
		if after := s.checkpoints(c); !maps.EqualFunc(after, map[string]string{"charge": "2", "notify": "3"}, sameText) {
			s.Fatalf("Checkpoints returned %q, want charge 2 and notify 3", after)
		}
	}},
}

// sameText compares a result with its text.
func sameText(a []byte, b string) bool { return string(a) == b }

// checkpoints returns the steps of c, as the store returns them.
func (s *suite) checkpoints(c driver.Claim) map[string][]byte {
	s.Helper()
	steps, err := s.store.(driver.Checkpointer).Checkpoints(context.Background(), c)
	s.wantError(err, nil)
	return steps
}
