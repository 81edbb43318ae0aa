package adaptertest

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	idemhttp "github.com/go-idem/idem/adapters/http"
)

// FRM-09: the adapter for net/http cannot see a response through what a framework has to call net/http middleware.
func TestTheAdapterForNetHTTPIsRefusedInABridge(t *testing.T, f Framework) {
	if f.Bridge == nil {
		return
	}
	var runs atomic.Int64
	url := f.Bridge(t, idemhttp.HTTP(NewEngine(t)), func() { runs.Add(1) })
	for range 2 {
		r := Submit(t, url, "B")
		assert.Equal(t, http.StatusInternalServerError, r.Status)
		assert.Contains(t, r.Body, "has an adapter of its own")
		assert.False(t, r.Replayed())
	}
	assert.Zero(t, runs.Load())
}
