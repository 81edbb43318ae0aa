package retry

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

const lease = 6 * time.Second

// script is a commit that does what a test says.
type script struct {
	send   func() bool
	extend func() Extension
	began  time.Time
	log    []string        // of what was called
	at     []time.Duration // when, counted from began
}

func (s *script) note(what string) {
	s.log = append(s.log, what)
	s.at = append(s.at, time.Since(s.began))
}

func (s *script) Send() bool {
	s.note("send")
	return s.send()
}

func (s *script) Extend() Extension {
	s.note("extend")
	return s.extend()
}

func (s *script) Refused() { s.note("refused") }
func (s *script) GivenUp() { s.note("given up") }

// first returns when what was first called.
func (s *script) first(what string) time.Duration {
	for i, name := range s.log {
		if name == what {
			return s.at[i]
		}
	}
	return -1
}

func (s *script) calls() string { return strings.Join(s.log, " ") }

func (s *script) count(what string) (n int) {
	for _, name := range s.log {
		if name == what {
			n++
		}
	}
	return n
}

// start adds a commit of a fresh claim to a new queue, and sets when the commit began.
func (s *script) start() *Pending[*script] {
	s.began = time.Now()
	return NewQueue[*script]().Add(Claim{Lease: lease, Confirmed: s.began}, s)
}

// runs runs a test of one commit in a bubble, with what its calls return.
func runs(t *testing.T, name string, send func() bool, extend func() Extension, test func(t *testing.T, s *script)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{send: send, extend: extend}
			p := s.start()
			p.Run(s.began)
			select {
			case <-p.Done():
			default:
				t.Error("the commit is still in its queue")
			}
			test(t, s)
		})
	})
}

// failing returns a send that is settled after n failures.
func failing(n int) func() bool {
	return func() bool { n--; return n < 0 }
}

func never() bool              { return false }
func silent() Extension        { return NotExtended }
func extended() Extension      { return Extended }
func mustNotExtend() Extension { panic("the lease is young") }

func TestACommitIsSentUntilItIsSettled(t *testing.T) {
	runs(t, "at once", failing(0), mustNotExtend, func(t *testing.T, s *script) {
		assert.Equal(t, "send", s.calls())
		assert.Zero(t, time.Since(s.began))
	})
	runs(t, "after failures", failing(3), mustNotExtend, func(t *testing.T, s *script) {
		assert.Equal(t, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, s.at)
	})
	runs(t, "by a store that extends the claim", failing(15), extended, func(t *testing.T, s *script) {
		assert.InDelta(t, lease/3, s.first("extend"), float64(MaxPause))
		assert.Equal(t, 1, s.count("extend"))
		assert.Equal(t, "send", s.log[len(s.log)-1])
	})
}

func TestACommitIsGivenUpAfterTenLeases(t *testing.T) {
	for name, extend := range map[string]func() Extension{"of a silent store": silent, "of a store that refuses it": extended} {
		runs(t, name, never, extend, func(t *testing.T, s *script) {
			assert.Equal(t, "given up", s.log[len(s.log)-1])
			assert.InDelta(t, 10*lease, time.Since(s.began), float64(MaxPause))
		})
	}
}

func TestALostClaimSettlesItsCommitWithOneMoreCall(t *testing.T) {
	isLost := false
	send := func() bool { return isLost }
	runs(t, "", send, func() Extension { isLost = true; return Lost }, func(t *testing.T, s *script) {
		assert.True(t, strings.HasSuffix(s.calls(), "send extend send"), s.calls())
		assert.Equal(t, s.first("extend"), s.at[len(s.at)-1], "at once")
	})
}

func TestACommitThatIsRefusedForALease(t *testing.T) {
	runs(t, "", never, extended, func(t *testing.T, s *script) {
		assert.InDelta(t, lease, s.first("refused"), float64(lease/2))
		assert.GreaterOrEqual(t, s.first("refused"), lease)
		assert.InDelta(t, 30, s.count("extend"), 5, "after each third of the lease")
	})
	runs(t, "by a store that responds to nothing else", never, silent, func(t *testing.T, s *script) {
		assert.Zero(t, s.count("refused"))
	})
}

// The first attempt hangs while the store responds to others, so the store is available: the second attempt follows at once.
func TestACommitWhoseCallHungIsSentAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *Pending[*script]
		s := &script{extend: mustNotExtend}
		s.send = func() bool {
			err := p.Call(t.Context(), func(ctx context.Context) error {
				if s.count("send") == 1 {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			return err == nil
		}
		p = s.start()
		time.AfterFunc(ms, p.queue.Responded)
		p.Run(s.began)
		assert.Equal(t, []time.Duration{0, hungAfter}, s.at)
		assert.Equal(t, 1, p.hung)
	})
}

func TestACommitIsFoundByItsRecord(t *testing.T) {
	q := NewQueue[*script]()
	record, other := [32]byte{1}, [32]byte{2}
	assert.Nil(t, q.Find(&record))
	add := func(fence int64) *Pending[*script] { return q.Add(Claim{Record: record, Fence: fence}, &script{}) }
	second, first, third := add(2), add(1), add(3)
	assert.Nil(t, q.Find(&other))
	assert.Same(t, third, q.Find(&record), "the highest fence")
	q.Remove(first)
	q.Remove(second)
	assert.Same(t, third, q.Find(&record))
	assert.NotNil(t, third.Commit)
	q.Remove(third)
	<-third.Done()
	assert.Nil(t, q.Find(&record))
	assert.Empty(t, q.byRecord)
}

func TestAResponseWithoutPendingCommitsIsNotNoted(t *testing.T) {
	q := NewQueue[*script]()
	q.Responded()
	assert.True(t, q.IsSilent(time.Hour), "so it costs no lock")
	p := q.Add(Claim{Lease: lease}, &script{})
	q.Responded()
	assert.False(t, q.IsSilent(time.Hour))
	q.Failed()
	assert.Equal(t, FirstPause, q.limiter.pause)
	q.Remove(p)
}

func TestManyCommitsAreNoHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const commits = 3000
		q := NewQueue[*script]()
		var mu sync.Mutex
		var isBack bool
		var inFlight, most, sent int
		send := func() bool {
			mu.Lock()
			defer mu.Unlock()
			sent++
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			time.Sleep(ms)
			mu.Lock()
			inFlight--
			return isBack
		}
		var all sync.WaitGroup
		for i := range commits {
			claim := Claim{Record: [32]byte{byte(i), byte(i >> 8)}, Lease: time.Hour, Confirmed: time.Now()}
			p := q.Add(claim, &script{send: send, began: time.Now()})
			all.Go(func() { p.Run(time.Now()) })
		}
		time.Sleep(time.Minute)
		mu.Lock()
		assert.Equal(t, 1, most)
		assert.InDelta(t, time.Minute/MaxPause, sent, 10, "for all of them")
		isBack = true
		mu.Unlock()
		began := time.Now()
		all.Wait()
		assert.Less(t, time.Since(began), 2*time.Second)
		assert.LessOrEqual(t, most, maxLimit)
	})
}

func TestOfTwoCommitsOfARecordTheLaterClaimIsFound(t *testing.T) {
	q := NewQueue[*script]()
	older, newer, same := &script{}, &script{}, &script{}
	for _, add := range []struct {
		fence  int64
		commit *script
	}{{2, newer}, {1, older}, {2, same}} {
		q.Add(Claim{Lease: lease, Fence: add.fence}, add.commit)
		assert.Same(t, newer, q.Find(&[32]byte{}).Commit)
	}
	assert.Equal(t, MaxPause, q.limiter.maxPause)
	short := q.Add(Claim{Lease: 600 * ms, Record: [32]byte{1}}, older)
	assert.Equal(t, 100*ms, q.limiter.maxPause, "a sixth of the shortest lease")
	assert.EqualValues(t, 4, q.count.Load())
	q.Remove(short)
	assert.EqualValues(t, 3, q.count.Load(), "without commits, no request looks for one")
}

func TestTheAttemptsOfACommitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{send: failing(3), extend: mustNotExtend}
		p := s.start()
		p.Run(s.began)
		assert.Equal(t, 4, p.attempts)
	})
}

// A store that extends the claim is available. It is given longer and longer before it gets the commit again that it refuses.
func TestAStoreThatRefusesACommitGetsItAgainLater(t *testing.T) {
	runs(t, "", never, extended, func(t *testing.T, s *script) {
		var pauses []time.Duration
		extended := time.Duration(-1)
		for i, name := range s.log {
			switch {
			case name == "extend":
				extended = s.at[i]
			case name == "send" && extended >= 0:
				pauses, extended = append(pauses, s.at[i]-extended), -1
			}
		}
		assert.Equal(t, []time.Duration{20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 500 * ms, 500 * ms}, pauses[:7])
	})
}

func TestASettledCommitWhoseCallHungIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{extend: mustNotExtend}
		p := s.start()
		s.send = func() bool { p.hung++; return true }
		p.Run(s.began)
		assert.Equal(t, "send", s.calls())
	})
}

// The first extension after a silence says only that the store is back.
func TestACommitIsRefusedByAStoreThatHasAcceptedTwoExtensions(t *testing.T) {
	began, extensions := time.Time{}, 0
	extend := func() Extension {
		if time.Since(began) < 2*lease {
			return NotExtended
		}
		extensions++
		return Extended
	}
	send := func() bool {
		if began.IsZero() {
			began = time.Now()
		}
		return extensions == 3
	}
	runs(t, "", send, extend, func(t *testing.T, s *script) {
		accepted := 0
		for i, name := range s.log {
			if name == "extend" && s.at[i] >= 2*lease {
				accepted++
			}
			if name == "refused" {
				break
			}
		}
		assert.Equal(t, 2, accepted)
	})
}
