package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// Operations that are no requests.

var job = core.Task{Kind: "JOB", Scope: "tenant-1", Key: "K", Input: []byte("input")}

// doTask runs a task and counts the run.
func (f *fixture) doTask(task core.Task, h handler) core.Result {
	f.tb.Helper()
	result, err := f.DoTask(ctx, task, func(ctx context.Context) (*core.Response, error) {
		f.runs.Add(1)
		return h(ctx)
	})
	require.NoError(f.tb, err)
	return result
}

func TestATaskRunsOnceAndItsResponseIsHandedToRetries(t *testing.T) {
	f := newFixture(t)
	first := f.doTask(job, made)
	f.answered(first, 201, "made")
	assert.Equal(t, 1, first.Attempt)
	f.replayed(f.doTask(job, made), 201, "made")
	f.ran(1)
}

func TestTheNameOfATask(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Key.PerRoute = true })
	f.answered(f.doTask(job, made), 201, "made")
	for _, other := range []core.Task{
		{Kind: "COMMAND", Scope: job.Scope, Key: job.Key}, {Kind: job.Kind, Scope: "tenant-2", Key: job.Key}, {Kind: job.Kind, Scope: job.Scope, Key: "L"},
	} {
		f.answered(f.doTask(other, made), 201, "made")
	}
	f.ran(4)
	for _, kind := range []string{"", "POST /orders"} {
		_, err := f.DoTask(ctx, core.Task{Kind: kind, Scope: "s", Key: "K"}, made)
		assert.ErrorContains(t, err, "Task.Kind")
	}
}

func TestATaskIsRefusedByCode(t *testing.T) {
	f := newFixture(t)
	f.refused(f.doTask(core.Task{Kind: "JOB", Key: "K"}, made), 401, "scope-missing")
	f.refused(f.doTask(core.Task{Kind: "JOB", Scope: "s"}, made), 400, "key-missing")
	f.doTask(job, func(context.Context) (*core.Response, error) {
		busy := f.doTask(job, made)
		f.refused(busy, 409, "in-progress")
		assert.Equal(t, 2*time.Second, busy.RetryAfter, "a tenth of the lease that is left")
		return made(ctx)
	})
	other := job
	other.Input = []byte("other")
	f.refused(f.doTask(other, made), 422, "fingerprint-mismatch")
	f.store.Inject("begin", storetest.Before, 1)
	f.refused(f.doTask(job, made), 503, "store-unavailable")
	f.close()
}

func TestATaskInsideItsOwnRunIsItsCallers(t *testing.T) {
	f := newFixture(t)
	f.doTask(job, func(ctx context.Context) (*core.Response, error) {
		inner, err := f.DoTask(ctx, job, made)
		require.NoError(t, err)
		assert.Equal(t, core.Result{Bypassed: true, Attempt: 1}, inner)
		differs := f.with(func(c *core.Config) { c.Keep.MaxBody = 7 })
		refused, err := differs.DoTask(ctx, job, made)
		require.NoError(t, err)
		f.refused(refused, 500, "nested-engine")
		assert.ErrorContains(t, refused.Err, "Keep.MaxBody")
		return made(ctx)
	})
}

func TestATaskThatReleasesItsKeyHasUsedUpNoAttempt(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		result, err := f.DoTask(ctx, job, func(ctx context.Context) (*core.Response, error) {
			assert.Equal(t, core.Keep, f.seen(ctx).Decision)
			core.Decide(ctx, core.Release)
			assert.Equal(t, core.Release, f.seen(ctx).Decision)
			return nil, errTest
		})
		assert.Equal(t, errTest, err)
		assert.Equal(t, core.Release, result.Decision)
		assert.Equal(t, 1, result.Attempt)
		events := f.heard.take()
		assert.Equal(t, "failed", lastOf(events))
		assert.EqualError(t, events[len(events)-1].Err, errTest.Error())
	}
	_, err := f.DoTask(ctx, job, func(context.Context) (*core.Response, error) { return nil, errTest })
	assert.Equal(t, errTest, err)
	assert.Equal(t, 2, f.doTask(job, made).Attempt)
}

func TestATaskThatReleasesItsKeyHasItsResponse(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		result := f.doTask(job, func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.Release)
			return made(ctx)
		})
		f.answered(result, 201, "made")
		assert.Equal(t, core.Release, result.Decision)
	}
	f.ran(2)
}

// What OnUnknown has found is the result only if it is stored.
func TestATaskWhoseFoundOutcomeIsNotStoredIsRefused(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t)
		f.doTask(job, func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return made(ctx)
		})
		time.Sleep(lease)
		finding := f.with(func(c *core.Config) {
			c.Store = scripted{Store: f.store, complete: func(driver.Claim) error { return lostBecause("another has it") }}
			c.Lease.OnUnknown = func(context.Context, *core.Request) (*core.Response, error) { return found(), nil }
		})
		finding.refused(finding.doTask(job, made), 409, "claim-lost")
		f.ran(1)
	})
}

func TestADeadTaskIsRevived(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Keep.Policy = core.KeepAll })
	f.answered(f.doTask(job, answers(500, "dead")), 500, "dead")
	f.replayed(f.doTask(job, made), 500, "dead")
	require.NoError(t, f.Resolve(ctx, core.Task{Kind: job.Kind, Scope: job.Scope, Key: job.Key}, nil))
	f.answered(f.doTask(job, made), 201, "made")
}
