package retry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestUntilDoublesItsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var sent []time.Duration
		done := Until(began.Add(20*time.Second), func() bool {
			sent = append(sent, time.Since(began).Round(time.Millisecond))
			return len(sent) == 12
		})
		assert.True(t, done)
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms, 300 * ms, 620 * ms, 1260 * ms, 2540 * ms, 5100 * ms,
			10100 * ms, 15100 * ms, 20000 * ms}, sent, "the longest pause is five seconds, and the last call is at the deadline")
	})
}

func TestUntilCallsOnceWhenTheDeadlineHasPassed(t *testing.T) {
	for _, want := range []bool{false, true} {
		calls := 0
		assert.Equal(t, want, Until(time.Now(), func() bool { calls++; return want }))
		assert.Equal(t, 1, calls)
	}
}
