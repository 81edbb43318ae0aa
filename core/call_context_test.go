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

// watchedClient is a client's context that counts who watches it.
type watchedClient struct {
	context.Context
	watchers int
}

// Value hides what is inside, so that package context asks for AfterFunc.
func (w *watchedClient) Value(any) any { return nil }

// AfterFunc is how package context asks to be told of the end.
func (w *watchedClient) AfterFunc(f func()) (stop func() bool) {
	w.watchers++
	stopped := context.AfterFunc(w.Context, f)
	return func() bool {
		w.watchers--
		return stopped()
	}
}

func (q *queue) length() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a := q.first; a != nil; a = a.following {
		n++
	}
	return n
}

func TestACallLeavesNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, lasts             time.Duration
		patient, isSooner          bool
		looks, deadlines, watchers int // while it lasts
	}{
		"patient, and answered soon":              {timeout: time.Second, lasts: 19 * time.Millisecond, patient: true, looks: 1},
		"patient, and answered late":              {timeout: time.Second, lasts: 21 * time.Millisecond, patient: true, deadlines: 1, watchers: 1},
		"patient, with a client that has no time": {timeout: time.Second, lasts: time.Millisecond, patient: true, isSooner: true, deadlines: 1, watchers: 1},
		"patient, and with little time itself":    {timeout: 5 * time.Millisecond, lasts: time.Millisecond, patient: true, deadlines: 1, watchers: 1},
		"not patient":                             {timeout: time.Second, lasts: time.Millisecond, deadlines: 1, watchers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &Engine{}
				stays, leave := context.WithCancel(context.Background())
				defer leave()
				client := &watchedClient{Context: stays}
				if c.isSooner {
					sooner, cancel := context.WithTimeout(stays, c.timeout/2)
					defer cancel()
					client.Context = sooner
				}
				var next appointment
				call := callContext{patient: c.patient}
				done := call.start(e, client, time.Now().Add(c.timeout), &next).Done()
				time.Sleep(c.lasts)
				synctest.Wait()
				assert.Equal(t, []int{c.looks, c.deadlines, c.watchers}, []int{e.looks.length(), e.deadlines.length(), client.watchers})
				call.end(context.Canceled)
				<-done
				assert.Zero(t, client.watchers)
				assert.Nil(t, next.host)
				assert.Equal(t, []int{c.looks, c.deadlines}, []int{e.looks.length(), e.deadlines.length()}, "the place is for the operation's next")
				next.end()
				assert.Zero(t, e.looks.length()+e.deadlines.length())
			})
		})
	}
}

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
				e, err := New(Config{Store: &c.store, Scope: SingleTenant, Lease: LeaseConfig{Duration: 10 * time.Second}})
				assert.NoError(t, err)
				during := 0
				waiting := func() int { return e.looks.length() + e.deadlines.length() + e.extensions.length() }
				var all sync.WaitGroup
				all.Go(func() {
					defer func() { _ = recover() }()
					key := func(string) []string { return []string{"K"} }
					_, _ = e.Do(context.Background(), Request{Method: "POST", Header: key, Body: func(int64) ([]byte, error) { return nil, nil }}, func(ctx context.Context) (*Response, error) {
						during = waiting()
						return c.run(ctx)
					})
				})
				all.Wait()
				assert.Zero(t, waiting())
				if c.store.entry.State == driver.Claimed {
					assert.Equal(t, 1, during, "one place for call and keeper")
				}
				assert.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
