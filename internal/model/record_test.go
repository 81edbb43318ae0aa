package model

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// table is a store of records in a map, with a clock that the test moves.
type table struct {
	records map[[32]byte]*record.Record
	now     time.Duration
}

// of returns the record of a key, and the time.
func (t *table) of(c *driver.Claim) (*record.Record, int64) {
	if t.records[c.Key] == nil {
		t.records[c.Key] = &record.Record{Key: string(c.Key[:])}
	}
	return t.records[c.Key], t.now.Microseconds()
}

func (t *table) Begin(_ context.Context, c driver.Claim) (driver.Entry, error) {
	r, now := t.of(&c)
	if entry, isFinal, err := r.Reply(&c, now); isFinal {
		return entry, err
	}
	r.Claim(&c, now)
	return r.Entry(c.Lease), nil
}

func (t *table) Extend(_ context.Context, c driver.Claim) error {
	r, now := t.of(&c)
	return r.Extend(&c, now)
}

func (t *table) Complete(_ context.Context, c driver.Claim, outcome []byte) error {
	r, now := t.of(&c)
	_, err := r.Complete(&c, outcome, now)
	return err
}

func (t *table) Fail(_ context.Context, c driver.Claim, f driver.Failure) error {
	r, now := t.of(&c)
	_, err := r.Fail(&c, f, now)
	return err
}

func TestTheRecordAnswersAsTheModelDoesInEverySituation(t *testing.T) {
	t.Parallel()
	store := &table{records: map[[32]byte]*record.Record{}, now: Epoch}
	clocked := &Clocked{
		Store: store, Now: func() time.Duration { return store.now }, Advance: func(d time.Duration) { store.now += d },
	}
	for _, way := range oneLookEach(ways()) {
		require.NoError(t, clocked.play(0, way))
		clocked.Advance(10 * tick) // whatever there is expires
	}
}
