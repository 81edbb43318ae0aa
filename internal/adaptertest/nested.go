package adaptertest

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
)

// FRM-06: the engine of a route, which only demands a key in addition, is behind the one of all routes. It must not take the
// claim of that one for a request in progress: the handler runs once, and the retry is a replay. Both read the body, as a Scope may.
func TestAMiddlewareOnARouteDoesNotConflictWithOneOnAll(t *testing.T, f Framework) {
	if f.Nest == nil {
		return
	}
	var runs atomic.Int64
	outer := NewEngine(t).With(func(c *core.Config) {
		c.Scope = func(_ context.Context, r *core.Request) string {
			body, err := r.Body(1)
			assert.NoError(t, err)
			return string(body)
		}
	})
	url := f.Nest(t, outer, outer.With(Required), func(body io.Reader) {
		runs.Add(1)
		read, err := io.ReadAll(body)
		assert.NoError(t, err)
		assert.Equal(t, "B", string(read))
	}) + "/"
	first, second := Submit(t, url, "B"), Submit(t, url, "B")
	assert.Equal(t, 201, first.Status, first.Body)
	assert.False(t, first.Replayed())
	assert.Equal(t, 201, second.Status)
	assert.Equal(t, "made", second.Body)
	assert.True(t, second.Replayed())
	assert.EqualValues(t, 1, runs.Load())
}

// FRM-06: alone it would refuse what the one around it runs again, so it says that it cannot.
func TestAStricterMiddlewareOnARouteIsRefusedLoudlyBehindOneOnAll(t *testing.T, f Framework) {
	if f.Nest == nil {
		return
	}
	var runs atomic.Int64
	outer := NewEngine(t)
	strict := outer.With(func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
	url := f.Nest(t, outer, strict, func(io.Reader) { runs.Add(1) }) + "/"
	for range 2 {
		refused := Submit(t, url, "B")
		assert.Equal(t, 500, refused.Status)
		assert.Contains(t, refused.Body, "nested-engine")
	}
	assert.Zero(t, runs.Load())
}
