package core

import (
	"container/list"
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
	recent  *list.List // of *localRecord, the one that was used last in front
}

type localRecord struct {
	key, fingerprint [32]byte
	outcome          []byte
	until            time.Time
}

// localBytes is about what a record takes besides its outcome.
const localBytes = 300

// localLife is how long a record is believed to be there without asking.
const localLife = time.Minute

// newLocal returns nil, which remembers nothing, for no bytes.
func newLocal(limit int) *local {
	if limit <= 0 {
		return nil
	}
	return &local{limit: limit, records: map[[32]byte]*list.Element{}, recent: list.New()}
}

// find returns what a Begin of c would find, if it is remembered.
func (l *local) find(c *Claim) (entry Entry, ok bool) {
	if l == nil {
		return entry, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.records[c.Key]
	if element == nil {
		return entry, false
	}
	r := element.Value.(*localRecord)
	if !time.Now().Before(r.until) {
		l.forget(element)
		return entry, false
	}
	l.recent.MoveToFront(element)
	if r.fingerprint != c.Fingerprint {
		return Entry{State: Mismatch, Fingerprint: r.fingerprint}, true
	}
	return Entry{State: Completed, Outcome: r.outcome}, true
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
	l.records[c.Key] = l.recent.PushFront(&localRecord{c.Key, c.Fingerprint, outcome, sent.Add(min(left, localLife))})
	for l.bytes += size; l.bytes > l.limit; {
		l.forget(l.recent.Back())
	}
}

// forget drops a record; the caller holds mu.
func (l *local) forget(element *list.Element) {
	r := l.recent.Remove(element).(*localRecord)
	delete(l.records, r.key)
	l.bytes -= localBytes + len(r.outcome)
}
