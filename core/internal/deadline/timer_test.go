package deadline

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// recorder is a Func that records when it was called.
type recorder struct {
	began time.Time
	fired []time.Duration
}

func (r *recorder) Fire() { r.fired = append(r.fired, time.Since(r.began)) }

// pause lets time pass, and returns when all that was due has happened.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// FuzzTimer does the same to timers of a queue and to timers of package time: each byte of the input is one call or a pause. The
// same calls happen at the same times, and Stop reports the same.
func FuzzTimer(f *testing.F) {
	for _, seed := range []string{"", "\x58\x89\xc8", "\x88\xc9\x19", "\x00\x10\x20", "\x03\x02\x01\x00\xff\xff", "aBcDeF0123456789", "\x00\x80\x00\x01\x81\xc0\x41\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, calls []byte) {
		synctest.Test(t, func(t *testing.T) {
			const timers = 4
			var queue Queue
			var ours [timers]Timer
			var plain [timers]*time.Timer
			var got, want [timers]recorder
			for i := range timers {
				got[i].began, want[i].began = time.Now(), time.Now()
				plain[i] = time.AfterFunc(time.Hour, want[i].Fire)
				plain[i].Stop()
			}
			for _, call := range calls {
				i, length := call%timers, time.Duration(call>>4)*time.Millisecond
				switch call >> 2 % 4 {
				case 0:
					pause(length)
				case 1:
					assert.Equal(t, plain[i].Stop(), ours[i].Stop())
				default:
					plain[i].Reset(length)
					queue.At(&ours[i], time.Now().Add(length), &got[i])
				}
				synctest.Wait()
			}
			pause(time.Second)
			assert.Equal(t, want, got)
			assert.Zero(t, queue.Len())
			assert.True(t, queue.wake.IsZero(), "the runtime timer has fired for the last time")
		})
	})
}

func TestStoppedTimersLeaveTheQueueAtOnce(t *testing.T) {
	var queue Queue
	var never, stopped Timer
	assert.False(t, never.Stop())
	queue.At(&stopped, time.Now().Add(time.Hour), &recorder{})
	assert.Equal(t, 1, queue.Len())
	assert.True(t, stopped.Stop())
	assert.False(t, stopped.Stop())
	assert.Zero(t, queue.Len())
	assert.Nil(t, queue.timers[:1][0], "the queue holds on to nothing")
}

func TestManyTimersFireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timers = 300
		var queue Queue
		var all [timers]Timer
		var fired [timers]recorder
		for i := range timers {
			fired[i].began = time.Now()
			queue.At(&all[i], time.Now().Add(time.Duration(1+i*7919%timers)*time.Second), &fired[i])
		}
		for i := range timers {
			if i%3 == 0 {
				assert.True(t, all[i].Stop())
			}
		}
		pause(timers * time.Second)
		for i := range timers {
			if i%3 == 0 {
				assert.Empty(t, fired[i].fired)
			} else {
				assert.Equal(t, []time.Duration{time.Duration(1+i*7919%timers) * time.Second}, fired[i].fired)
			}
		}
	})
}

func TestTimersAllocateNothing(t *testing.T) {
	var queue Queue
	var timer Timer
	f := &recorder{}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		queue.At(&timer, time.Now().Add(time.Hour), f)
		timer.Stop()
	}))
}
