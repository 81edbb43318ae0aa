package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// LSE-02 and its kin: a run ended without telling its outcome.

// vanish leaves K claimed by a run whose lease has ended: its store is away from the moment it runs.
func (f *fixture) vanish(t *testing.T) {
	t.Helper()
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown)
		return &core.Response{Status: 504, Body: []byte("no answer from the provider")}, nil
	})
	time.Sleep(lease)
	assert.Equal(t, "begin unknown", f.heard.names())
}

func onUnknown(resolve func(context.Context, *core.Request) (*core.Response, error)) func(*core.Config) {
	return func(c *core.Config) { c.Lease.OnUnknown = resolve }
}

func TestAnUnknownOutcome(t *testing.T) {
	inBubble(t, "is run again by default, and told so", func(t *testing.T) {
		f := newFixture(t)
		f.vanish(t)
		f.sends(f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			assert.True(t, f.seen(ctx).Takeover)
			return made(ctx)
		}), 201, "made")
	})
	inBubble(t, "is in progress until the lease is over", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return &core.Response{Status: 504}, nil
		})
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
	})
	inBubble(t, "is refused until the retention ends", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		f.vanish(t)
		for range 3 {
			f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		}
		f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
		f.ran(1)
		time.Sleep(retention)
		f.sends(f.send(request("K", "B"), made), 201, "made")
	})
	inBubble(t, "is what the resolver finds, and is kept", func(t *testing.T) {
		var asked []string
		f := newFixture(t, onUnknown(func(ctx context.Context, r *core.Request) (*core.Response, error) {
			body, err := r.Body(1)
			asked = append(asked, string(body), core.ChildKey(ctx, "charge"))
			return &core.Response{Status: 503, Body: []byte("charged")}, err
		}))
		var child string
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			child = core.ChildKey(ctx, "charge")
			core.Decide(ctx, core.LeaveUnknown)
			return &core.Response{Status: 504}, nil
		})
		time.Sleep(lease)
		f.heard.take()
		f.answered(f.send(request("K", "B"), made), 503, "charged")
		assert.Equal(t, "unknown takeover begin kept", f.heard.names())
		f.replayed(f.send(request("K", "B"), made), 503, "charged")
		assert.Equal(t, []string{"B", child}, asked, "the resolver can look the operation up by the key that the run used")
	})
	inBubble(t, "runs again when the resolver knows that nothing happened", func(t *testing.T) {
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) { return nil, nil }))
		f.vanish(t)
		f.sends(f.send(request("K", "B"), made), 201, "made")
		f.ran(2)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
	})
	inBubble(t, "is refused while the resolver can not tell", func(t *testing.T) {
		down := errors.New("ledger down")
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			return &core.Response{}, down
		}))
		f.vanish(t)
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		heard := f.heard.take()
		require.Len(t, heard, 1)
		assert.ErrorIs(t, heard[0].Err, down)
		f.ran(1)
	})
	inBubble(t, "is settled by one of many who ask", func(t *testing.T) {
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			time.Sleep(time.Second)
			return nil, nil
		}))
		f.vanish(t)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				result := f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
					time.Sleep(time.Second)
					return made(ctx)
				})
				assert.Contains(t, []string{"", "in-progress"}, result.Problem)
			})
		}
		wg.Wait()
		f.ran(2)
	})
}

// RPL-11, RPL-12, RPL-25: it may come from another service, whose connection is over.
func TestAResponseThatIsFoundIsSentAsItIsReplayed(t *testing.T) {
	found := &core.Response{Status: 201, Body: []byte("found"), Header: []core.Field{
		line("content-type", "text/plain"), line("X-A", "a\r\nX-B: b"), line("X B", "b"), line("Date", "yesterday"), line("Content-Length", "1"),
		line("connection", "x-hop"), line("X-Hop", "1"), line("Transfer-Encoding", "chunked"), line(marker, "false"),
	}}
	want := []core.Field{line("Content-Type", "text/plain"), line("X-A", "a  X-B: b")}
	for name, change := range map[string]func(*core.Config){
		"by OnUnknown":   onUnknown(func(context.Context, *core.Request) (*core.Response, error) { return found, nil }),
		"by an operator": onUnknown(core.RefuseUnknown),
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, change)
			f.vanish(t)
			if name == "by an operator" {
				require.NoError(t, f.Resolve(ctx, core.Task{Scope: core.SingleTenant(ctx, nil), Key: "K"}, found))
			}
			for range 2 {
				result := f.send(request("K", "B"), made)
				f.sends(result, 201, "found")
				assert.Equal(t, want, result.Response.Header[:2])
				if result.Replayed {
					assert.Equal(t, []core.Field{line(marker, "true"), line("Content-Length", "5")}, result.Response.Header[2:])
				} else {
					assert.Len(t, result.Response.Header, 2)
				}
			}
			assert.Len(t, found.Header, 9, "it may be the same one for every request")
		})
	}
}

// The statuses of tasks are not those of HTTP: the body is the result.
func TestTheResultOfATaskThatIsFoundIsKeptWhateverItsStatus(t *testing.T) {
	inBubble(t, "found", func(t *testing.T) {
		found := &core.Response{Status: 204, Body: []byte("found")}
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) { return found, nil }))
		f.doTask(job, func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return made(ctx)
		})
		time.Sleep(lease)
		for range 2 {
			f.sends(f.doTask(job, made), 204, "found")
		}
	})
}

// ERR-06.
func TestAPanicIsAnUnknownOutcomeIfOnUnknownIsSet(t *testing.T) {
	inBubble(t, "it is neither free nor failed", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		assert.PanicsWithValue(t, "boom", func() {
			f.send(request("K", "B"), func(context.Context) (*core.Response, error) { panic("boom") })
		})
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		time.Sleep(lease)
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		f.ran(1)
	})
}

func TestAStoreThatAnswersUnknownUnaskedIsRefused(t *testing.T) {
	asked := 0
	asks := onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
		asked++
		return nil, core.ErrOutcomeUnknown
	})
	for name, c := range map[string]struct {
		change func(*core.Config)
		fence  int64
	}{
		"without OnUnknown": {func(*core.Config) {}, 7}, "of no run": {asks, 0},
	} {
		f := newFixture(t, c.change, beginAnswers(driver.Entry{State: driver.Unknown, Fence: c.fence}, nil))
		result := f.send(request("K", "B"), made)
		assert.Equal(t, "outcome-unknown", result.Problem, name)
		f.ran(0)
	}
	assert.Zero(t, asked)
}
