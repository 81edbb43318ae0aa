package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// A change makes another request of one.
type change func(*core.Request)

func method(method string) change { return func(r *core.Request) { r.Method = method } }
func path(path string) change     { return func(r *core.Request) { r.Path = path } }
func query(query string) change   { return func(r *core.Request) { r.RawQuery = query } }
func scope(scope string) change {
	return func(r *core.Request) { r.Scope = func() string { return scope } }
}

func keys(lines ...string) change {
	return func(r *core.Request) { r.Header = func(string) []string { return lines } }
}

func body(text string, err error) change {
	return func(r *core.Request) { r.Body = func(int64) ([]byte, error) { return []byte(text), err } }
}

// changed is request("K", "B") after the changes.
func changed(changes ...change) core.Request {
	r := request("K", "B")
	for _, change := range changes {
		change(&r)
	}
	return r
}

// unread makes reading the body an error of the test.
func unread(tb testing.TB) change {
	return func(r *core.Request) {
		r.Body = func(int64) ([]byte, error) {
			tb.Error("the body was read")
			return nil, nil
		}
	}
}

func TestRequestsWithoutProtectionPassBy(t *testing.T) {
	for name, change := range map[string]change{
		"MTH-01 GET":         method("GET"),
		"MTH-01 HEAD":        method("HEAD"),
		"MTH-03 DELETE":      method("DELETE"),
		"MTH-05 OPTIONS":     method("OPTIONS"),
		"method in its case": method("post"),
		"KEY-02 no key":      keys(),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			assert.Equal(t, core.Result{Bypassed: true}, f.send(changed(change, unread(t)), made))
			f.ran(0)
			assert.Zero(t, f.calls(), "calls of the store")
			assert.Empty(t, f.heard.names())
		})
	}
}

func TestBadKeyOnAMethodThatIsNotGuardedPassesBy(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.Required = true })
	for _, lines := range [][]string{nil, {`"`}, {"K", "K"}} {
		assert.True(t, f.send(changed(method("GET"), keys(lines...)), made).Bypassed, lines)
	}
}

func TestBadRequestsAreRefusedBeforeTheStoreIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		change change
		status int
		code   string
	}{
		"KEY-01 no key":                 {keys(), 400, "key-missing"},
		"KEY-09 malformed key":          {keys(`"KK`), 400, "key-malformed"},
		"KEY-11 two keys":               {keys("KK", "KK"), 400, "key-repeated"},
		"KEY-12 empty key":              {keys(""), 400, "key-empty"},
		"KEY-13 long key":               {keys("12345"), 400, "key-too-long"},
		"KEY-14 short key":              {keys("1"), 400, "key-too-short"},
		"SCP-04 no scope":               {scope(""), 401, "scope-missing"},
		"FPR-15 body over its limit":    {body("12345", nil), 413, "body-too-large"},
		"FPR-15 adapter says too large": {body("", fmt.Errorf("read: %w", &http.MaxBytesError{})), 413, "body-too-large"},
		"FPR-16 body cut":               {body("123", io.ErrUnexpectedEOF), 400, "body-unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c *core.Config) {
				c.Key.Required, c.Key.MinLength, c.Key.MaxLength, c.Limits.RequestBody = true, 2, 4, 4
			})
			good, bad := changed(keys("KK"), body("1234", nil)), changed(keys("KK"), unread(t)) // KEY-22
			c.change(&bad)
			f.refused(f.send(bad, made), c.status, c.code)
			f.ran(0)
			assert.Zero(t, f.calls(), "calls of the store")
			assert.Equal(t, 1, f.runsAgain(good).Attempt, "no record is left")
		})
	}
}

func TestBodyIsAskedForWithItsLimit(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Limits.RequestBody = 42 })
	f.send(changed(func(r *core.Request) {
		r.Body = func(limit int64) ([]byte, error) {
			assert.EqualValues(t, 42, limit)
			return nil, nil
		}
	}), made)
}

func TestRetryIsAnsweredWithTheKeptOutcome(t *testing.T) {
	f := newFixture(t)
	answer := answers(201, "made", core.Field{Name: "Location", Value: "/orders/7"}, core.Field{Name: "Set-Cookie", Value: "a=b"},
		core.Field{Name: "Link", Value: "1"}, core.Field{Name: "Link", Value: "2"})

	first := f.send(request("K", "B"), answer)
	f.answered(first, 201, "made")
	want, _ := answer(ctx)
	assert.Equal(t, want, first.Response, "RPL-01: the first answer is the handler's")

	for range 99 { // RPL-02, RPL-03, RPL-04, RPL-13, RPL-15
		again := f.send(request("K", "B"), made)
		f.replayed(again, 201, "made")
		assert.Equal(t, []core.Field{
			{Name: "Location", Value: "/orders/7"}, {Name: "Link", Value: "1"}, {Name: "Link", Value: "2"},
			{Name: marker, Value: "true"}, {Name: "Content-Length", Value: "4"},
		}, again.Response.Header)
	}
	f.ran(1)
}

func TestGuardedMethodsAreReplayed(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.Methods = []string{"POST", "PATCH", "PUT", "DELETE"} })
	for _, name := range f.Config().Key.Methods { // MTH-02, MTH-04
		r := changed(method(name), keys(name))
		f.answered(f.send(r, made), 201, "made")
		f.replayed(f.send(r, made), 201, "made")
	}
	f.ran(4)
}

func TestOneKeyHasManySpellings(t *testing.T) {
	f := newFixture(t)
	f.answered(f.send(request(`"K"`, "B"), made), 201, "made")
	for check, line := range map[string]string{
		"KEY-05": `"K"`, "KEY-06": "K", "KEY-10": `"K";v=2`, "KEY-16": " \tK ",
	} {
		t.Run(check, func(t *testing.T) { f.replayed(f.send(request(line, "B"), made), 201, "made") })
	}
	t.Run("KEY-04", func(t *testing.T) {
		header := http.Header{}
		header.Set("IDEMPOTENCY-KEY", "K")
		f.replayed(f.send(changed(func(r *core.Request) { r.Header = header.Values }), made), 201, "made")
	})
	f.ran(1)
	f.answered(f.send(request("k", "B"), made), 201, "made")
	f.ran(2) // KEY-17
}

func TestKeyIsReadFromTheConfiguredHeader(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.Header = "X-Request-Key" })
	assert.True(t, f.send(request("K", "B"), made).Bypassed)
	asked := changed(func(r *core.Request) {
		r.Header = func(name string) []string { return []string{name} }
	})
	f.answered(f.send(asked, made), 201, "made")
	f.replayed(f.send(changed(keys("X-Request-Key")), made), 201, "made")
}

func TestReplaysAreFramedByTheirStatus(t *testing.T) {
	for _, c := range []struct {
		check  string
		status int
		body   string
		length []string
	}{
		{"RPL-07", 200, "", []string{"0"}},
		{"RPL-13", 200, "four", []string{"4"}},
		{"RPL-06", 199, "", nil},
		{"RPL-06", 204, "", nil},
		{"RPL-06", 205, "", []string{"0"}},
		{"RPL-23", 303, "", []string{"0"}},
		{"RPL-06", 304, "", nil},
		{"ERR-01", 422, "no", []string{"2"}},
	} {
		t.Run(fmt.Sprint(c.check, " ", c.status, " ", c.body), func(t *testing.T) {
			f := newFixture(t)
			h := answers(c.status, c.body, core.Field{Name: "Content-Length", Value: "99"})
			f.send(request("K", "B"), h)
			again := f.send(request("K", "B"), h)
			f.replayed(again, c.status, c.body)
			assert.Equal(t, c.length, values(again.Response, "Content-Length"))
			assert.Nil(t, values(again.Response, "Idempotent-Body"))
		})
	}
}

// RPL-27.
func TestBodyOverTheLimitIsNotKept(t *testing.T) {
	for name, omitted := range map[string]bool{"the adapter says so": true, "the adapter does not say so": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c *core.Config) { c.Keep.MaxBody = 4 })
			long := func(context.Context) (*core.Response, error) {
				return &core.Response{Status: 200, Body: []byte("12345"), Omitted: omitted}, nil
			}
			f.answered(f.send(request("K", "B"), long), 200, "12345")
			again := f.send(request("K", "B"), long)
			f.replayed(again, 200, "")
			assert.Equal(t, []string{"omitted"}, values(again.Response, "Idempotent-Body"))
			assert.Equal(t, []string{"0"}, values(again.Response, "Content-Length"))
			f.ran(1)
		})
	}
	t.Run("a body at the limit is kept", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Keep.MaxBody = 4 })
		f.send(request("K", "B"), answers(200, "1234"))
		f.replayed(f.send(request("K", "B"), made), 200, "1234")
	})
}

// RPL-25.
func TestMarkerIsTheEnginesAlone(t *testing.T) {
	for _, name := range []string{marker, "X-Seen"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c *core.Config) { c.Keep.Marker = name })
			forger := answers(200, "ok", core.Field{Name: name, Value: "forged"}, core.Field{Name: "X-A", Value: "a"}, core.Field{Name: name, Value: "twice"})
			first := f.send(request("K", "B"), forger)
			assert.Equal(t, []core.Field{{Name: "X-A", Value: "a"}}, first.Response.Header)
			again := f.send(request("K", "B"), forger)
			assert.Equal(t, []string{"true"}, values(again.Response, name))
			failed := f.send(request("K2", "B"), answers(503, "", core.Field{Name: name, Value: "forged"}))
			assert.Empty(t, values(failed.Response, name), "nor does an answer that is not kept")
		})
	}
}

func TestConcurrentRequestIsRefusedAtOnce(t *testing.T) {
	f := newFixture(t)
	first := f.hold(ctx, request("K", "B"), made)

	conflict := f.send(request("K", "B"), made) // CON-01
	f.refused(conflict, 409, "in-progress")
	assert.Equal(t, []string{"2"}, values(conflict.Response, "Retry-After"), "CON-02: within the lease")
	f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch") // CON-06
	f.answered(f.send(request("K2", "B"), answers(200, "other")), 200, "other")

	f.answered(first.finish(), 201, "made")
	f.replayed(f.send(request("K", "B"), made), 201, "made")
	f.ran(2) // CON-07

	inBubble(t, "while the outcome is on its way", func(t *testing.T) {
		var during core.Result
		var took time.Duration
		f := newFixture(t)
		f = f.with(func(c *core.Config) {
			store := c.Store
			c.Store = scripted{Store: store, complete: func(driver.Claim) error {
				took = elapsed(func() { during = f.send(request("K", "B"), made) })
				return nil
			}}
		})
		f.send(request("K", "B"), made)
		f.refused(during, 409, "in-progress")
		assert.Zero(t, took)
	})
}

// CON-03.
func TestOfManyRivalsOneRuns(t *testing.T) {
	f := newFixture(t)
	engines := []*fixture{f, f.with(func(*core.Config) {}), f.with(func(*core.Config) {})}
	var wg sync.WaitGroup
	results := make([]core.Result, 200)
	for i := range results {
		wg.Go(func() { results[i], _ = engines[i%len(engines)].do(ctx, request("K", "B"), made) })
	}
	wg.Wait()
	f.ran(1)
	first := 0
	for _, result := range results {
		switch {
		case result.Replayed:
			f.replayed(result, 201, "made")
		case result.Problem != "":
			f.refused(result, 409, "in-progress")
		default:
			f.answered(result, 201, "made")
			first++
		}
	}
	assert.Equal(t, 1, first)
}

func TestAnotherRequestUnderAKeyIsRefused(t *testing.T) {
	for check, change := range map[string]change{
		"FPR-01": body("B'", nil), "FPR-03": path("/refunds"), "FPR-04": method("PATCH"), "FPR-05": query("a=1"),
	} {
		t.Run(check, func(t *testing.T) {
			f := newFixture(t)
			f.send(changed(), made)
			f.refused(f.send(changed(change), made), 422, "fingerprint-mismatch")
			f.replayed(f.send(changed(), made), 201, "made")
			f.ran(1)
		})
	}
}

type tenant struct{}

func TestScopesDoNotMeet(t *testing.T) {
	f := newFixture(t, func(c *core.Config) {
		c.Scope = func(ctx context.Context, r *core.Request) string {
			assert.Equal(t, "POST", r.Method)
			name, _ := ctx.Value(tenant{}).(string)
			return name
		}
	})
	as := func(name string) core.Result {
		result, err := f.do(context.WithValue(ctx, tenant{}, name), request("K", "B"), answers(200, name))
		require.NoError(t, err)
		return result
	}
	f.answered(as("T1"), 200, "T1") // SCP-01
	f.answered(as("T2"), 200, "T2")
	f.replayed(as("T1"), 200, "T1")
	f.replayed(as("T2"), 200, "T2")
	f.refused(as(""), 401, "scope-missing") // SCP-04
	f.ran(2)

	f.replayed(f.send(changed(scope("T1")), made), 200, "T1") // an adapter's scope takes the place of Config.Scope
	f.answered(f.send(changed(scope("T3")), made), 201, "made")
}

func TestScopeByAdapterRefusesWhatHasNone(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Scope = core.ScopeByAdapter })
	f.refused(f.send(request("K", "B"), made), 401, "scope-missing")
	f.answered(f.send(changed(scope("T")), made), 201, "made")
}

func TestDispositionDecidesWhatTheNextRequestGets(t *testing.T) {
	const (
		replay   = "replay"
		runAgain = "same request runs again"
		runOther = "any request runs again"
	)
	for _, c := range []struct {
		check  string
		policy func(*core.Response) core.Disposition
		status int
		want   string
	}{
		{"ERR-01", nil, 404, replay},
		{"ERR-02", nil, 429, runOther},
		{"ERR-03", nil, 503, runAgain},
		{"ERR-04", core.KeepAll, 500, replay},
		{"ERR-10", core.ReleaseOn(422), 422, runOther},
		{"ERR-11", core.KeepOnly2xx, 404, runOther},
		{"ERR-11", core.KeepOnly2xx, 200, replay},
	} {
		t.Run(fmt.Sprint(c.check, " ", c.status, " ", c.want), func(t *testing.T) {
			f := newFixture(t, func(c2 *core.Config) { c2.Keep.Policy = c.policy })
			same, other := request("K", "B"), request("K", "B'")
			f.answered(f.send(same, answers(c.status, "first")), c.status, "first")
			switch c.want {
			case replay:
				f.replayed(f.send(same, made), c.status, "first")
			case runAgain:
				f.refused(f.send(other, made), 422, "fingerprint-mismatch")
				assert.Equal(t, 2, f.runsAgain(same).Attempt)
			case runOther:
				assert.Equal(t, 2, f.runsAgain(other).Attempt)
				f.refused(f.send(same, made), 422, "fingerprint-mismatch")
			}
		})
	}
}

// MTH-07.
func TestHijackedConnectionReleasesTheKey(t *testing.T) {
	f := newFixture(t)
	result := f.send(request("K", "B"), func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 101, Hijacked: true, Sent: true}, nil
	})
	assert.Equal(t, core.Result{}, result, "there is nothing to send")
	f.runsAgain(request("K", "B'"))
}

// RPL-10.
func TestStreamedAnswerIsKeptAndNotSentAgain(t *testing.T) {
	f := newFixture(t)
	result := f.send(request("K", "B"), func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 200, Body: []byte("chunks"), Sent: true}, nil
	})
	assert.Equal(t, core.Result{}, result, "there is nothing to send")
	f.replayed(f.send(request("K", "B"), made), 200, "chunks")
}

func TestAnAnswerWithoutAStatusIsNotKept(t *testing.T) {
	for _, status := range []int{0, -1, 99, 1000} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			f := newFixture(t)
			_, _ = f.do(ctx, request("K", "B"), answers(status, "odd"))
			assert.NotEqual(t, "record-unreadable", f.send(request("K", "B"), made).Problem)
			f.ran(2)
		})
	}
}

// TTL-01, TTL-02.
func TestAfterTheRetentionAKeyIsNew(t *testing.T) {
	inBubble(t, "retention", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), made)
		time.Sleep(retention - time.Millisecond)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		time.Sleep(time.Millisecond)
		assert.Equal(t, 1, f.runsAgain(request("K", "B'")).Attempt)
	})
}

// Each run has an identity of its own, and all calls of the run carry it.
func TestClaimsAreMadeOncePerRun(t *testing.T) {
	var claims []driver.Claim
	f := newFixture(t, func(c *core.Config) {
		store := c.Store
		c.Store = scripted{
			Store: store,
			begin: func(c driver.Claim) (driver.Entry, error) {
				claims = append(claims, c)
				return store.Begin(ctx, c)
			},
			complete: func(c driver.Claim) error {
				claims = append(claims, c)
				return store.Complete(ctx, c, []byte("x"))
			},
		}
	})
	f.send(request("K", "B"), made)
	f.send(request("K2", "B"), made)
	require.Len(t, claims, 4)
	begun, ended, other := claims[0], claims[1], claims[2]

	assert.Equal(t, lease, begun.Lease)
	assert.Equal(t, retention, begun.Retention)
	assert.NotZero(t, begun.Owner)
	assert.NotZero(t, begun.Fingerprint)
	assert.Zero(t, begun.Fence)
	assert.False(t, begun.NoTakeover)

	assert.Positive(t, ended.Fence)
	begun.Fence, begun.Attempt, begun.Operation = ended.Fence, 1, ended.Fence
	assert.Equal(t, begun, ended)

	assert.NotEqual(t, begun.Key, other.Key)
	assert.NotEqual(t, begun.Owner, other.Owner)
	assert.Equal(t, begun.Fingerprint, other.Fingerprint)
}

func TestHandlerKnowsItsRun(t *testing.T) {
	_, ok := core.FromContext(ctx)
	assert.False(t, ok, "there is no run outside of one")

	f := newFixture(t)
	var runs []core.Run
	for range 3 {
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			runs = append(runs, f.seen(ctx))
			return &core.Response{Status: 500}, nil
		})
	}
	require.Len(t, runs, 3)
	for i, run := range runs {
		assert.Equal(t, i+1, run.Attempt)
		assert.False(t, run.Takeover, "a run that failed has not vanished")
		assert.Positive(t, run.Fence)
		assert.True(t, i == 0 || run.Fence > runs[i-1].Fence, "fences grow: %v", runs)
	}
}

// LSE-06.
func TestClientThatLeavesDoesNotStopTheRun(t *testing.T) {
	inBubble(t, "leaves", func(t *testing.T) {
		f := newFixture(t)
		client, leave := context.WithCancel(context.WithValue(ctx, tenant{}, "T"))
		running := f.hold(client, request("K", "B"), made)
		leave()
		synctest.Wait()
		assert.NoError(t, running.run.Err())
		assert.Equal(t, "T", running.run.Value(tenant{}), "values are the client's")
		f.answered(running.finish(), 201, "made")
		assert.Error(t, running.run.Err(), "the context ends with the run")
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
	for name, h := range map[string]handler{"5xx": answers(500, "failed"), "429": answers(429, "slow down")} {
		inBubble(t, name+" frees the key all the same", func(t *testing.T) {
			f := newFixture(t)
			client, leave := context.WithCancel(ctx)
			running := f.hold(client, request("K", "B"), h)
			leave()
			running.finish()
			assert.Equal(t, 2, f.runsAgain(request("K", "B")).Attempt)
		})
	}
}

func TestDeadlineFromOutsideStopsTheHandlerAndNotTheEngine(t *testing.T) {
	inBubble(t, "deadline", func(t *testing.T) {
		f := newFixture(t)
		client, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var result core.Result
		took := elapsed(func() {
			var err error
			result, err = f.do(client, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				assert.Equal(t, context.DeadlineExceeded, ended(t, ctx))
				return &core.Response{Status: 202}, nil
			})
			assert.NoError(t, err)
		})
		assert.Equal(t, 5*time.Second, took)
		f.answered(result, 202, "")
		f.replayed(f.send(request("K", "B"), made), 202, "")
	})
}

func TestCancelOnDisconnectStopsTheHandler(t *testing.T) {
	reason := errors.New("client left")
	for name, leavesFirst := range map[string]bool{"leaves later": false, "has left already": true} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			client, leave := context.WithCancelCause(ctx)
			result, err := f.do(client, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				if leavesFirst {
					leave(reason)
				}
				core.CancelOnDisconnect(ctx)
				assert.True(t, leavesFirst || ctx.Err() == nil)
				leave(reason)
				assert.Equal(t, reason, ended(t, ctx))
				return &core.Response{Status: 200, Omitted: true, Sent: true}, nil
			})
			assert.NoError(t, err)
			assert.Equal(t, core.Result{}, result)
			f.replayed(f.send(request("K", "B"), made), 200, "")
		})
	}
	t.Run("outside of a run it does nothing", func(t *testing.T) {
		assert.NotPanics(t, func() { core.CancelOnDisconnect(ctx) })
	})
}

// foreign is a context that the standard library has not made. To watch it takes a goroutine.
type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

func (f foreign) Err() error {
	select {
	case <-f.done:
		return context.Canceled
	default:
		return nil
	}
}

func TestAClientIsNoLongerWatchedWhenTheRunHasEnded(t *testing.T) {
	for name, times := range map[string]int{"watched twice": 2, "watched for the first time when it has ended": 0} {
		inBubble(t, name, func(t *testing.T) {
			f, client := newFixture(t), foreign{ctx, make(chan struct{})}
			before := goroutines(t)
			var run context.Context
			_, err := f.do(client, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				run = ctx
				for range times {
					core.CancelOnDisconnect(ctx)
				}
				return made(ctx)
			})
			require.NoError(t, err)
			core.CancelOnDisconnect(run)
			assert.Equal(t, before, goroutines(t))
			close(client.done)
		})
	}
}
