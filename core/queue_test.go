package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type guest struct {
	appointment
	came chan time.Time
}

func (g *guest) come() { g.came <- time.Now() }

func TestAppointmentsAreKeptInAnyOrderTheyAreMade(t *testing.T) {
	const second = time.Second
	for name, after := range map[string][]time.Duration{
		"in order":          {1 * second, 2 * second, 3 * second},
		"backwards":         {3 * second, 2 * second, 1 * second},
		"in between":        {1 * second, 3 * second, 2 * second},
		"at once":           {second, second, second},
		"when they are due": {-second, 0, -second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q queue
				now := time.Now()
				guests := make([]guest, len(after))
				for i := range guests {
					g := &guests[i]
					g.due, g.of, g.came = now.Add(after[i]), g, make(chan time.Time, 1)
					q.add(&g.appointment)
				}
				for i := range guests {
					assert.Equal(t, max(after[i], 0), (<-guests[i].came).Sub(now))
				}
				cancelled := &guest{came: make(chan time.Time, 1)}
				cancelled.due, cancelled.of = time.Now().Add(second), cancelled
				q.add(&cancelled.appointment)
				q.remove(&cancelled.appointment)
				q.remove(&guests[0].appointment)
				time.Sleep(2 * second)
				synctest.Wait()
				assert.Empty(t, cancelled.came)
				assert.Nil(t, q.first)
				assert.Nil(t, q.last)
			})
		})
	}
}
