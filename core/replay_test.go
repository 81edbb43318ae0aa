package core_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

func remembers(bytes int) func(*core.Config) {
	return func(c *core.Config) { c.Keep.LocalReplays = bytes }
}

func TestLocalReplaysAskTheStoreOnce(t *testing.T) {
	f := newFixture(t, remembers(1<<20))
	f.answered(f.send(request("K", "B"), made), 201, "made")
	for range 3 {
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
	}
	assert.Equal(t, 1, f.store.Calls("begin"))

	another := newFixture(t, remembers(1<<20), func(c *core.Config) { c.Store = f.inner })
	another.replayed(another.send(request("K", "B"), made), 201, "made")
	f.replayed(f.with(func(c *core.Config) { c.Key.Required = true }).send(request("K", "B"), made), 201, "made")
	assert.Equal(t, 1, f.store.Calls("begin"), "an engine for a route knows what the first one does")
}

func TestLocalReplaysAreNotSharedBetweenStores(t *testing.T) {
	f := newFixture(t, remembers(1<<20))
	f.send(request("K", "B"), made)
	elsewhere := f.with(func(c *core.Config) { c.Store = scripted{Store: memstore.New()} })
	elsewhere.answered(elsewhere.send(request("K", "B"), made), 201, "made")
	elsewhere.with(func(c *core.Config) { c.Key.Required = true }) // a store that can not be compared
}

func TestLocalReplaysAreOffUnlessAskedFor(t *testing.T) {
	for _, bytes := range []int{0, -1} {
		f := newFixture(t, remembers(bytes))
		for range 3 {
			f.send(request("K", "B"), made)
		}
		assert.Equal(t, 3, f.store.Calls("begin"))
	}
}

func TestLocalReplaysEnd(t *testing.T) {
	inBubble(t, "after a minute, when the store is asked again", func(t *testing.T) {
		f := newFixture(t, remembers(1<<20))
		f.send(request("K", "B"), made)
		time.Sleep(time.Minute - time.Nanosecond)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		assert.Equal(t, 1, f.store.Calls("begin"))
		time.Sleep(time.Nanosecond)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		assert.Equal(t, 2, f.store.Calls("begin"), "and the answer is remembered anew")
	})
	inBubble(t, "with the retention", func(t *testing.T) {
		f := newFixture(t, remembers(1<<20), func(c *core.Config) { c.Keep.Retention = lease + time.Second })
		f.send(request("K", "B"), made)
		time.Sleep(lease)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		time.Sleep(time.Second)
		f.answered(f.send(request("K", "B"), made), 201, "made")
	})
	inBubble(t, "with what was left of the retention when they were learned", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Keep.Retention = lease + time.Second })
		f.send(request("K", "B"), made)
		time.Sleep(lease)
		later := f.with(remembers(1 << 20))
		later.replayed(later.send(request("K", "B"), made), 201, "made")
		time.Sleep(time.Second)
		later.answered(later.send(request("K", "B"), made), 201, "made")
	})
}

func TestLocalReplaysAreNeverOfWhatIsNotKept(t *testing.T) {
	f := newFixture(t, remembers(1<<20))
	f.send(request("K", "B"), answers(500, ""))
	f.answered(f.send(request("K", "B"), made), 201, "made")
	running := f.hold(ctx, request("K2", "B"), made)
	for range 3 {
		f.refused(f.send(request("K2", "B"), made), 409, "in-progress")
	}
	running.finish()
	f.replayed(f.send(request("K2", "B"), made), 201, "made")
}

// The outcome that the store has refused is that of a run that was taken over.
func TestALocalReplayIsNeverOfARunThatWasTakenOver(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, remembers(1<<20))
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, request("K", "B"), answers(200, "stale"))
		time.Sleep(lease)
		heir := f.with(func(c *core.Config) { c.Keep.LocalReplays = 0 })
		heir.answered(heir.send(request("K", "B"), answers(200, "heir")), 200, "heir")
		f.refused(running.finish(), 409, "claim-lost")
		f.replayed(f.send(request("K", "B"), made), 200, "heir")
		f.close()
	})
}

func TestLocalReplaysStayWithinTheirBytes(t *testing.T) {
	f := newFixture(t, remembers(11_000))
	long := answers(200, strings.Repeat("x", 2000))
	for i := range 100 {
		f.send(request(fmt.Sprint(i), "B"), long)
	}
	f.send(request("huge", "B"), answers(200, strings.Repeat("x", 20_000)))
	before := f.store.Calls("begin")
	for i := range 100 {
		f.replayed(f.send(request(fmt.Sprint(99-i), "B"), made), 200, strings.Repeat("x", 2000))
	}
	asked := f.store.Calls("begin") - before
	assert.Equal(t, 96, asked, "the last four fit")
}

func TestLocalReplaysThatAreAskedForStay(t *testing.T) {
	f := newFixture(t, remembers(11_000))
	long := answers(200, strings.Repeat("x", 2000))
	f.send(request("hot", "B"), long)
	for i := range 20 {
		f.send(request(fmt.Sprint(i), "B"), long)
		f.replayed(f.send(request("hot", "B"), made), 200, strings.Repeat("x", 2000))
	}
	assert.Equal(t, 21, f.store.Calls("begin"), "once for each")
	for i := range 8 {
		f.send(request(fmt.Sprint("more", i), "B"), long)
	}
	f.send(request("hot", "B"), made)
	assert.Equal(t, 30, f.store.Calls("begin"), "but not for ever")
}

func TestALocalReplayIsWhatTheStoreWouldGive(t *testing.T) {
	var log []string
	f := newFixture(t, remembers(1<<20), coded(&log))
	lines := []core.Field{line("Location", "/orders/7"), line("X-Rate", "1"), line("X-Rate", "2")}
	f.send(request("K", "B"), answers(201, "made", lines...))
	asking := f.with(remembers(0)).send(request("K", "B"), made)
	log = nil
	for range 3 {
		assert.Equal(t, asking, f.send(request("K", "B"), made))
	}
	assert.Equal(t, []string{"decode seal", "decode zip"}, log, "once")
	assert.Equal(t, 2, f.store.Calls("begin"))
	f.ran(1)
}

func TestLocalReplaysAreHeardAsOthersAre(t *testing.T) {
	var events []core.Event
	f := newFixture(t, remembers(1<<20), func(c *core.Config) {
		c.Hooks.Replay = func(_ context.Context, e core.Event) { events = append(events, e) }
	})
	f.send(request("K", "B"), made)
	f.with(remembers(0)).send(request("K", "B"), made)
	for range 3 {
		f.send(request("K", "B"), made)
	}
	assert.Equal(t, slices.Repeat(events[:1], 4), events)
	assert.Equal(t, 2, f.store.Calls("begin"))
}

func TestLocalReplaysAreMadeByEachEngineForItself(t *testing.T) {
	f := newFixture(t, remembers(1<<20), coded(new([]string)))
	f.send(request("K", "B"), made)
	for name, c := range map[string]struct {
		change func(*core.Config)
		want   func(*fixture, core.Result)
	}{
		"another marker": {func(c *core.Config) { c.Keep.Marker = "X-Again" }, func(f *fixture, r core.Result) {
			f.sends(r, 201, "made")
			assert.Equal(f.tb, []string{"true"}, values(r.Response, "X-Again"))
			assert.Empty(f.tb, values(r.Response, "Idempotent-Replayed"))
		}},
		"other codecs": {func(c *core.Config) { c.Keep.Codecs = nil }, func(f *fixture, r core.Result) {
			f.refused(r, 503, "record-unreadable")
		}},
		"the same": {func(*core.Config) {}, func(f *fixture, r core.Result) {
			f.replayed(r, 201, "made")
			assert.Equal(f.tb, []string{"true"}, values(r.Response, "Idempotent-Replayed"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			other := f.with(c.change)
			for range 2 {
				f.replayed(f.send(request("K", "B"), made), 201, "made")
				c.want(other, other.send(request("K", "B"), made))
			}
			assert.Equal(t, 1, f.store.Calls("begin"))
		})
	}
}

// An adapter of one's own may add to what it sends.
func TestWhatIsAddedToALocalReplayIsInNoOther(t *testing.T) {
	f := newFixture(t, remembers(1<<20), func(c *core.Config) { c.Keep.ExposeMarker = true })
	f.send(request("K", "B"), answers(201, "made", line("Location", "/orders/7")))
	want := f.with(remembers(0)).send(request("K", "B"), made)
	add := func(r *core.Response, text string) {
		r.Status = 500
		r.Header, r.Added, r.Removed = append(r.Header, line("X", text)), append(r.Added, line("X", text)), append(r.Removed, text)
		r.Body = append(r.Body, text...)
	}
	f.send(request("K", "B"), made)
	one, other := f.send(request("K", "B"), made).Response, f.send(request("K", "B"), made).Response
	add(one, "1")
	add(other, "2")
	for text, r := range map[string]*core.Response{"1": one, "2": other} {
		assert.Equal(t, line("X", text), r.Header[len(r.Header)-1])
		assert.Equal(t, line("X", text), r.Added[len(r.Added)-1])
		assert.Equal(t, "made"+text, string(r.Body))
	}
	assert.Equal(t, want, f.send(request("K", "B"), made))
	again := f.with(func(c *core.Config) { c.Keep.Marker = "X-Again" })
	again.sends(again.send(request("K", "B"), made), 201, "made")
}

// What is lost for a moment must not be lost for a minute.
func TestABlobIsFetchedForEachLocalReplay(t *testing.T) {
	s := newShelf()
	f := newFixture(t, remembers(1<<20), shelving(s))
	f.send(request("K", "B"), long)
	s.get = func(context.Context) error { return errTest }
	f.omitted(f.send(request("K", "B"), long))
	s.get = func(context.Context) error { return nil }
	for range 2 {
		f.replayed(f.send(request("K", "B"), long), 201, "whole")
	}
	assert.Equal(t, 1, f.store.Calls("begin"))
}

// squeezed is a codec that keeps a body of one letter as that.
type squeezed struct{ times int }

func (s squeezed) Encode(_ [32]byte, outcome []byte) []byte {
	return bytes.Replace(outcome, bytes.Repeat([]byte("x"), s.times), []byte("x"), 1)
}

func (s squeezed) Decode(_ [32]byte, kept []byte) ([]byte, error) {
	return bytes.Replace(kept, []byte("x"), bytes.Repeat([]byte("x"), s.times), 1), nil
}

func TestLocalReplaysStayWithinTheirBytesAlsoUnpacked(t *testing.T) {
	f := newFixture(t, remembers(11_000), func(c *core.Config) { c.Keep.Codecs = []driver.Codec{squeezed{2000}} })
	for i := range 10 {
		f.send(request(fmt.Sprint(i), "B"), answers(200, strings.Repeat("x", 2000)))
	}
	assert.Equal(t, 10, f.store.Calls("begin"))
	replay := func(i int) { f.replayed(f.send(request(fmt.Sprint(i), "B"), made), 200, strings.Repeat("x", 2000)) }
	replay(0)
	assert.Equal(t, 10, f.store.Calls("begin"), "ten fit as they are kept")
	for i := range 10 {
		replay(i)
	}
	before := f.store.Calls("begin")
	for i := range 10 {
		replay(9 - i)
	}
	assert.Equal(t, 6, f.store.Calls("begin")-before, "and the last four as they are replayed")
}

// Common header fields are short in an outcome, and not in a replay.
func TestLocalReplaysStayWithinTheirBytesAlsoWithManyFields(t *testing.T) {
	f := newFixture(t, remembers(11_000))
	h := answers(200, "", slices.Repeat([]core.Field{line("Content-Type", "application/json; charset=utf-8")}, 40)...)
	for i := range 10 {
		f.send(request(fmt.Sprint(i), "B"), h)
	}
	for i := range 10 {
		f.send(request(fmt.Sprint(i), "B"), h)
	}
	before := f.store.Calls("begin")
	for i := range 10 {
		f.send(request(fmt.Sprint(9-i), "B"), h)
	}
	assert.Equal(t, 7, f.store.Calls("begin")-before, "three replays of 40 fields fit")
}

func TestAReplayThatDoesNotFitIsMadeEachTimeAndDropsNothing(t *testing.T) {
	f := newFixture(t, remembers(5000), func(c *core.Config) { c.Keep.Codecs = []driver.Codec{squeezed{6000}} })
	f.send(request("short", "B"), made)
	f.send(request("long", "B"), answers(200, strings.Repeat("x", 6000)))
	for range 3 {
		f.replayed(f.send(request("long", "B"), made), 200, strings.Repeat("x", 6000))
		f.replayed(f.send(request("short", "B"), made), 201, "made")
	}
	assert.Equal(t, 2, f.store.Calls("begin"))
}

func TestWhatIsNewIsRememberedAlsoWhenAllElseWasAskedFor(t *testing.T) {
	f := newFixture(t, remembers(11_000))
	long := answers(200, strings.Repeat("x", 2000))
	for i := range 4 {
		f.send(request(fmt.Sprint(i), "B"), long)
	}
	for i := range 4 {
		f.send(request(fmt.Sprint(i), "B"), long)
	}
	f.send(request("new", "B"), long)
	before := f.store.Calls("begin")
	f.replayed(f.send(request("new", "B"), made), 200, strings.Repeat("x", 2000))
	assert.Equal(t, before, f.store.Calls("begin"))
}
