package core_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
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

func TestLocalReplaysStayWithinTheirBytes(t *testing.T) {
	f := newFixture(t, remembers(10_000))
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
