package adaptertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A route that there is none of is as if the key had not been used; what a handler says is its answer (ERR-01).
func TestAMistypedRouteDoesNotUseItsKey(t *testing.T, f Framework) {
	for name, start := range f.Routers {
		for mistyped, status := range map[string]int{"/oders": 404, "/read-only": 405} {
			t.Run(name+" "+mistyped, func(t *testing.T) {
				bare, url := start(t, nil), start(t, NewEngine(t))
				want := Submit(t, bare+mistyped, "B")
				if !strings.HasSuffix(name, ", a group") {
					assert.Equal(t, status, want.Status)
				}
				for range 2 {
					assert.Equal(t, want, Submit(t, url+mistyped, "B"))
				}
				first, second := Submit(t, url+"/orders", "B"), Submit(t, url+"/orders", "B")
				assert.Equal(t, 201, first.Status, first.Body)
				assert.False(t, first.Replayed())
				assert.True(t, second.Replayed())
				assert.Equal(t, 422, Submit(t, url+mistyped, "B").Status, "nor does it open one that was")
			})
		}
		for i, missing := range []string{"/missing", "/forbidden"} {
			t.Run(fmt.Sprint(name, " ", missing), func(t *testing.T) {
				url := start(t, NewEngine(t))
				for n := range 2 {
					r := Submit(t, url+missing, "B")
					assert.Equal(t, 404+i, r.Status)
					assert.Equal(t, n == 1, r.Replayed())
				}
			})
		}
	}
}
