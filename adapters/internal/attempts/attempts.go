// Package attempts is what clients of all protocols share: how long one operation is tried, and the form of its key.
package attempts

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Bounds are the bounds of the attempts of one operation. Transport of adapters/client says what the fields mean. End and Next
// expect that WithDefaults has filled the fields; only WithDefaults and Validate know that 0 stands for a default.
type Bounds struct {
	Attempts                     int
	MaxElapsed, Window, MaxPause time.Duration
	Pause                        func(attempt int) time.Duration
}

// minPause is the shortest pause before another attempt. It keeps a Pause that returns 0 from sending requests without any pause.
const minPause = 10 * time.Millisecond

// WithDefaults returns a copy of b in which every field has a value.
func (b Bounds) WithDefaults() Bounds {
	if b.Pause == nil {
		b.Pause = defaultPause
	}
	b.Attempts = cmp.Or(b.Attempts, 20)
	b.MaxElapsed = cmp.Or(b.MaxElapsed, time.Minute)
	b.Window = cmp.Or(b.Window, 24*time.Hour)
	b.MaxPause = cmp.Or(b.MaxPause, time.Minute)
	return b
}

// Validate calls refuse for each field that has an invalid value.
func (b *Bounds) Validate(refuse func(field string, value any, fix string)) {
	if b.Attempts < 0 {
		refuse("Attempts", b.Attempts, "give it 1 or more, or 0 for the default")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"MaxElapsed", b.MaxElapsed}, {"Window", b.Window}, {"MaxPause", b.MaxPause}} {
		if d.value < 0 {
			refuse(d.field, d.value, "give it a positive duration, or 0 for the default")
		}
	}
}

// End returns the time from which on no attempt begins.
func (b *Bounds) End(startedAt time.Time) time.Time {
	return startedAt.Add(min(b.MaxElapsed, b.Window))
}

// Next returns when the attempt after this one begins, or false if there is none. asked is the pause that the server asks for, or
// 0. The pause is longer than MaxPause only if the server asks for that, and then there is no further attempt.
func (b *Bounds) Next(ctx context.Context, attempt int, startedAt time.Time, asked time.Duration) (time.Time, bool) {
	if attempt >= b.Attempts {
		return time.Time{}, false
	}
	pause := max(min(max(b.Pause(attempt+1), minPause), b.MaxPause), asked)
	at := time.Now().Add(pause)
	return at, pause <= b.MaxPause && at.Before(b.End(startedAt)) && isBeforeDeadline(ctx, at)
}

// defaultPause is the default of Bounds.Pause: exponential backoff with jitter. The longest pause before attempt 2 is 100 ms, and
// it doubles up to 10 s. A pause has at least half of that; the rest is random, so that clients that failed together do not
// return together.
func defaultPause(attempt int) time.Duration {
	longest := min(100*time.Millisecond<<min(attempt-2, 10), 10*time.Second)
	return longest - rand.N(longest/2)
}

// isBeforeDeadline reports whether ctx is still alive at this time, as far as its deadline says. An attempt after the deadline
// could not be sent, so the caller gets the last response now and does not wait for nothing.
func isBeforeDeadline(ctx context.Context, at time.Time) bool {
	deadline, ok := ctx.Deadline()
	return !ok || at.Before(deadline)
}

// Wait waits until this time and returns nil. If ctx or given ends before, Wait returns why. given is the Cancel of an
// http.Request, by which an http.Client with a Timeout ends it; it may be nil.
func Wait(ctx context.Context, given <-chan struct{}, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-given:
		return context.Canceled
	}
}
