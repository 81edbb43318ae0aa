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
	recent  *list.List // of *localRecord: in front what came last, or got another chance
}

type localRecord struct {
	key, fingerprint [32]byte
	outcome          []byte
	until            time.Time
	size             int
	asked            bool // for, since it was put in front

	replay *Response // of outcome, ready to be sent; nil before the first. Nobody changes what it leads to
	by     *Engine   // which made it: another may mark replays otherwise, or have other codecs
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
	if l == nil || left <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if element := l.records[c.Key]; element != nil {
		l.forget(element)
	}
	l.put(&localRecord{
		key: c.Key, fingerprint: c.Fingerprint, outcome: outcome, until: sent.Add(min(left, localLife)), size: localBytes + len(outcome),
	})
}

// prepared remembers what e replays of an outcome of c's record, if that one is remembered and there is room for both.
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
	size := localBytes + len(outcome) + preparedBytes(replay, len(e.cfg.Keep.Codecs) > 0)
	if size > l.limit || !bytes.Equal(r.outcome, outcome) { // or another has been learned meanwhile
		return
	}
	l.forget(element)
	r.replay, r.by, r.size = replay.shared(), e, size
	l.put(r)
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
	l.records[r.key] = l.recent.PushFront(r)
	l.bytes += r.size
}

// manyChances is how many records stay at most, when room is made, because somebody has asked for them.
const manyChances = 16

// makeRoom drops records, those first that have been there longest without being asked for; the caller holds mu.
func (l *local) makeRoom(size int) {
	now, chances := time.Now(), manyChances
	for l.bytes+size > l.limit {
		last := l.recent.Back()
		r := last.Value.(*localRecord)
		if !r.asked || chances == 0 || !now.Before(r.until) {
			l.forget(last)
			continue
		}
		r.asked = false
		chances--
		l.recent.MoveToFront(last)
	}
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
