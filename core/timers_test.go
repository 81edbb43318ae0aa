package core

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
)

// watching is a store that looks whether a call has ended, as clients of servers do.
type watching struct {
	driver.Store
	entry driver.Entry
	err   error // of the verb that ends a run
}

func (s *watching) Begin(ctx context.Context, _ driver.Claim) (driver.Entry, error) {
	ctx.Done()
	return s.entry, nil
}

func (s *watching) Extend(ctx context.Context, _ driver.Claim) error { ctx.Done(); return nil }

func (s *watching) Complete(ctx context.Context, _ driver.Claim, _ []byte) error {
	ctx.Done()
	return s.err
}

func (s *watching) Fail(ctx context.Context, _ driver.Claim, _ driver.Failure) error {
	ctx.Done()
	return s.err
}

func TestAnOperationLeavesNothingBehind(t *testing.T) {
	claimed := driver.Entry{State: driver.Claimed, Fence: 1, Attempt: 1, Remaining: time.Second}
	made := func(context.Context) (*Response, error) { return &Response{Status: 201}, nil }
	for name, c := range map[string]struct {
		store watching
		run   handler
	}{
		"kept":        {watching{entry: claimed}, made},
		"lost":        {watching{entry: claimed, err: ErrLost}, made},
		"not kept":    {watching{entry: claimed, err: context.DeadlineExceeded}, made},
		"failed":      {watching{entry: claimed}, func(context.Context) (*Response, error) { return nil, context.Canceled }},
		"panicked":    {watching{entry: claimed}, func(context.Context) (*Response, error) { panic("boom") }},
		"gone":        {watching{entry: claimed}, func(context.Context) (*Response, error) { runtime.Goexit(); return nil, nil }},
		"in progress": {watching{entry: driver.Entry{State: driver.InProgress, Remaining: time.Second}}, made},
		"mismatch":    {watching{entry: driver.Entry{State: driver.Mismatch}}, made},
		"replay":      {watching{entry: driver.Entry{State: driver.Completed, Outcome: encodeOutcome(&Response{Status: 201}, "")}}, made},
		"lasts for a while": {watching{entry: claimed}, func(ctx context.Context) (*Response, error) {
			time.Sleep(100 * time.Millisecond)
			return made(ctx)
		}},
		"is extended": {watching{entry: claimed}, func(ctx context.Context) (*Response, error) {
			time.Sleep(3500 * time.Millisecond)
			return made(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				onReplay := func(ctx context.Context, _ *Request, stored *Response) (*Response, error) {
					ctx.Done()
					return stored, nil
				}
				e, err := New(Config{
					Store: &c.store, Scope: SingleTenant,
					Lease: LeaseConfig{Duration: 10 * time.Second}, Keep: KeepConfig{OnReplay: onReplay},
				})
				assert.NoError(t, err)
				during := 0
				var all sync.WaitGroup
				all.Go(func() {
					defer func() { _ = recover() }()
					key := func(string) []string { return []string{"K"} }
					_, _ = e.Do(context.Background(), Request{Method: "POST", Header: key, Body: func(int64) ([]byte, error) { return nil, nil }}, func(ctx context.Context) (*Response, error) {
						during = e.timers.Len()
						return c.run(ctx)
					})
				})
				all.Wait()
				assert.Zero(t, e.timers.Len())
				if c.store.entry.State == driver.Claimed {
					assert.Equal(t, 1, during, "the first extension")
				}
				assert.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
