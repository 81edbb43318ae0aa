package sqlitestore

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"
)

// pollInterval is how often a Store looks for commits of other processes while there are watches. A look that finds none reads a
// counter in shared memory.
const pollInterval = 50 * time.Millisecond

// watches are the watches of a Store. While there are any, a goroutine looks for commits of other processes.
type watches struct {
	store    *Store
	interval time.Duration // pollInterval

	mu     sync.Mutex
	byKey  map[[32]byte]map[*func()]bool // none is empty
	cancel context.CancelFunc            // ends the goroutine
}

// Watch implements driver.Notifier. A claim that ends in this process wakes at once, and one that ends in another process after
// at most 50 ms and the time for a read. Watch returns no error. If the file cannot be read, a claim that ends in another process
// does not wake.
func (s *Store) Watch(_ context.Context, key [32]byte, wake func()) (stop func(), err error) {
	s.watches.add(key, &wake)
	return sync.OnceFunc(func() { s.watches.remove(key, &wake) }), nil
}

// add adds a watch, and starts the goroutine if it is the first.
func (w *watches) add(key [32]byte, wake *func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byKey) == 0 {
		w.byKey = map[[32]byte]map[*func()]bool{}
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(context.Background())
		go w.poll(ctx)
	}
	if w.byKey[key] == nil {
		w.byKey[key] = map[*func()]bool{}
	}
	w.byKey[key][wake] = true
}

// remove removes a watch, and ends the goroutine if it was the last.
func (w *watches) remove(key [32]byte, wake *func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey[key], wake)
	if len(w.byKey[key]) == 0 {
		delete(w.byKey, key)
	}
	if len(w.byKey) == 0 {
		w.cancel()
	}
}

// notify wakes the watches of a key. Each wake runs in its own goroutine, because the caller holds the write lock of the file.
func (w *watches) notify(key [32]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wake := range w.byKey[key] {
		go (*wake)()
	}
}

// keys returns the keys that are watched.
func (w *watches) keys() [][32]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.byKey))
}

// poll looks for commits until ctx ends.
func (w *watches) poll(ctx context.Context) {
	ticks := time.NewTicker(w.interval)
	defer ticks.Stop()
	var conn *sql.Conn // SQLite counts the commits that this connection has not made
	var seen int64
	for ctx.Err() == nil {
		if conn == nil {
			conn, _ = connect(ctx, w.store.reader)
		}
		if conn != nil {
			if now, err := w.look(conn, seen); err == nil {
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
func (w *watches) look(conn *sql.Conn, seen int64) (now int64, err error) {
	if err := conn.QueryRowContext(background, "PRAGMA data_version").Scan(&now); now == seen || err != nil {
		return seen, err
	}
	for _, key := range w.keys() {
		r, err := load(conn, key)
		if err != nil {
			return seen, err
		}
		if r.state != started {
			w.notify(key)
		}
	}
	return now, nil
}
