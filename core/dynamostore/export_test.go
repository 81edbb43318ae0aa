package dynamostore

import "time"

// SetClock replaces all clocks by one. leaseMargin is how long a lease is over by that clock before that alone counts.
func (s *Store) SetClock(now func() time.Time, leaseMargin time.Duration) {
	s.clock.local, s.clock.isVirtual = now, true
	s.margin, s.leaseMargin = 0, leaseMargin
}

// SetLocalClocks replaces the clocks of this process, and not that of DynamoDB.
func (s *Store) SetLocalClocks(monotonic, wall func() time.Time) {
	s.clock.local, s.clock.wall = monotonic, wall
}

// SetPollInterval sets how often the store reads records that requests wait for.
func (s *Store) SetPollInterval(d time.Duration) { s.pollInterval = d }

// The limits of an item.
const (
	MaxOutcome = maxOutcome
	MaxItem    = maxItem
)
