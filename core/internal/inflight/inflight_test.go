package inflight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestAnEmptyGroupIsIdle(t *testing.T) {
	g := New()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Zero(t, g.Len())
	assert.NoError(t, g.Wait(t.Context()))
	assert.NoError(t, g.Wait(ended), "there is nothing to wait for")
}

func TestWaitReturnsWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := New(), make(chan struct{})
		g.Go(func(int) { <-end })
		g.Add()
		assert.Equal(t, 2, g.Len())
		idle := make(chan error)
		go func() { idle <- g.Wait(t.Context()) }()
		synctest.Wait()
		close(end)
		synctest.Wait()
		assert.Equal(t, 1, g.Len())
		select {
		case <-idle:
			t.Error("one still runs")
		default:
		}
		g.Done()
		assert.NoError(t, <-idle)
		assert.Zero(t, g.Len())
	})
}

func TestWaitReturnsTheCauseOfItsContext(t *testing.T) {
	g := New()
	g.Add()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no time left")
	cancel(cause)
	assert.Equal(t, cause, g.Wait(ctx))
	g.Done()
	assert.NoError(t, g.Wait(ctx))
}

func TestAGroupIsUsedAgain(t *testing.T) {
	g := New()
	for range 3 {
		g.Go(func(int) {})
		assert.NoError(t, g.Wait(t.Context()))
	}
}

// A sync.WaitGroup forbids this.
func TestGoroutinesMayBeAddedDuringAWait(t *testing.T) {
	g := New()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				g.Go(func(int) {})
				assert.NoError(t, g.Wait(t.Context()))
			}
		})
	}
	all.Wait()
	assert.NoError(t, g.Wait(t.Context()))
	assert.Zero(t, g.Len())
}
