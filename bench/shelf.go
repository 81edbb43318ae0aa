package main

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// shelf is the guardian that keeps answers in the process: so many bytes of them, and each for a while. Two requests of one key
// do not meet: both run.
type shelf struct {
	limit int

	mu     sync.Mutex
	bytes  int
	kept   map[[32]byte]*list.Element
	recent list.List // of *shelved: in front what was asked for last
}

// shelved is an answer as it is replayed.
type shelved struct {
	key, request [32]byte
	answer       *held
	until        time.Time
	size         int
}

// shelfLife is how long an answer stays.
const shelfLife = time.Minute

func newShelf(limit int) *shelf { return &shelf{limit: limit, kept: map[[32]byte]*list.Element{}} }

func (s *shelf) begin(_ context.Context, key, method, path string, body []byte) (func(context.Context, *held) bool, *held) {
	name, request := sha256.Sum256([]byte(key)), requestHash(method, path, body)
	if found := s.find(name); found != nil {
		if found.request != request {
			return nil, &held{status: http.StatusUnprocessableEntity}
		}
		return nil, found.answer
	}
	return func(_ context.Context, h *held) bool {
		s.keep(name, request, h)
		return true
	}, nil
}

func (s *shelf) find(name [32]byte) *shelved {
	s.mu.Lock()
	defer s.mu.Unlock()
	element := s.kept[name]
	if element == nil {
		return nil
	}
	found := element.Value.(*shelved)
	if !time.Now().Before(found.until) {
		s.forget(element)
		return nil
	}
	s.recent.MoveToFront(element)
	return found
}

// keep keeps a copy of an answer, marked as a replay.
func (s *shelf) keep(name, request [32]byte, h *held) {
	own := &held{status: h.status, lines: append(slices.Clone(h.lines), marker, "true"), body: bytes.Clone(h.body)}
	size := len(strings.Join(own.lines, "")) + len(own.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.kept[name]; old != nil {
		s.forget(old)
	}
	for s.bytes+size > s.limit && s.recent.Len() > 0 {
		s.forget(s.recent.Back())
	}
	s.kept[name] = s.recent.PushFront(&shelved{name, request, own, time.Now().Add(shelfLife), size})
	s.bytes += size
}

// forget drops an answer; the caller holds mu.
func (s *shelf) forget(element *list.Element) {
	old := s.recent.Remove(element).(*shelved)
	delete(s.kept, old.key)
	s.bytes -= old.size
}
