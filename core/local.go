package core

import (
	"bytes"
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// local remembers outcomes that the store keeps. COMPLETED is final, so what it says is what the store would say, but for
// records that somebody deletes.
type local struct {
	limit int // bytes

	mu      sync.RWMutex
	bytes   int
	records map[[32]byte]*localRecord
	recent  *list.List // of *localRecord: in front what came last, or got another chance
}

// localRecord is not changed, but for asked, once it is in the table.
type localRecord struct {
	key, fingerprint [32]byte
	outcome          []byte
	until            time.Time
	size             int
	place            *list.Element // in recent
	asked            atomic.Bool   // for, since it was put in front

	by     *Engine  // which has made a replay of outcome: another may mark replays otherwise, or have other codecs. nil: none
	replay Response // ready to be sent. Its lists can be appended to
}

// localBytes is about what a record takes besides its outcome and the lines of its replay: these two, and its places in map and
// list.
const localBytes = 450

// localLife is how long a record is believed to be there without asking.
const localLife = time.Minute

// newLocal returns nil, which remembers nothing, for no bytes.
func newLocal(limit int) *local {
	if limit <= 0 {
		return nil
	}
	return &local{limit: limit, records: map[[32]byte]*localRecord{}, recent: list.New()}
}

// find returns the record of a key, nil when it is not remembered.
func (l *local) find(key *[32]byte) *localRecord {
	if l == nil {
		return nil
	}
	l.mu.RLock()
	r := l.records[*key]
	l.mu.RUnlock()
	if r == nil {
		return nil
	}
	if time.Until(r.until) <= 0 {
		l.end(r)
		return nil
	}
	if !r.asked.Load() { // a write each time would keep the other cores waiting for r
		r.asked.Store(true)
	}
	return r
}

// entry is what a Begin of op's claim would find. op gets the replay that its engine has made.
func (r *localRecord) entry(op *operation) driver.Entry {
	if r.fingerprint != op.claim.Fingerprint {
		return driver.Entry{State: driver.Mismatch, Fingerprint: r.fingerprint}
	}
	if r.by == op.engine {
		replay := r.replay
		op.ready = &replay
	}
	return driver.Entry{State: driver.Completed, Outcome: r.outcome}
}

// end drops a record whose time is over, unless that has been done meanwhile.
func (l *local) end(r *localRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records[r.key] == r {
		l.forget(r)
	}
}

// learn remembers that c's record is COMPLETED, and was for left more when sent.
func (l *local) learn(c *driver.Claim, outcome []byte, sent time.Time, left time.Duration) {
	if l == nil || left <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[c.Key]; r != nil {
		l.forget(r)
	}
	l.put(&localRecord{
		key: c.Key, fingerprint: c.Fingerprint, outcome: outcome, until: sent.Add(min(left, localLife)), size: localBytes + len(outcome),
	})
}

// prepared remembers what e replays of an outcome of c's record, if that one is remembered and there is room for both.
func (l *local) prepared(c *driver.Claim, outcome []byte, e *Engine, replay *Response) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[c.Key]
	if r == nil {
		return
	}
	size := localBytes + len(outcome) + preparedBytes(replay, len(e.cfg.Keep.Codecs) > 0)
	if size > l.limit || !bytes.Equal(r.outcome, outcome) { // or another has been learned meanwhile
		return
	}
	l.forget(r)
	l.put(&localRecord{
		key: r.key, fingerprint: r.fingerprint, outcome: r.outcome, until: r.until, size: size, by: e, replay: replay.clipped(),
	})
}

// fieldBytes is what a Field takes besides its texts.
const fieldBytes = 32

// preparedBytes is about what a replay takes besides the outcome, which its body is part of unless that was coded.
func preparedBytes(replay *Response, isCoded bool) (size int) {
	texts := 0
	for _, f := range replay.Header {
		size += fieldBytes
		texts += len(f.Name) + len(f.Value)
	}
	if isCoded {
		return size + texts + texts + len(replay.Body)
	}
	return size + texts
}

// put takes r in, if there can be room for it; the caller holds mu.
func (l *local) put(r *localRecord) {
	if r.size > l.limit {
		return
	}
	l.makeRoom(r.size)
	l.records[r.key], r.place = r, l.recent.PushFront(r)
	l.bytes += r.size
}

// manyChances is how many records stay at most, when room is made, because somebody has asked for them.
const manyChances = 16

// makeRoom drops records, those first that have been there longest without being asked for; the caller holds mu.
func (l *local) makeRoom(size int) {
	now, chances := time.Now(), manyChances
	for l.bytes+size > l.limit {
		r := l.recent.Back().Value.(*localRecord)
		if !r.asked.Load() || chances == 0 || !now.Before(r.until) {
			l.forget(r)
			continue
		}
		r.asked.Store(false)
		chances--
		l.recent.MoveToFront(r.place)
	}
}

// clipped returns a copy of r whose lists can be appended to, and not changed otherwise, as r's can.
func (r *Response) clipped() Response {
	own := *r
	own.Header, own.Removed, own.Added = slices.Clip(r.Header), slices.Clip(r.Removed), slices.Clip(r.Added)
	return own
}

// forget drops a record; the caller holds mu.
func (l *local) forget(r *localRecord) {
	l.recent.Remove(r.place)
	delete(l.records, r.key)
	l.bytes -= r.size
}

// forgetKey drops the record of a key, if it is remembered.
func (l *local) forgetKey(key *[32]byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[*key]; r != nil {
		l.forget(r)
	}
}
