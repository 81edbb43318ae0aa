package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
				call := callContext{patient: c.patient}
				done := call.start(e, client, time.Now().Add(c.timeout)).Done()
				time.Sleep(c.lasts)
				synctest.Wait()
				assert.Equal(t, []int{c.looks, c.deadlines, c.watchers}, []int{e.looks.length(), e.deadlines.length(), client.watchers})
				call.end(context.Canceled)
				<-done
				assert.Zero(t, e.looks.length()+e.deadlines.length()+client.watchers)
			})
		})
	}
}
