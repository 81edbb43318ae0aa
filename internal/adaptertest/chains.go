package adaptertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
)

// Text is long enough for middleware to compress it.
var Text = strings.Repeat("compressible ", 500)

// RPL-29: scripts may read the marker beside what the frameworks' own CORS lets them read.
func TestCORSOutsideStandsBesideTheMarkerThatIsExposed(t *testing.T, f Framework) {
	exposes := func(t *testing.T) *core.Engine {
		return NewEngine(t).With(func(c *core.Config) { c.Keep.ExposeMarker = true })
	}
	if f.CORS == nil {
		return
	}
	url := f.CORS(t, exposes(t), "X-Total")
	for _, replayed := range []bool{false, true} {
		r := Submit(t, url+"/", "B", "Origin", "https://shop.example")
		assert.Equal(t, replayed, r.Replayed())
		assert.Equal(t, []string{"X-Total", Marker}, r.Header.Values("Access-Control-Expose-Headers"))
		assert.Len(t, r.Header.Values("Access-Control-Allow-Origin"), 1)
	}
}

// RPL-16: the framework's own request ids, CORS and compression, around the engine and inside. A first response and its replay
// unpack to the same text, and no field of theirs comes twice. A request id from outside is of its exchange alone.
func TestMiddlewareAroundAndInside(t *testing.T, f Framework) {
	if f.Chain == nil {
		return
	}
	for name, outside := range map[string]bool{"outside": true, "inside": false} {
		t.Run(name, func(t *testing.T) {
			url := f.Chain(t, NewEngine(t), outside)
			post := func() Reply {
				req, err := http.NewRequest("POST", url, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				req.Header.Set("Origin", "https://shop.example")
				res, err := http.DefaultClient.Do(req) // asks for gzip, and unpacks it
				require.NoError(t, err)
				require.True(t, res.Uncompressed, "nothing was compressed: nothing is tested")
				r, err := Read(res)
				require.NoError(t, err)
				return r
			}
			first, second := post(), post()
			assert.False(t, first.Replayed())
			assert.True(t, second.Replayed())
			for _, r := range []Reply{first, second} {
				assert.Equal(t, http.StatusCreated, r.Status)
				assert.Equal(t, Text, r.Body)
				for _, line := range []string{"Content-Type", "Access-Control-Allow-Origin"} {
					assert.Len(t, r.Header.Values(line), 1, line)
				}
				assert.LessOrEqual(t, len(r.Header.Values("X-Request-Id")), 1)
			}
			if outside {
				assert.NotEqual(t, first.Header.Get("X-Request-Id"), second.Header.Get("X-Request-Id"), "each exchange has its own")
			}
		})
	}
}
