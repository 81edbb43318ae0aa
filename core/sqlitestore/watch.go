package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/go-idem/idem/internal/record"
)

// pollInterval is how often a Store looks for commits of other processes while there are watches. A look that finds none reads a
// counter in shared memory.
const pollInterval = 50 * time.Millisecond

// Watch implements driver.Notifier. A claim that ends in this process wakes at once, and one that ends in another process after
// at most 50 ms and the time for a read. Watch returns no error. If the file cannot be read, a claim that ends in another process
// does not wake.
func (s *Store) Watch(_ context.Context, key [32]byte, wake func()) (stop func(), err error) {
	return s.watches.Watch(key, wake), nil
}

// poll looks for commits until ctx ends.
func (s *Store) poll(ctx context.Context) {
	ticks := time.NewTicker(s.pollInterval)
	defer ticks.Stop()
	var conn *sql.Conn // SQLite counts the commits that this connection has not made
	var seen int64
	for ctx.Err() == nil {
		if conn == nil {
			conn, _ = connect(ctx, s.reader)
		}
		if conn != nil {
			if now, err := s.look(conn, seen); err == nil {
				seen = now
			}
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
	if conn != nil {
		_ = conn.Close()
	}
}

// look notifies the watches of keys without a run in progress, if there were commits after those that seen counts. It returns how
// many there are now.
func (s *Store) look(conn *sql.Conn, seen int64) (now int64, err error) {
	if err := conn.QueryRowContext(background, "PRAGMA data_version").Scan(&now); now == seen || err != nil {
		return seen, err
	}
	for _, key := range s.watches.Keys() {
		r, err := load(conn, key)
		if err != nil {
			return seen, err
		}
		if r.State != record.Started {
			s.watches.Notify(key)
		}
	}
	return now, nil
}
