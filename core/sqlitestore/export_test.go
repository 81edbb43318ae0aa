package sqlitestore

import (
	"strconv"
	"time"
)

// SetClock replaces the clock of the machine.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// SetMaxPages bounds the file, as a full disk does.
func (s *Store) SetMaxPages(n int) error {
	_, err := s.writer.Exec("PRAGMA max_page_count = " + strconv.Itoa(n))
	return err
}
