package pgstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The pause before a new connection doubles from the first value to the second one.
const (
	minReconnectPause = 20 * time.Millisecond
	maxReconnectPause = 5 * time.Second
)

// listener receives notifications for all watches of a Store.
type listener struct {
	store        *Store
	pool         *pgxpool.Pool
	idleTimeout  time.Duration // after so long without a notification the listener sends a ping
	replyTimeout time.Duration // for making the connection, and for each reply

	mu           sync.Mutex
	subscription *subscription // nil while there are no watches
}

// subscription lasts from the first watch to the last one, and holds one connection. The listener's mu guards it.
type subscription struct {
	watchers  map[[32]byte]map[*watcher]bool // by key; none is empty
	cancel    context.CancelFunc             // ends the subscription
	listening bool                           // the connection listens
}

// watcher is one call of Watch.
type watcher struct {
	subscription *subscription
	key          [32]byte
	wake         func()
	ready        chan error // has room for one: nil after the confirmation
	confirmed    bool       // a connection has listened since the call
}

// report gives the call of Watch its result. Only the first report counts.
func (w *watcher) report(err error) {
	select {
	case w.ready <- err:
	default:
	}
}

// errPooled refuses a subscription on a connection on which notifications may be lost.
var errPooled = fmt.Errorf("pgstore: Watch: the connection goes through a pooler, which loses notifications; "+
	"pass a pool of direct connections with pgstore.ListenOn: %w", errors.ErrUnsupported)

// Watch implements driver.Notifier with LISTEN. All watches of a Store share one connection of its pool, or of [ListenOn], which
// is in use as long as there are watches. If that connection goes through a pooler, Watch returns an error that wraps
// errors.ErrUnsupported, and the engine polls. If it breaks, a goroutine makes another one, after pauses that grow to 5 seconds,
// and then wakes all requests, because they may have missed a notification. wake must return quickly. It may be called once more
// while stop runs.
func (s *Store) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	w := &watcher{key: key, wake: wake, ready: make(chan error, 1)}
	s.listener.add(w)
	stop = sync.OnceFunc(func() { s.listener.remove(w) })
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// add adds w, and starts a subscription if there is none.
func (l *listener) add(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscription == nil {
		ctx, end := context.WithCancel(context.Background())
		l.subscription = &subscription{watchers: map[[32]byte]map[*watcher]bool{}, cancel: end}
		go l.run(ctx, l.subscription)
	}
	w.subscription = l.subscription
	watchers := w.subscription.watchers[w.key]
	if watchers == nil {
		watchers = map[*watcher]bool{}
		w.subscription.watchers[w.key] = watchers
	}
	watchers[w] = true
	if w.subscription.listening {
		w.confirmed = true
		w.report(nil)
	}
}

// remove removes w, and ends the subscription if w was its last watch.
func (l *listener) remove(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := w.subscription
	delete(s.watchers[w.key], w)
	if len(s.watchers[w.key]) == 0 {
		delete(s.watchers, w.key)
	}
	if len(s.watchers) == 0 {
		s.cancel()
		l.subscription = nil
	}
}

// run listens, on one connection after the other, until the subscription ends.
func (l *listener) run(ctx context.Context, s *subscription) {
	for pause := minReconnectPause; ; pause = min(2*pause, maxReconnectPause) {
		if l.listen(ctx, s) {
			pause = minReconnectPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// listen takes a connection and receives notifications until it breaks or the subscription ends. It reports whether the
// connection has listened.
func (l *listener) listen(ctx context.Context, s *subscription) (listened bool) {
	conn, err := l.subscribe(ctx)
	if err != nil {
		l.failPending(s, err)
		return false
	}
	defer l.release(conn)
	l.markListening(s)
	defer l.markDown(s)
	for err == nil {
		err = l.receive(ctx, s, conn.Conn())
	}
	return true
}

// subscribe takes a connection from the pool and sends LISTEN. It returns an error if that takes longer than replyTimeout. A
// connection through a pooler gets no LISTEN, because the notifications would reach other clients of the pooler.
func (l *listener) subscribe(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.replyTimeout)
	defer cancel()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	found, err := inspect(ctx, conn.Conn())
	if err == nil && !found.direct {
		err = errPooled
	}
	if err != nil {
		conn.Release()
		return nil, err
	}
	channel := pgx.Identifier{l.store.schema + ".wake"}.Sanitize()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		l.release(conn)
		return nil, err
	}
	return conn, nil
}

// release returns the connection to the pool. If the connection cannot stop to listen, it is closed.
func (l *listener) release(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), l.replyTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, "UNLISTEN *"); err != nil {
		_ = conn.Conn().Close(ctx)
	}
	conn.Release()
}

// receive waits for one notification. After idleTimeout without one it pings the server.
func (l *listener) receive(ctx context.Context, s *subscription, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, l.idleTimeout)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		l.dispatch(s, n)
		return nil
	case ctx.Err() != nil || waiting.Err() == nil:
		return err
	}
	asking, cancel := context.WithTimeout(ctx, l.replyTimeout)
	defer cancel()
	return conn.Ping(asking)
}

// failPending makes the calls of Watch that wait for a connection return err.
func (l *listener) failPending(s *subscription, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, watchers := range s.watchers {
		for w := range watchers {
			w.report(err)
		}
	}
}

// markListening makes pending calls of Watch return, and wakes the watches that an earlier connection has served.
func (l *listener) markListening(s *subscription) {
	l.mu.Lock()
	s.listening = true
	var woken []*watcher
	for _, watchers := range s.watchers {
		for w := range watchers {
			if w.confirmed {
				woken = append(woken, w)
			}
			w.confirmed = true
			w.report(nil)
		}
	}
	l.mu.Unlock()
	wakeAll(woken)
}

// markDown notes that the connection has broken: later watches wait for the next one.
func (l *listener) markDown(s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.listening = false
}

// dispatch wakes the watches of the key in n. n is nil if a notification handler of the pool's configuration has taken the
// notification; then dispatch wakes all watches.
func (l *listener) dispatch(s *subscription, n *pgconn.Notification) {
	if n == nil {
		l.markListening(s)
		return
	}
	var key [32]byte
	if len(n.Payload) == hex.EncodedLen(len(key)) {
		_, _ = hex.Decode(key[:], []byte(n.Payload))
	}
	l.mu.Lock()
	woken := slices.Collect(maps.Keys(s.watchers[key]))
	l.mu.Unlock()
	wakeAll(woken)
}

// wakeAll calls wake of each watcher. The caller does not hold the mutex, because wake may call the store.
func wakeAll(woken []*watcher) {
	for _, w := range woken {
		w.wake()
	}
}
