package adaptertest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/memstore"
)

// Each answer that is held back is its own, however many there are at once.
func TestAnswersThatAreHeldBackAtOnceDoNotMix(t *testing.T, f Framework) {
	own := func(name string) Response {
		n := len(name) * len(name) * 40 // up to 100 kB
		return Response{Status: 201, Header: http.Header{"X-Kept": {name}}, Body: strings.Repeat(name, n/len(name))}
	}
	svc := Start(t, f, memstore.New(), func(r Request) Response { return own(r.Body) }, Setup{}, nil)
	var all sync.WaitGroup
	for g := range 50 {
		all.Go(func() {
			name := strings.Repeat(string(rune('0'+g)), g+1)
			for i := range 20 {
				for range 2 {
					r := svc.Post(fmt.Sprintf("%d-%d", g, i), name)
					assert.True(t, own(name).Body == r.Body, name)
					assert.Equal(t, name, r.Header.Get("X-Kept"))
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 50*20, svc.Runs.Load())
}

// Whatever an answer was, nothing of it is in the next one.
func TestNothingOfAnAnswerIsInTheNextOne(t *testing.T, f Framework) {
	lines := http.Header{}
	for i := range 20 {
		lines.Set(fmt.Sprint("X-Line-", i), "many")
	}
	kinds := map[string]Response{
		"of many header lines": {Status: 201, Header: lines, Body: "many"},
		"of no body":           {Status: 204, Header: http.Header{"X-Other": {"none"}}},
		"of a long body":       {Status: 201, Body: strings.Repeat("x", 100_000)},
		"of a stream":          {Status: 201, Chunks: []string{"one", "two"}},
		"of an error":          {Err: errors.New("refused")},
	}
	for name, before := range kinds {
		t.Run(name, func(t *testing.T) {
			plain := Response{Status: 201, Header: http.Header{"X-Kept": {"plain"}}, Body: "plain"}
			svc := Start(t, f, memstore.New(), func(r Request) Response {
				if r.Body == "before" {
					return before
				}
				return plain
			}, Setup{}, nil)
			for i := range 10 {
				svc.Post(fmt.Sprint("before-", i), "before")
				for _, replayed := range []bool{false, true} {
					r := svc.Post(fmt.Sprint("plain-", i), "plain")
					require.Equal(t, 201, r.Status)
					require.Equal(t, "plain", r.Body)
					require.Equal(t, replayed, r.Replayed())
					require.Equal(t, "plain", r.Header.Get("X-Kept"))
					require.Empty(t, r.Header.Get("X-Line-1")+r.Header.Get("X-Other")+r.Header.Get("Idempotent-Body"))
				}
			}
		})
	}
}
