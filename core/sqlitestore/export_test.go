package sqlitestore

import (
	"database/sql"
	"strconv"
	"time"
)

// SetClock replaces the clock of the machine.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// SetPollInterval sets how often the store looks for commits of other processes.
func (s *Store) SetPollInterval(d time.Duration) { s.pollInterval = d }

// Settings returns PRAGMA synchronous and foreign_keys of the connections that write.
func (s *Store) Settings() (all [][2]int, err error) {
	for _, pool := range []*sql.DB{s.writer, s.application} {
		var found [2]int
		row := pool.QueryRow("SELECT synchronous, foreign_keys FROM pragma_synchronous, pragma_foreign_keys")
		if err := row.Scan(&found[0], &found[1]); err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// EndTransaction ends the transaction of the run that holds the lock, as SQLite does after some errors.
func (s *Store) EndTransaction() error { return s.holder.Load().tx.execute("ROLLBACK") }

// SetMaxPages bounds the file, as a full disk does.
func (s *Store) SetMaxPages(n int) error {
	_, err := s.writer.Exec("PRAGMA max_page_count = " + strconv.Itoa(n))
	return err
}
