package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/metrics"
)

// The bounds of a monitor. Its slots together are the last ten minutes.
const (
	slotLength  = 10 * time.Second
	slotCount   = 60
	mostTracked = 10_000 // runs in progress that a monitor remembers, so that it needs a bounded memory
	mostShown   = 100    // runs in progress that the page shows
)

// results are the hooks whose calls the page draws, from the bottom of a bar to its top. package metrics has their names.
var results = []string{"kept", "replays", "failed", "conflicts", "mismatches", "unknown", "lost", "unprotected"}

// durationBounds are the upper bounds of the durations that the page draws; the last bar has all longer ones.
var durationBounds = []time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// Monitor listens to the hooks of engines, and remembers what runs in this process and how requests ended. It asks no store. It
// is safe for concurrent use. Several engines may share one. Its durations count ended runs by their index in durationBounds.
type Monitor struct {
	counters *metrics.Counters
	since    time.Time

	mu        sync.Mutex
	slots     [slotCount]slot // by the number of the slot, modulo slotCount
	running   map[runID]started
	durations [12]int
}

// slot counts results by their index, in one stretch of slotLength.
type slot struct {
	number int64 // since the epoch
	counts [8]int
}

// runID is a run. Its fence alone would be that of runs of other records, too.
type runID struct {
	record string
	fence  int64
}

// started is a run in progress.
type started struct {
	core.Event
	at time.Time
}

// NewMonitor returns a monitor that has seen nothing.
func NewMonitor() *Monitor {
	return &Monitor{counters: metrics.New(), since: time.Now(), running: map[runID]started{}}
}

// Hooks returns hooks that tell the monitor of a call and then call the same hook of next, if it is not nil.
func (m *Monitor) Hooks(next core.Hooks) core.Hooks {
	return metrics.Observe(m.counters.Hooks(next), m.observe)
}

// observe counts a call of a hook. Engines call it during requests, so it only takes the lock for a few writes to memory. A run
// that begins while mostTracked others are in progress is neither shown nor measured; its result is counted.
func (m *Monitor) observe(_ context.Context, name string, e core.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, now := runID{e.Record, e.Fence}, time.Now()
	switch name {
	case "runs":
		if len(m.running) < mostTracked {
			m.running[id] = started{e, now}
		}
	case "kept", "failed", "unknown", "lost":
		m.end(id, now)
	}
	if i := slices.Index(results, name); i >= 0 {
		m.slotAt(now).counts[i]++
	}
}

// end measures a run that has ended. A run that began untracked is not measured.
func (m *Monitor) end(id runID, now time.Time) {
	run, ok := m.running[id]
	if !ok {
		return
	}
	delete(m.running, id)
	i, _ := slices.BinarySearch(durationBounds, now.Sub(run.at))
	m.durations[i]++
}

// slotAt returns the slot of a time, which is empty if it was last used slotCount slots ago.
func (m *Monitor) slotAt(now time.Time) *slot {
	number := now.UnixNano() / int64(slotLength)
	s := &m.slots[number%slotCount]
	if s.number != number {
		*s = slot{number: number}
	}
	return s
}

// live is what the page shows of a process.
type live struct {
	Since       time.Time
	Results     []total
	StoreErrors int64
	Highest     int // calls in one slot
	Bars        []bar
	Durations   []bar
	Running     []running
	Hidden      int // runs in progress that are not in Running
}

// total is how often a hook was called since the monitor was made.
type total struct {
	Name  string
	Count int64
}

// running is a run in progress.
type running struct {
	core.Event
	For time.Duration
}

// bar is a rectangle of a picture that is 600 wide.
type bar struct {
	X, Y, Height int
	Class, Title string
}

// The heights of a picture: its bars stand on the base and are at most as high as the tallest.
const (
	base    = 120
	tallest = 100
)

// live returns what the page shows now. The longest runs come first, because those are the ones that may be stuck.
func (m *Monitor) live() *live {
	counts := m.counters.Counts()
	l := &live{Since: m.since, StoreErrors: counts["store_errors"]}
	for _, name := range results {
		l.Results = append(l.Results, total{name, counts[name]})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.drawResults(l, now)
	m.drawDurations(l)
	for _, run := range m.running {
		l.Running = append(l.Running, running{run.Event, now.Sub(run.at)})
	}
	slices.SortFunc(l.Running, func(a, b running) int { return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.Record, b.Record)) })
	if l.Hidden = max(0, len(l.Running)-mostShown); l.Hidden > 0 {
		l.Running = l.Running[:mostShown]
	}
	return l
}

// drawResults draws a stack of results for each slot, the present one at the right. The first pass finds the fullest slot, which
// has the full height. A result that occurred has a height of at least 1, so that a rare failure is seen beside many replays.
func (m *Monitor) drawResults(l *live, now time.Time) {
	last := now.UnixNano() / int64(slotLength)
	for _, s := range m.slots {
		if s.number > last-slotCount {
			l.Highest = max(l.Highest, sum(s.counts[:]))
		}
	}
	for _, s := range m.slots {
		if s.number <= last-slotCount {
			continue
		}
		below := 0
		for i, n := range s.counts {
			if n == 0 {
				continue
			}
			from, to := below*tallest/l.Highest, (below+n)*tallest/l.Highest
			l.Bars = append(l.Bars, bar{
				X: 10 * int(slotCount-1-last+s.number), Y: base - max(to, from+1), Height: max(to-from, 1), Class: results[i],
				Title: fmt.Sprintf("%d %s from %s", n, results[i], time.Unix(0, s.number*int64(slotLength)).UTC().Format("15:04:05")),
			})
			below += n
		}
	}
}

// drawDurations draws a bar for each range of durations, as high as its share of the fullest range.
func (m *Monitor) drawDurations(l *live) {
	highest := max(1, slices.Max(m.durations[:]))
	for i, n := range m.durations {
		label := "more"
		if i < len(durationBounds) {
			label = "≤ " + durationBounds[i].String()
		}
		height := 0
		if n > 0 {
			height = max(1, n*tallest/highest)
		}
		l.Durations = append(l.Durations, bar{
			X: 50*i + 3, Y: base - height, Height: height, Class: label, Title: fmt.Sprintf("%d runs", n),
		})
	}
}

// sum returns the sum of counts.
func sum(counts []int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}
