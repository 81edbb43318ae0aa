package faults_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// effect is one run of a handler as the world outside sees it.
type effect struct {
	Key      string
	Fence    int64
	Attempt  int
	Takeover bool
	Start    time.Time
	End      time.Time // zero while it runs, and for ever when its process was killed
	Body     string    // what the run answered
}

// ledger is where effects are written down, beside the store and out of its reach: one file, to which every process of a test
// appends two lines an effect.
type ledger struct {
	path string
	mu   sync.Mutex
}

func newLedger(tb testing.TB) *ledger { return &ledger{path: filepath.Join(tb.TempDir(), "effects")} }

func (l *ledger) write(e effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// effects returns what was written, by key, in the order of their starts.
func (l *ledger) effects(tb testing.TB) map[string][]effect {
	tb.Helper()
	found := map[string][]effect{}
	f, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return found
	}
	require.NoError(tb, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e effect
		require.NoError(tb, json.Unmarshal(lines.Bytes(), &e))
		i := slices.IndexFunc(found[e.Key], func(other effect) bool { return other.Fence == e.Fence && other.Start.Equal(e.Start) })
		if i < 0 {
			found[e.Key] = append(found[e.Key], e)
		} else {
			found[e.Key][i].End = e.End
		}
	}
	for _, effects := range found {
		slices.SortFunc(effects, func(a, b effect) int { return a.Start.Compare(b.Start) })
	}
	return found
}

// count is how often the handler ran for a key.
func (l *ledger) count(tb testing.TB, key string) int {
	tb.Helper()
	return len(l.effects(tb)[key])
}

// promises checks, for every key, that every run had a claim, that runs overlap only when the lease of the earlier one had time
// to end, that fences grow, that every replay repeats an answer of a run of this key, that all replays are alike to the byte,
// and that nothing ran after an answer was known. forgets is for stores that have lost what they had acknowledged: then a key may run, and be answered, anew.
func (s *service) promises(forgets bool) {
	s.tb.Helper()
	for key, effects := range s.ledger.effects(s.tb) {
		for _, e := range effects {
			assert.Positive(s.tb, e.Fence, "%s: ran without a claim", key)
		}
		for i := 1; i < len(effects); i++ {
			before, e := effects[i-1], effects[i]
			overlap := before.End.IsZero() || e.Start.Before(before.End)
			assert.Greater(s.tb, e.Fence, before.Fence, "%s: the fence went back", key)
			if overlap && !forgets {
				assert.GreaterOrEqual(s.tb, e.Start.Sub(before.Start), s.lease, "%s: two runs under a living lease", key)
			}
		}
		s.answersMatch(key, effects, forgets)
	}
}

func (s *service) answersMatch(key string, effects []effect, forgets bool) {
	s.tb.Helper()
	var kept *answer
	for _, a := range s.answersTo(key) {
		if a.status != 201 {
			continue
		}
		assert.True(s.tb, slices.ContainsFunc(effects, func(e effect) bool { return e.Body == a.body }), "%s: %q is no run's answer", key, a.body)
		if forgets {
			continue
		}
		if kept == nil {
			kept = &a
		}
		assert.Equal(s.tb, kept.body, a.body, "%s: two answers", key)
		assert.Equal(s.tb, kept.header, a.header, "%s: two headers", key)
		for _, e := range effects {
			assert.False(s.tb, e.Start.After(a.at), "%s: ran again after its answer was known", key)
		}
	}
}
