package deadline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type valueKey struct{}

var errCause = errors.New("the client has left")

// pair is a context of this package and one of package context that is to behave the same.
type pair struct {
	ours, plain context.Context
	parent      context.Context    // its end is the end of both; nil for a detached pair
	cancel      func()             // cancels both
	late        time.Duration      // how late the channel of ours may be when the parent is cancelled
	leave       context.CancelFunc // cancels the parent
	left        bool               // the parent was cancelled
	sinceDone   time.Time          // when Done was first called
}

// isLate tells whether the channel of ours may still be open although that of plain is closed.
func (p *pair) isLate() bool { return p.left && time.Since(p.sinceDone) < p.late }

// check compares what both contexts say.
func (p *pair) check(t *testing.T) {
	deadline, ok := p.plain.Deadline()
	got, gotOK := p.ours.Deadline()
	assert.Equal(t, ok, gotOK)
	assert.True(t, deadline.Equal(got))
	assert.Equal(t, p.plain.Value(valueKey{}), p.ours.Value(valueKey{}))
}

// checkErr compares Err and the cause.
func (p *pair) checkErr(t *testing.T) {
	assert.Equal(t, p.plain.Err(), p.ours.Err())
	want := context.Cause(p.plain)
	if p.parent != nil && p.parent.Err() != nil {
		want = context.Cause(p.parent)
	}
	assert.Equal(t, want, context.Cause(p.ours))
}

// checkDone compares the channels.
func (p *pair) checkDone(t *testing.T) {
	if p.sinceDone.IsZero() {
		p.sinceDone = time.Now()
		p.ours.Done()
	}
	synctest.Wait()
	if isOver(p.plain) && p.isLate() {
		return
	}
	assert.Equal(t, isOver(p.plain), isOver(p.ours), "after %v", time.Since(p.sinceDone))
}

// isOver tells whether the channel of ctx is closed.
func isOver(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// play does what the input says to the pair. It calls Err whenever the time may be up, since a Context that nobody asks does not know
// whether its deadline or another end was first.
func (p *pair) play(t *testing.T, calls []byte) {
	p.checkErr(t)
	for _, call := range calls {
		switch call % 6 {
		case 0, 1:
			pause(time.Duration(call>>3) * time.Millisecond)
			p.checkErr(t)
		case 2:
			p.checkDone(t)
		case 3:
			p.check(t)
		case 4:
			p.leave()
			p.left = true
			synctest.Wait()
			if call>>3%2 == 0 {
				p.checkErr(t)
			}
		case 5:
			if call>>3%4 == 0 {
				p.cancel()
				p.checkErr(t)
			}
		}
	}
	pause(time.Second)
	p.check(t)
	p.checkDone(t)
	p.checkErr(t)
}

// FuzzContext compares contexts of this package with those of package context, under the same random calls.
func FuzzContext(f *testing.F) {
	for _, kind := range []byte{0, 1, 2, 3, 7} {
		f.Add(kind, byte(50), byte(0), []byte{2, 0x50, 2, 0xf8, 2})
		f.Add(kind, byte(100), byte(30), []byte{2, 0x08, 4, 2, 0x50, 2, 0x60, 2})
		f.Add(kind, byte(10), byte(0), []byte{2, 4, 0x08, 2, 5, 2})
		f.Add(kind, byte(30), byte(90), []byte{0x50, 2, 12, 0x70, 5, 2, 3})
	}
	f.Fuzz(func(t *testing.T, kind, timeout, parentTimeout byte, calls []byte) {
		synctest.Test(t, func(t *testing.T) {
			parent, leave := context.WithCancelCause(context.WithValue(context.Background(), valueKey{}, "value"))
			defer leave(nil)
			if parentTimeout > 0 {
				timed, cancel := context.WithTimeout(parent, time.Duration(parentTimeout)*time.Millisecond)
				defer cancel()
				parent = timed
			}
			var queue Queue
			p := newPair(&queue, parent, kind, time.Now().Add(time.Duration(timeout)*time.Millisecond))
			p.leave = func() { leave(errCause) }
			defer p.cancel()
			p.play(t, calls)
			p.cancel()
			assert.Zero(t, queue.Len())
		})
	})
}

// newPair makes a Context of one of the three modes, or a Detached.
func newPair(queue *Queue, parent context.Context, kind byte, deadline time.Time) *pair {
	if kind%4 == 3 {
		return newDetachedPair(parent, []error{nil, errCause}[kind/4%2])
	}
	mode := Mode(kind % 4)
	p := &pair{parent: parent}
	plainParent := parent
	switch mode {
	case CancelLazily:
		p.late = cancelCheckDelay
	case CancelNever:
		p.parent, plainParent = nil, context.WithoutCancel(parent)
	}
	plain, cancel := context.WithDeadline(plainParent, deadline)
	ours := &Context{}
	ours.Init(queue, parent, deadline, mode)
	p.ours, p.plain, p.cancel = ours, plain, func() { cancel(); ours.Cancel() }
	return p
}

func newDetachedPair(parent context.Context, cause error) *pair {
	plain, end := context.WithCancelCause(context.WithoutCancel(parent))
	cancel := func() {}
	if deadline, ok := parent.Deadline(); ok {
		plain, cancel = context.WithDeadline(plain, deadline)
	}
	ours := &Detached{}
	ours.Init(parent)
	return &pair{ours: ours, plain: plain, cancel: func() { end(cause); cancel(); ours.Cancel(cause) }}
}

// watchedParent is a context that counts the registrations for its end.
type watchedParent struct {
	context.Context
	watchers int
}

// Value hides what is inside, so that package context calls AfterFunc.
func (w *watchedParent) Value(any) any { return nil }

// AfterFunc is what package context calls to register.
func (w *watchedParent) AfterFunc(f func()) (stop func() bool) {
	w.watchers++
	stopped := context.AfterFunc(w.Context, f)
	return func() bool {
		w.watchers--
		return stopped()
	}
}

func TestAContextLeavesNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, lasts time.Duration
		isParentFirst  bool
		mode           Mode
		watchers       int // while it lasts
	}{
		"ends soon":                         {mode: CancelLazily, timeout: time.Second, lasts: 19 * time.Millisecond},
		"ends late":                         {mode: CancelLazily, timeout: time.Second, lasts: 21 * time.Millisecond, watchers: 1},
		"the deadline of the parent":        {mode: CancelLazily, timeout: time.Second, lasts: time.Millisecond, isParentFirst: true, watchers: 1},
		"a deadline before the first check": {mode: CancelLazily, timeout: 5 * time.Millisecond, lasts: time.Millisecond, watchers: 1},
		"cancelled at once":                 {timeout: time.Second, lasts: time.Millisecond, watchers: 1},
		"cancelled never":                   {mode: CancelNever, timeout: time.Second, lasts: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stays, leave := context.WithCancel(context.Background())
				defer leave()
				parent := &watchedParent{Context: stays}
				if c.isParentFirst {
					sooner, cancel := context.WithTimeout(stays, c.timeout/2)
					defer cancel()
					parent.Context = sooner
				}
				var queue Queue
				var ctx Context
				ctx.Init(&queue, parent, time.Now().Add(c.timeout), c.mode)
				assert.Zero(t, queue.Len(), "nobody waits for the end")
				done := ctx.Done()
				pause(c.lasts)
				assert.Equal(t, []int{1, c.watchers}, []int{queue.Len(), parent.watchers})
				ctx.Cancel()
				<-done
				assert.Equal(t, []int{0, 0}, []int{queue.Len(), parent.watchers})
			})
		})
	}
}

// The first check of the parent comes 20 ms after the first call of Done. From then on the end of the parent is noticed at once.
func TestALazyContextNoticesTheEndOfItsParentSoon(t *testing.T) {
	for _, stays := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			parent, leave := context.WithCancel(context.Background())
			time.AfterFunc(stays, leave)
			var queue Queue
			began := time.Now()
			var ctx Context
			ctx.Init(&queue, parent, began.Add(time.Second), CancelLazily)
			<-ctx.Done()
			assert.Equal(t, max(stays, cancelCheckDelay), time.Since(began))
			assert.Equal(t, context.Canceled, ctx.Err())
			assert.Zero(t, queue.Len())
		})
	}
}

func TestAContextCostsItsChannel(t *testing.T) {
	const calls = 100
	var queue Queue
	parent, leave := context.WithCancel(context.Background())
	defer leave()
	for _, mode := range []Mode{CancelLazily, CancelNever} {
		var contexts [calls + 1]Context
		next := 0
		assert.EqualValues(t, 1, testing.AllocsPerRun(calls, func() {
			ctx := &contexts[next]
			next++
			ctx.Init(&queue, parent, time.Now().Add(time.Hour), mode)
			ctx.Done()
			ctx.Cancel()
		}))
	}
}

func TestAContextMayEndBeforeAnybodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []Mode{CancelAtOnce, CancelLazily, CancelNever} {
			var queue Queue
			var cancelled, late Context
			cancelled.Init(&queue, context.Background(), time.Now().Add(time.Hour), mode)
			cancelled.Cancel()
			cancelled.Cancel()
			assert.True(t, isOver(&cancelled), "the channel is closed when Done returns it")
			assert.Equal(t, context.Canceled, cancelled.Err())

			late.Init(&queue, context.Background(), time.Now(), mode)
			assert.True(t, isOver(&late), "the deadline has passed when Done is called")
			assert.Equal(t, context.DeadlineExceeded, late.Err())
			assert.Zero(t, queue.Len())
		}
	})
}

func TestAContextHasOneChannel(t *testing.T) {
	var queue Queue
	ctx := queue.WithDeadline(context.Background(), time.Now().Add(time.Hour))
	first := ctx.Done()
	assert.Equal(t, first, ctx.Done())
	ctx.Cancel()
	<-first
}

func TestADetachedContextMayEndBeforeAnybodyAsks(t *testing.T) {
	parent, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, parent := range []context.Context{context.Background(), parent} {
		for cause, want := range map[error]error{nil: context.Canceled, errCause: errCause} {
			var ctx Detached
			ctx.Init(parent)
			ctx.Cancel(cause)
			assert.True(t, isOver(&ctx))
			assert.Equal(t, context.Canceled, ctx.Err())
			assert.Equal(t, want, context.Cause(&ctx))
		}
	}
}
