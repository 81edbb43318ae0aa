// Package testclock has a clock for the tests of packages that read the time from a function. It moves when a test says so. It
// needs only the standard library, so tests of every module of this repository can import it.
package testclock

import (
	"sync"
	"time"
)

// Clock is a clock that a test moves. Any number of goroutines may use it at once.
type Clock struct {
	mu   sync.Mutex
	now  time.Time
	step time.Duration
}

// New returns a clock that stands still at now until Advance moves it.
func New(now time.Time) *Clock { return &Clock{now: now} }

// Stepping returns a clock that also moves by step whenever it is read, so that no two readings are equal. The first reading is
// a step after now.
func Stepping(now time.Time, step time.Duration) *Clock { return &Clock{now: now, step: step} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(c.step)
	return c.now
}

// Advance moves the clock forward by d, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
