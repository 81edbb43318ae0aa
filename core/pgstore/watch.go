package pgstore

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	minReconnectPause = 20 * time.Millisecond // before listening again; it doubles
	maxReconnectPause = 5 * time.Second
)

// listener hears for all who watch on a Store.
type listener struct {
	store        *Store
	idleTimeout  time.Duration // without a word for so long, the connection is asked whether it still stands
	replyTimeout time.Duration // what the connection has to be made, and for each of its answers

	mu           sync.Mutex
	subscription *subscription // nil while nobody watches
}

// subscription lasts from the first watcher to the last, and holds one connection. The listener's mu guards it.
type subscription struct {
	watchers  map[[32]byte]map[*watcher]bool
	cancel    context.CancelFunc
	listening bool // it listens
}

// watcher is one Watch.
type watcher struct {
	subscription *subscription
	key          [32]byte
	wake         func()
	ready        chan error // holds one value: the subscription stands, or why it does not
	confirmed    bool
}

// report answers Watch; only the first answer counts.
func (w *watcher) report(err error) {
	select {
	case w.ready <- err:
	default:
	}
}

// Watch implements driver.Notifier. All watchers of a Store share one connection of its pool, held from the first to the last.
// When it is lost, another is made, with growing pauses, and then all are woken, for what they may have missed. wake must
// be quick, and may still be called once while stop is.
func (s *Store) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	w := &watcher{key: key, wake: wake, ready: make(chan error, 1)}
	s.listener.add(w)
	stop = sync.OnceFunc(func() { s.listener.remove(w) })
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// add enters w, and begins a session for the first.
func (l *listener) add(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscription == nil {
		ctx, end := context.WithCancel(context.Background())
		l.subscription = &subscription{watchers: map[[32]byte]map[*watcher]bool{}, cancel: end}
		go l.run(ctx, l.subscription)
	}
	w.subscription = l.subscription
	of := w.subscription.watchers[w.key]
	if of == nil {
		of = map[*watcher]bool{}
		w.subscription.watchers[w.key] = of
	}
	of[w] = true
	if w.subscription.listening {
		w.confirmed = true
		w.report(nil)
	}
}

// remove takes w out, and ends the session with the last.
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

// run listens until the session ends.
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

// listen takes a connection and hears on it until it is lost or the session ends. It tells whether it stood.
func (l *listener) listen(ctx context.Context, s *subscription) (stood bool) {
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

// subscribe takes a connection that listens. A server that does not answer is an error, as one that refuses is.
func (l *listener) subscribe(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.replyTimeout)
	defer cancel()
	conn, err := l.store.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	channel := pgx.Identifier{l.store.schema + ".wake"}.Sanitize()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		l.release(conn)
		return nil, err
	}
	return conn, nil
}

// release gives a connection back that listens to nothing.
func (l *listener) release(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), l.replyTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, "UNLISTEN *"); err != nil {
		_ = conn.Conn().Close(ctx)
	}
	conn.Release()
}

// receive waits for one notification, or asks a quiet connection whether it stands.
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

// failPending tells those who wait for the subscription why it does not stand.
func (l *listener) failPending(s *subscription, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range s.watchers {
		for w := range of {
			w.report(err)
		}
	}
}

// markListening tells those who wait for the subscription, and wakes those who had one before.
func (l *listener) markListening(s *subscription) {
	l.mu.Lock()
	s.listening = true
	var woken []*watcher
	for _, of := range s.watchers {
		for w := range of {
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

func (l *listener) markDown(s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.listening = false
}

// dispatch wakes those whom n is for: all, when a handler of the pool's own took it from the connection.
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

func wakeAll(woken []*watcher) {
	for _, w := range woken {
		w.wake()
	}
}
