package sqlitestore

import (
	"strconv"
	"time"
)

// SetClock replaces the clock of the machine.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// SetPollInterval sets how often the store looks for commits of other processes.
func (s *Store) SetPollInterval(d time.Duration) { s.watches.interval = d }

// EndTransaction ends the transaction of the run that holds the lock, as SQLite does after some errors.
func (s *Store) EndTransaction() error { return s.holder.Load().tx.execute("ROLLBACK") }

// SetMaxPages bounds the file, as a full disk does.
func (s *Store) SetMaxPages(n int) error {
	_, err := s.writer.Exec("PRAGMA max_page_count = " + strconv.Itoa(n))
	return err
}
