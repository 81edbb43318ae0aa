package dynamostore

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
	"github.com/go-idem/idem/internal/watch"
)

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Notifier      = (*Store)(nil)
	_ driver.Checkpointer  = (*Store)(nil)
	_ driver.Reopener      = (*Store)(nil)
	_ driver.Inspector     = (*Store)(nil)
	_ driver.OutcomeReader = (*Store)(nil)
)

// Store is a driver.Store in a table of DynamoDB. It has all optional abilities of package driver but sessions. It is safe for
// concurrent use. It runs a goroutine only while there are watches.
type Store struct {
	client       *dynamodb.Client
	table        string
	clock        clock
	sightings    sightings
	watches      watch.Set
	pollInterval time.Duration
	margin       time.Duration // the constant
	leaseMargin  time.Duration // how long a lease is over by the clock of DynamoDB before that alone counts
}

// New returns a store in a table, which must exist: see [CreateTable]. New does not call DynamoDB. The client says which Region,
// endpoint and credentials count, how often a request is sent again, and how long one may take. A process should have one Store
// of a table, because each one counts leases by itself.
func New(client *dynamodb.Client, table string) *Store {
	s := &Store{
		client: client, table: table, pollInterval: pollInterval, margin: margin, leaseMargin: margin,
		clock: clock{local: time.Now, wall: time.Now}, sightings: sightings{byKey: map[[32]byte]sighting{}},
	}
	s.watches.Poll = s.poll
	return s
}

// Begin implements driver.Store.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (entry driver.Entry, err error) {
	padded := s.padded(&c)
	err = s.change(ctx, newItem(c.Key), func(it *item, now int64) (hasChanged bool, err error) {
		found, isFinal, err := it.Reply(padded, now)
		if isFinal || err != nil {
			entry = s.unpadded(found, it, now)
			return false, err
		}
		if it.Claim(padded, now) {
			it.steps = nil
		}
		it.setLease(record.Microseconds(c.Lease), s.leaseEnd(&c, now))
		entry = it.Entry(c.Lease)
		return true, nil
	})
	if err != nil {
		return driver.Entry{}, err
	}
	return entry, nil
}

// padded returns the claim with the durations that are stored, which are longer.
func (s *Store) padded(c *driver.Claim) *driver.Claim {
	padded := *c
	padded.Lease, padded.Retention = c.Lease+s.margin, c.Retention+s.margin
	return &padded
}

// unpadded returns the result of a Begin that has changed nothing, with the durations that were requested.
func (s *Store) unpadded(entry driver.Entry, it *item, now int64) driver.Entry {
	switch {
	case entry.State == driver.Claimed: // a repeated Begin
		granted := time.Duration(it.leaseEnd-now)*time.Microsecond - s.leaseMargin
		entry.Remaining = min(entry.Remaining, granted)
	case entry.State == driver.Completed && entry.Remaining > 0:
		entry.Remaining = max(entry.Remaining-s.margin, time.Microsecond)
	}
	return entry
}

// leaseEnd returns when a lease that begins now is over in any case.
func (s *Store) leaseEnd(c *driver.Claim, now int64) int64 {
	return now + record.Microseconds(c.Lease) + record.Microseconds(s.leaseMargin)
}

// expires returns when a retention ends that begins now.
func (s *Store) expires(c *driver.Claim, now int64) int64 {
	return now + record.Microseconds(c.Retention) + record.Microseconds(s.margin)
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	current, err := s.update(ctx, extend(&c, now, s.expires(&c, now), record.Microseconds(c.Lease), s.leaseEnd(&c, now)))
	if current == nil || err != nil {
		return err
	}
	padded := s.padded(&c)
	return s.change(ctx, current, func(it *item, now int64) (hasChanged bool, err error) {
		if err := it.Extend(padded, now); err != nil {
			return false, err
		}
		it.setLease(record.Microseconds(c.Lease), s.leaseEnd(&c, now))
		return true, nil
	})
}

// Complete implements driver.Store. It returns [ErrTooLarge] if the outcome does not fit into an item.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	if len(outcome) > maxOutcome {
		return tooLarge("the outcome", len(outcome), maxOutcome, shortenOutcome)
	}
	expires, tombstone := s.expires(&c, now), int64(0)
	if c.LateRetry > 0 {
		tombstone = expires + record.Microseconds(c.LateRetry)
	}
	current, err := s.update(ctx, complete(&c, outcome, now, expires, tombstone))
	if current != nil && err == nil {
		padded := s.padded(&c)
		err = s.change(ctx, current, func(it *item, now int64) (hasChanged bool, err error) {
			if hasChanged, err = it.Complete(padded, outcome, now); hasChanged {
				it.steps = nil
			}
			return hasChanged, err
		})
	}
	return s.ended(c.Key, err)
}

// Fail implements driver.Store.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	current := newItem(c.Key)
	if c.Fence != 0 {
		current, err = s.update(ctx, fail(&c, f, now, s.expires(&c, now)))
	}
	if current != nil && err == nil {
		padded := s.padded(&c)
		err = s.change(ctx, current, func(it *item, now int64) (hasChanged bool, err error) {
			if hasChanged, err = it.Fail(padded, f, now); hasChanged && it.IsFree() {
				it.steps = nil
			}
			return hasChanged, err
		})
	}
	return s.ended(c.Key, err)
}

// ended notifies the requests that wait for a claim if err says that it has ended, and returns err.
func (s *Store) ended(name [32]byte, err error) error {
	if err == nil {
		s.sightings.remove(name)
		s.watches.Notify(name)
	}
	return err
}

// Reopen turns the COMPLETED record of a dead message into a FAILED one, so that the message can run again. core.Engine.Resolve
// calls it. Reopen returns driver.ErrLost if the record does not hold exactly this outcome.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	it, err := s.read(ctx, c.Key)
	if err != nil {
		return err
	}
	padded := s.padded(&c)
	err = s.change(ctx, it, func(it *item, now int64) (bool, error) { return it.Reopen(padded, outcome, now) })
	return s.ended(c.Key, err)
}

// change calls decide with an item and the time of DynamoDB, and writes the item if decide has changed it. If the item in the
// table is another one by then, change begins again with that one. decide may change the item and return driver.ErrLost.
//
// A write whose reply was lost may have taken effect. Then decide finds its own change, and returns the same result once more.
func (s *Store) change(ctx context.Context, it *item, decide func(it *item, now int64) (hasChanged bool, err error)) error {
	for {
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		s.judge(it, now, s.sightings.note)
		hasChanged, result := decide(it, now)
		if !hasChanged {
			return result
		}
		current, err := s.put(ctx, it)
		if err != nil {
			return err
		}
		if current == nil {
			return result
		}
		it = current
	}
}
