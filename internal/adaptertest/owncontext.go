package adaptertest

import (
	"context"
	"net/http"

	"github.com/go-idem/idem/core"
)

// FRM-05: what a handler asks of its run it may ask with the framework's own context.
func (s *Behaviours) TestTheFrameworksOwnContextKnowsTheRun() {
	steps := 0
	var children []string
	svc := s.serve(func(r Request) Response {
		run, ok := core.FromContext(r.Own)
		s.True(ok)
		same, _ := core.FromContext(r.Ctx)
		s.Equal(same, run)
		s.Equal(core.ChildKey(r.Ctx, "charge"), core.ChildKey(r.Own, "charge"))
		children = append(children, core.ChildKey(r.Own, "charge"))
		type traced struct{}
		derived := context.WithValue(r.Own, traced{}, true) // without an end of its own, which is a race in fasthttp's Shutdown
		charged, err := core.Step(derived, "charge", func(context.Context) (int, error) { steps++; return steps, nil })
		s.NoError(err)
		s.Equal(1, charged, "the step is kept")
		if run.Attempt == 2 {
			core.Decide(r.Own, core.Keep)
		}
		return Response{Status: http.StatusServiceUnavailable}
	}, nil)
	s.False(svc.Post("K", "B").Replayed())
	second := svc.Post("K", "B")
	s.False(second.Replayed())
	s.replay(second, svc.Post("K", "B"))
	s.ran(svc, 2)
	s.Len(children, 2)
	s.Len(children[0], 64)
	s.Equal(children[0], children[1])
}

// FRM-05: a request without protection, and one after another's run, knows of none, although frameworks use their contexts again.
func (s *Behaviours) TestTheFrameworksOwnContextKnowsNoOtherRequestsRun() {
	inside := map[bool]int{}
	svc := s.serve(func(r Request) Response {
		run, ok := core.FromContext(r.Own)
		inside[ok]++
		s.Equal(ok, run.Fence != 0)
		s.Equal(r.Header("Idempotency-Key") != "", ok)
		return Response{Status: 201}
	}, nil)
	for range 10 {
		svc.Post("", "B")
		s.Equal(201, svc.Send("POST", "/orders", "B").Status)
		svc.Post(s.T().Name()+string(rune('a'+inside[true])), "B")
	}
	s.Equal(10, inside[true])
}
