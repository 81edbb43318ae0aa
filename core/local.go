package core

import (
	"bytes"
	"container/list"
	"slices"
	"sync"
	"time"
)

// local remembers outcomes that the store keeps. COMPLETED is final, so what it says is what the store would say, but for
// records that somebody deletes.
type local struct {
	limit int // bytes

	mu      sync.Mutex
	bytes   int
	records map[[32]byte]*list.Element
	recent  *list.List // of *localRecord, the one that was learned last in front
}

type localRecord struct {
	key, fingerprint [32]byte
	outcome          []byte
	until            time.Time
	size             int
	asked            bool // for, since it was put in front: it gets a second chance

	replay *Response // of outcome, ready to be sent; nil before the first. Nobody changes what it leads to
	by     *Engine   // which made it: another may mark replays otherwise, or have other codecs
}

// localBytes is about what a record takes besides its outcome: it, its places in map and list, and the lines of its replay.
const localBytes = 600

// localLife is how long a record is believed to be there without asking.
const localLife = time.Minute

// newLocal returns nil, which remembers nothing, for no bytes.
func newLocal(limit int) *local {
	if limit <= 0 {
		return nil
	}
	return &local{limit: limit, records: map[[32]byte]*list.Element{}, recent: list.New()}
}

// find returns what a Begin of c would find, if it is remembered, and its replay, if e has made one.
func (l *local) find(c *Claim, e *Engine) (entry Entry, replay *Response, ok bool) {
	if l == nil {
		return entry, nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.records[c.Key]
	if element == nil {
		return entry, nil, false
	}
	r := element.Value.(*localRecord)
	if !time.Now().Before(r.until) {
		l.forget(element)
		return entry, nil, false
	}
	r.asked = true
	if r.fingerprint != c.Fingerprint {
		return Entry{State: Mismatch, Fingerprint: r.fingerprint}, nil, true
	}
	if r.by == e {
		replay = r.replay.shared()
	}
	return Entry{State: Completed, Outcome: r.outcome}, replay, true
}

// learn remembers that c's record is COMPLETED, and was for left more when sent.
func (l *local) learn(c *Claim, outcome []byte, sent time.Time, left time.Duration) {
	size := localBytes + len(outcome)
	if l == nil || left <= 0 || size > l.limit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if element := l.records[c.Key]; element != nil {
		l.forget(element)
	}
	r := &localRecord{key: c.Key, fingerprint: c.Fingerprint, outcome: outcome, until: sent.Add(min(left, localLife))}
	l.records[c.Key] = l.recent.PushFront(r)
	l.grow(r, size)
}

// prepared remembers what e replays of an outcome of c's record, if that one is remembered.
func (l *local) prepared(c *Claim, outcome []byte, e *Engine, replay *Response) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.records[c.Key]
	if element == nil {
		return
	}
	r := element.Value.(*localRecord)
	if !bytes.Equal(r.outcome, outcome) {
		return // another has been learned meanwhile
	}
	size := localBytes + len(r.outcome)
	if len(e.cfg.Keep.Codecs) > 0 { // else it shares the outcome's body
		size += len(replay.Body)
	}
	r.replay, r.by = replay.shared(), e
	l.grow(r, size-r.size)
}

// grow counts that r takes so many bytes more; the caller holds mu.
func (l *local) grow(r *localRecord, size int) {
	r.size += size
	for l.bytes += size; l.bytes > l.limit; {
		l.makeRoom()
	}
}

// makeRoom drops what nobody has asked for; the caller holds mu. Where all is asked for, the second turn drops.
func (l *local) makeRoom() {
	last := l.recent.Back()
	r := last.Value.(*localRecord)
	if !r.asked {
		l.forget(last)
		return
	}
	r.asked = false
	l.recent.MoveToFront(last)
}

// shared returns a copy of r whose lists can be appended to, and not changed otherwise, as r's can.
func (r *Response) shared() *Response {
	if r == nil {
		return nil
	}
	own := *r
	own.Header, own.Removed, own.Added = slices.Clip(r.Header), slices.Clip(r.Removed), slices.Clip(r.Added)
	return &own
}

// forget drops a record; the caller holds mu.
func (l *local) forget(element *list.Element) {
	r := l.recent.Remove(element).(*localRecord)
	delete(l.records, r.key)
	l.bytes -= r.size
}
