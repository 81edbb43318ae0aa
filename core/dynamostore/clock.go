package dynamostore

import (
	"context"
	"errors"
	"sync"
	"time"
)

// margin is how much longer than requested retentions and tombstones are stored, and how long a lease is over by the clock of
// DynamoDB before that alone lets another run take over. See the documentation of the package.
const margin = time.Minute

// A process trusts what it knows of DynamoDB's clock for maxSampleAge after a response, and only while its own two clocks agree
// about the time since then, up to maxJump.
const (
	maxSampleAge = 10 * time.Minute
	maxJump      = time.Second
)

// errNoDate says that the clock of DynamoDB cannot be read.
var errNoDate = errors.New("dynamostore: the responses have no Date header field, so there is no clock for retentions: " +
	"use an endpoint of DynamoDB, or let the proxy in front of it pass the field")

// clock is the clock of DynamoDB, as the Date header fields of its responses show it. They have whole seconds. Each response
// bounds the time at which the clock was 0 from both sides, and the tightest bounds count.
type clock struct {
	local func() time.Time // the monotonic clock of this process
	wall  func() time.Time // the clock of the machine, only to see whether the machine was suspended

	mu                 sync.Mutex
	last, lastWall     time.Time // when the last response came, by both
	earliest, latest   time.Time // bounds of what DynamoDB's clock showed at last
	isKnown, isVirtual bool      // isVirtual: the local clock is taken for that of DynamoDB, in tests
}

// learn takes the Date header field of a response into account, with the local times of the request and of the response.
func (c *clock) learn(sent, received, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	earliest, latest := date, date.Add(time.Second).Add(received.Sub(sent))
	if c.isCurrent(received) {
		passed := received.Sub(c.last)
		earliest, latest = later(earliest, c.earliest.Add(passed)), earlier(latest, c.latest.Add(passed))
		if earliest.After(latest) { // the local clock is too fast or too slow: the new bounds count
			earliest, latest = date, date.Add(time.Second).Add(received.Sub(sent))
		}
	}
	c.last, c.lastWall, c.earliest, c.latest, c.isKnown = received, c.wall().Round(0), earliest, latest, true
}

// isCurrent reports whether the last response says what DynamoDB's clock shows at a local time.
func (c *clock) isCurrent(local time.Time) bool {
	monotonic, wall := local.Sub(c.last), c.wall().Round(0).Sub(c.lastWall)
	return c.isKnown && monotonic < maxSampleAge && (monotonic-wall).Abs() < maxJump
}

// read returns the time of DynamoDB, which may be later. It reports false if a response is needed to know it.
func (c *clock) read() (now time.Time, ok bool) {
	local := c.local()
	if c.isVirtual {
		return local, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.earliest.Add(local.Sub(c.last)), c.isCurrent(local)
}

// now returns the time of DynamoDB in µs. It calls DynamoDB if no response has shown its clock of late.
func (s *Store) now(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, ctx.Err()
	}
	now, ok := s.clock.read()
	if !ok {
		if err := s.probe(ctx); err != nil {
			return 0, err
		}
		if now, ok = s.clock.read(); !ok {
			return 0, errNoDate
		}
	}
	return now.UnixMicro(), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
