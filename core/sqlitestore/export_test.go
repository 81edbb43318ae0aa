package sqlitestore

import "time"

// SetClock replaces the clock of the machine.
func (s *Store) SetClock(now func() time.Time) { s.now = now }
