package core_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
)

// RPL-34.

// onReplay is a Keep.OnReplay.
type onReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error)

// withOnReplay sets Keep.OnReplay.
func withOnReplay(f onReplay) func(*core.Config) { return func(c *core.Config) { c.Keep.OnReplay = f } }

// spoils changes all that it gets, in place.
func spoils(_ context.Context, _ *core.Request, r *core.Response) (*core.Response, error) {
	r.Status = 299
	for i := range r.Header {
		r.Header[i].Value = "spoiled"
	}
	for i := range r.Body {
		r.Body[i] = 'x'
	}
	return r, nil
}

// eachCache calls test with engines that replay from the store, and with engines that replay from memory.
func eachCache(t *testing.T, test func(*testing.T, *fixture)) {
	for name, size := range map[string]int{"from the store": 0, "from memory": 1 << 20} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, func(c *core.Config) { c.Keep.LocalReplays = size })) })
	}
}

func TestAReplayThatIsRefusedRunsNothingAndChangesNothing(t *testing.T) {
	eachCache(t, func(t *testing.T, usual *fixture) {
		isRevoked, asked := true, 0
		f := usual.with(withOnReplay(func(_ context.Context, r *core.Request, stored *core.Response) (*core.Response, error) {
			asked++
			assert.Equal(t, "/orders", r.Path)
			if isRevoked {
				return nil, nil
			}
			return stored, nil
		}))
		f.answered(f.send(request("K", "B"), made), 201, "made")
		assert.Zero(t, asked, "a first response is no replay")
		for range 2 {
			refused := f.send(request("K", "B"), made)
			f.refused(refused, 403, "replay-refused")
			assert.NoError(t, refused.Err)
			assert.Zero(t, refused.RetryAfter)
		}
		f.refused(f.send(request("K", "other"), made), 422, "fingerprint-mismatch")
		assert.Equal(t, "begin kept mismatch", f.heard.names(), "nothing was replayed")
		isRevoked = false
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		assert.Equal(t, 3, asked)
		usual.replayed(usual.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

func TestAReplayThatIsReplacedLeavesTheRecordAsItIs(t *testing.T) {
	eachCache(t, func(t *testing.T, usual *fixture) {
		h := answers(201, "made", line("Content-Type", "text/plain"), line("X-A", "a"))
		usual.send(request("K", "B"), h)
		f := usual.with(withOnReplay(spoils))
		for range 3 {
			spoiled := f.send(request("K", "B"), made)
			f.replayed(spoiled, 299, "xxxx")
			assert.Equal(t, "spoiled", value(spoiled.Response, "X-A"))
			usual.replayed(usual.send(request("K", "B"), made), 201, "made")
		}
		again := usual.send(request("K", "B"), made)
		assert.Equal(t, "a", value(again.Response, "X-A"))
		f.ran(1)
	})
}

func TestWhatOnReplayReturnsIsSentAsAReplay(t *testing.T) {
	own := &core.Response{Status: 200, Body: []byte("current"), Omitted: true, Sent: true, Header: []core.Field{
		line("Content-Length", "1"), line("Transfer-Encoding", "chunked"), line(marker, "false"), line("Set-Cookie", "a=b"),
		line("WWW-Authenticate", "Bearer"), line("X-A", "a\r\nb"), line("no name", "a"),
		line("content-type", "text/csv"), line("Connection", "X-Hop"), line("x-hop", "1"),
	}}
	f := newFixture(t, withOnReplay(func(context.Context, *core.Request, *core.Response) (*core.Response, error) { return own, nil }))
	f.send(request("K", "B"), made)
	for range 2 {
		replay := f.send(request("K", "B"), made)
		f.replayed(replay, 200, "current")
		r := replay.Response
		assert.False(t, r.Sent, "it is to be sent")
		assert.Equal(t, []string{"7"}, values(r, "Content-Length"))
		assert.Equal(t, []string{"a  b"}, values(r, "X-A"))
		assert.Equal(t, []string{"a=b"}, values(r, "Set-Cookie"), "it is of this exchange")
		assert.Equal(t, []string{"Bearer"}, values(r, "WWW-Authenticate"))
		assert.Contains(t, r.Header, line("Content-Type", "text/csv"), "net/http would add its own beside another spelling")
		assert.Len(t, r.Header, 6)
	}
	assert.Len(t, own.Header, 10, "it may be the same one for every request")
	own = &core.Response{Status: 204, Body: []byte("none")}
	f.replayed(f.send(request("K", "B"), made), 204, "")
	own = &core.Response{Status: 200}
	replay := f.send(request("K", "B"), made)
	f.replayed(replay, 200, "")
	assert.Empty(t, values(replay.Response, "Idempotent-Body"))
}

// Fiber can send a 1xx as a response, and so it is stored.
func TestOnReplayMayReturnWhateverIsStored(t *testing.T) {
	f := newFixture(t, withOnReplay(func(_ context.Context, _ *core.Request, stored *core.Response) (*core.Response, error) {
		return stored, nil
	}))
	f.send(request("K", "B"), answers(199, ""))
	f.replayed(f.send(request("K", "B"), made), 199, "")
}

func TestAReplayThatNobodyCanJudgeIsRefusedForNow(t *testing.T) {
	for name, test := range map[string]struct {
		f    onReplay
		want error
	}{
		"an error": {func(context.Context, *core.Request, *core.Response) (*core.Response, error) {
			return &core.Response{Status: 200}, errTest
		}, errTest},
		"no status": {func(context.Context, *core.Request, *core.Response) (*core.Response, error) {
			return &core.Response{}, nil
		}, nil},
		"a status that is none of a final response": {func(context.Context, *core.Request, *core.Response) (*core.Response, error) {
			return &core.Response{Status: 103}, nil
		}, nil},
		"a connection": {func(context.Context, *core.Request, *core.Response) (*core.Response, error) {
			return &core.Response{Status: 201, Hijacked: true}, nil
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, withOnReplay(test.f))
			f.send(request("K", "B"), made)
			refused := f.send(request("K", "B"), made)
			f.refused(refused, 503, "replay-unavailable")
			assert.Equal(t, time.Second, refused.RetryAfter)
			require.Error(t, refused.Err)
			if test.want != nil {
				assert.Equal(t, test.want, refused.Err)
			}
			f.ran(1)
		})
	}
}

func TestAnOnReplayThatHangsIsCancelled(t *testing.T) {
	hangs := withOnReplay(func(ctx context.Context, _ *core.Request, _ *core.Response) (*core.Response, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	inBubble(t, "after the timeout of the store", func(t *testing.T) {
		f := newFixture(t, hangs)
		f.send(request("K", "B"), made)
		took := elapsed(func() { f.refused(f.send(request("K", "B"), made), 503, "replay-unavailable") })
		assert.Equal(t, storeTimeout, took)
		f.refused(f.send(request("K", "other"), made), 422, "fingerprint-mismatch")
	})
	inBubble(t, "when the client leaves", func(t *testing.T) {
		f := newFixture(t, hangs)
		f.send(request("K", "B"), made)
		client, leave := context.WithCancel(ctx)
		replay := f.later(client, request("K", "B"), made)
		leave()
		assert.Zero(t, (<-replay).after)
		f.ran(1)
	})
}

func TestAPanicOfOnReplayReachesTheMiddlewareOutside(t *testing.T) {
	inBubble(t, "panic", func(t *testing.T) {
		f := newFixture(t, waiting(time.Minute), withOnReplay(func(context.Context, *core.Request, *core.Response) (*core.Response, error) { panic("test") }))
		held := f.hold(ctx, request("K", "B"), made)
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			_, _ = f.do(ctx, request("K", "B"), made)
		}()
		held.finish()
		assert.Equal(t, "test", <-panicked)
		assert.PanicsWithValue(t, "test", func() { f.send(request("K", "B"), made) })
		f.ran(1)
		f.close()
	})
}

func TestARequestThatHasWaitedIsAskedAboutToo(t *testing.T) {
	inBubble(t, "waits", func(t *testing.T) {
		f := newFixture(t, waiting(time.Minute), withOnReplay(sendsNothing))
		held := f.hold(ctx, request("K", "B"), made)
		waiter := f.later(ctx, request("K", "B"), made)
		f.answered(held.finish(), 201, "made")
		f.refused((<-waiter).Result, 403, "replay-refused")
		f.ran(1)
	})
}

func TestOnReplayCanMakeUpForABodyThatIsOmitted(t *testing.T) {
	omits := true
	f := newFixture(t, func(c *core.Config) { c.Keep.MaxBody, c.Keep.OmittedStatus = 1, 413 },
		withOnReplay(func(_ context.Context, _ *core.Request, r *core.Response) (*core.Response, error) {
			assert.True(t, r.Omitted)
			assert.Equal(t, 201, r.Status)
			if !omits {
				r.Body = []byte("read again")
			}
			return r, nil
		}))
	f.send(request("K", "B"), made)
	f.replayed(f.send(request("K", "B"), made), 413, "")
	omits = false
	replay := f.send(request("K", "B"), made)
	f.replayed(replay, 201, "read again")
	assert.Empty(t, values(replay.Response, "Idempotent-Body"))
}

func TestOnReplayKnowsTheRequestAndItsChildKeys(t *testing.T) {
	child := ""
	f := newFixture(t, withOnReplay(func(ctx context.Context, r *core.Request, stored *core.Response) (*core.Response, error) {
		_, isInRun := core.FromContext(ctx)
		assert.False(t, isInRun)
		assert.Equal(t, child, core.ChildKey(ctx, "charge"))
		body, err := r.Body(1)
		assert.Equal(t, "B", string(body))
		return stored, err
	}))
	once := func() core.Request {
		isRead := false
		return changed(func(r *core.Request) {
			r.Body = func(int64) ([]byte, error) {
				assert.False(t, isRead, "a connection has a body once")
				isRead = true
				return []byte("B"), nil
			}
		})
	}
	f.send(once(), func(ctx context.Context) (*core.Response, error) {
		child = core.ChildKey(ctx, "charge")
		return made(ctx)
	})
	f.replayed(f.send(once(), made), 201, "made")
	assert.NotEmpty(t, child)
}

func TestTasksAndMessagesGetWhatIsStored(t *testing.T) {
	f := newFixture(t, withOnReplay(sendsNothing))
	f.doTask(job, made)
	f.replayed(f.doTask(job, made), 201, "made")
	handle := func(context.Context) (receipt, error) { return receipt{7}, nil }
	f.consume(message, handle)
	again := f.consume(message, handle)
	assert.Equal(t, consumer.Duplicate, again.Verdict)
	assert.Equal(t, receipt{7}, again.Result)
}

func TestManyReplaysAtOnceDoNotShareWhatOnReplayGets(t *testing.T) {
	eachCache(t, func(t *testing.T, usual *fixture) {
		f := usual.with(withOnReplay(spoils))
		f.send(request("K", "B"), answers(201, "made", line("X-A", "a")))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					f.replayed(f.send(request("K", "B"), made), 299, "xxxx")
					usual.replayed(usual.send(request("K", "B"), made), 201, "made")
				}
			})
		}
		all.Wait()
	})
}
