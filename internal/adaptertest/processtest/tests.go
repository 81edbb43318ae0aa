package processtest

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/adaptertest"
)

// tests has the tests that Run runs.
var tests = []func(*testing.T, adaptertest.Framework){
	TestAKilledProcessIsTakenOverAfterItsLease,
	TestAKilledProcessLeavesAnUnknownOutcomeIfOnUnknownIsSet,
	TestAPausedProcessCannotTouchItsSuccessorsRecord,
	TestAProcessThatDiesWhileItStreamsIsTakenOver,
	TestTwoHundredParallelRequestsOverThreeProcessesRunTheHandlerOnce,
}

// Run runs the tests of this package for the frameworks, beside each other.
func Run(t *testing.T, frameworks ...adaptertest.Framework) {
	for _, f := range frameworks {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			for _, test := range tests {
				t.Run(adaptertest.NameOf(test), func(t *testing.T) { test(t, f) })
			}
		})
	}
}

// CON-03 over processes.
func TestTwoHundredParallelRequestsOverThreeProcessesRunTheHandlerOnce(t *testing.T, f adaptertest.Framework) {
	c := newCluster(t, f)
	processes := []process{c.spawn("30s"), c.spawn("30s"), c.spawn("30s")}
	replies := make(chan adaptertest.Reply, 200)
	for i := range 200 {
		go func() {
			r, err := processes[i%3].Try(processes[i%3].Client, "POST", "/orders", "B", "Idempotency-Key", "K")
			assert.NoError(t, err)
			replies <- r
		}()
	}
	firsts := 0
	for range 200 {
		switch r := <-replies; {
		case r.Status == http.StatusCreated:
			assert.Equal(t, "run 1 takeover false", r.Body)
			if !r.Replayed() {
				firsts++
			}
		default:
			assert.Equal(t, http.StatusConflict, r.Status, r.Body)
		}
	}
	assert.Equal(t, 1, firsts)
	assert.Equal(t, 1, c.runs())
}

// LSE-01: SIGKILL ends a process in its handler, so nobody can free the key. A retry in another process is refused until the
// lease of a second ends; then it runs, and its handler learns that the effect may have happened.
func TestAKilledProcessIsTakenOverAfterItsLease(t *testing.T, f adaptertest.Framework) {
	c := newCluster(t, f)
	a, b := c.spawn("1s"), c.spawn("1s")
	go func() { _, _ = a.slow() }()
	c.waitForRun(1)
	a.signal(syscall.SIGKILL)
	c.finish(2)

	r := b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
	require.Equal(t, http.StatusConflict, r.Status, "LSE-01: inside the lease the outcome is not known")
	require.Equal(t, "1", r.Header.Get("Retry-After"))
	require.Eventually(t, func() bool {
		r = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
		return r.Status == http.StatusCreated
	}, 5*time.Second, 10*time.Millisecond, "LSE-01: after the lease a retry runs")
	require.Equal(t, "run 2 takeover true", r.Body, "the handler must know that the effect may have happened")
	require.Equal(t, 2, c.runs())
}

// LSE-02.
func TestAKilledProcessLeavesAnUnknownOutcomeIfOnUnknownIsSet(t *testing.T, f adaptertest.Framework) {
	c := newCluster(t, f)
	a, b := c.spawnWith("500ms", "refuse"), c.spawnWith("500ms", "refuse")
	go func() { _, _ = a.slow() }()
	c.waitForRun(1)
	a.signal(syscall.SIGKILL)
	var r adaptertest.Reply
	require.Eventually(t, func() bool {
		r = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
		return strings.Contains(r.Body, "outcome-unknown")
	}, 10*time.Second, 10*time.Millisecond)
	for range 3 {
		require.Equal(t, http.StatusConflict, r.Status)
		require.Contains(t, r.Body, "outcome-unknown")
		r = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
	}
	require.Equal(t, 1, c.runs())
}

// LSE-04: SIGSTOP holds a process for longer than its lease, and a successor completes meanwhile. The paused process, which knows
// nothing of that, must not replace the outcome when it goes on, nor give its client a response that no retry gets.
func TestAPausedProcessCannotTouchItsSuccessorsRecord(t *testing.T, f adaptertest.Framework) {
	c := newCluster(t, f)
	a, b := c.spawn("600ms"), c.spawn("600ms")
	first := adaptertest.Async(func() adaptertest.Reply {
		r, err := a.slow()
		assert.NoError(t, err)
		return r
	})
	c.waitForRun(1)
	a.signal(syscall.SIGSTOP)
	c.finish(2)
	var second adaptertest.Reply
	require.Eventually(t, func() bool {
		second = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
		return second.Status == http.StatusCreated
	}, 5*time.Second, 10*time.Millisecond)
	a.signal(syscall.SIGCONT)
	c.finish(1)

	late := <-first
	assert.Equal(t, http.StatusConflict, late.Status, "LSE-04: the late answer is not the outcome: %s", late.Body)
	assert.Contains(t, late.Body, "claim-lost")
	replay := b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
	assert.Equal(t, second.Body, replay.Body, "the record stays the successor's")
	assert.True(t, replay.Replayed())
	assert.Equal(t, 2, c.runs())
}

// A process that is killed while it streams has kept nothing. So has one that a Fiber stream writer takes with it by a panic,
// which fasthttp does not recover.
func TestAProcessThatDiesWhileItStreamsIsTakenOver(t *testing.T, f adaptertest.Framework) {
	for _, refuse := range []bool{false, true} {
		c := newCluster(t, f)
		afterCrash := "again"
		if refuse {
			afterCrash = "refuse"
		}
		a, b := c.spawnWith("1s", afterCrash), c.spawnWith("1s", afterCrash)
		go func() { _, _ = a.Try(a.Client, "POST", "/stream", "B", "Idempotency-Key", "K") }()
		c.waitForRun(1)
		require.Equal(t, http.StatusConflict, b.Send("POST", "/stream", "B", "Idempotency-Key", "K").Status)
		if f.Fasthttp && !refuse {
			require.NoError(t, c.redis.Set(context.Background(), c.scope+":panic", 1, 0).Err())
			c.finish(1)
			_ = a.cmd.Wait()
			require.NoError(t, c.redis.Del(context.Background(), c.scope+":panic").Err())
		}
		a.signal(syscall.SIGKILL)
		c.finish(2)
		var r adaptertest.Reply
		require.Eventually(t, func() bool {
			r = b.Send("POST", "/stream", "B", "Idempotency-Key", "K")
			return r.Status == http.StatusCreated || strings.Contains(r.Body, "outcome-unknown")
		}, 10*time.Second, 10*time.Millisecond)
		require.Equal(t, refuse, r.Status == http.StatusConflict, r.Body)
		if !refuse {
			require.Equal(t, "begin run 2 takeover true", r.Body)
		}
	}
}
