package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

const second = time.Second

// guest tells when it was come to, from its making on.
type guest struct {
	appointment
	made time.Time
	came []time.Duration
}

func newGuest() *guest { return &guest{made: time.Now()} }

func (g *guest) come() { g.came = append(g.came, time.Since(g.made)) }

// at makes an appointment.
func (g *guest) at(q *queue, after time.Duration) { g.set(q, g, g.made.Add(after)) }

func TestAppointmentsAreKeptInAnyOrderTheyAreMade(t *testing.T) {
	for name, after := range map[string][]time.Duration{
		"in order":          {1 * second, 2 * second, 3 * second},
		"backwards":         {3 * second, 2 * second, 1 * second},
		"in between":        {1 * second, 3 * second, 2 * second},
		"at once":           {second, second, second},
		"when they are due": {-second, 0, -second},
	} {
		inQueues(t, name, func(t *testing.T, q, _ *queue) {
			guests := make([]*guest, len(after))
			for i := range guests {
				guests[i] = newGuest()
				guests[i].at(q, after[i])
			}
			wait(4 * second)
			for i, g := range guests {
				assert.Equal(t, []time.Duration{max(after[i], 0)}, g.came)
			}
		})
	}
}

// wait is a time in which everything happens that is to happen.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inQueues runs a test with two queues, which are empty in the end.
func inQueues(t *testing.T, name string, test func(t *testing.T, near, far *queue)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var near, far queue
			test(t, &near, &far)
			for _, q := range []*queue{&near, &far} {
				assert.Zero(t, q.length())
				assert.Nil(t, q.first)
				assert.Nil(t, q.last)
			}
		})
	})
}

func TestAnAppointmentIsTheLastThatWasMade(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *guest, near, far *queue) // one second before the first
		came   []time.Duration
	}{
		"left alone":                      {func(*guest, *queue, *queue) {}, []time.Duration{2 * second}},
		"put off":                         {func(g *guest, _, far *queue) { g.at(far, 9*second) }, []time.Duration{9 * second}},
		"put off in the same queue":       {func(g *guest, near, _ *queue) { g.at(near, 9*second) }, []time.Duration{9 * second}},
		"put off twice":                   {func(g *guest, near, far *queue) { g.at(far, 5*second); g.at(near, 9*second) }, []time.Duration{9 * second}},
		"moved up":                        {func(g *guest, _, far *queue) { g.at(far, 1500*time.Millisecond) }, []time.Duration{1500 * time.Millisecond}},
		"moved up to a time that is over": {func(g *guest, _, far *queue) { g.at(far, 0) }, []time.Duration{1 * second}},
		"put off, and back":               {func(g *guest, near, far *queue) { g.at(far, 9*second); g.at(near, 2*second) }, []time.Duration{2 * second}},
		"cancelled":                       {func(g *guest, _, _ *queue) { g.cancel() }, nil},
		"cancelled, and made anew":        {func(g *guest, _, far *queue) { g.cancel(); g.at(far, 3*second) }, []time.Duration{3 * second}},
		"made anew when its turn is over": {func(g *guest, near, _ *queue) {
			g.cancel()
			wait(3 * second)
			g.at(near, 5*second)
		}, []time.Duration{5 * second}},
		"made anew when it was kept": {func(g *guest, near, _ *queue) {
			wait(3 * second)
			g.at(near, 5*second)
		}, []time.Duration{2 * second, 5 * second}},
		"ended":                {func(g *guest, _, _ *queue) { g.end() }, nil},
		"put off, and ended":   {func(g *guest, _, far *queue) { g.at(far, 9*second); g.end() }, nil},
		"ended, and made anew": {func(g *guest, _, far *queue) { g.end(); g.at(far, 3*second) }, []time.Duration{3 * second}},
	} {
		for _, others := range []bool{false, true} {
			inQueues(t, fmt.Sprint(name, ", others around it ", others), func(t *testing.T, near, far *queue) {
				var around []*guest
				if others {
					for range 2 {
						around = append(around, newGuest(), newGuest())
						around[len(around)-2].at(near, 2*second)
						around[len(around)-1].at(far, 3*second)
					}
				}
				g := newGuest()
				g.at(near, 2*second)
				if others {
					around = append(around, newGuest())
					around[len(around)-1].at(near, 2*second)
				}
				wait(second)
				c.change(g, near, far)
				wait(10 * second)
				assert.Equal(t, c.came, g.came)
				for _, other := range around {
					assert.Len(t, other.came, 1)
				}
			})
		}
	}
}

// An operation that ends leaves at once, also with a place that it does not need any more.
func TestWhoEndsLeavesTheQueue(t *testing.T) {
	var near, far queue
	g := newGuest()
	g.at(&near, time.Hour)
	g.at(&far, 2*time.Hour)
	g.cancel()
	assert.Equal(t, 1, near.length())
	g.end()
	assert.Zero(t, near.length())
}

// A turn of an appointment that has ended meanwhile is nobody's.
func TestALateTurnFindsNobody(t *testing.T) {
	g := newGuest()
	g.end()
	g.turn()
	assert.Nil(t, g.in)
}

// A turn that has come and is not taken yet is not that of an appointment that was made meanwhile.
func TestALateTurnFindsANewPlace(t *testing.T) {
	inQueues(t, "queue", func(t *testing.T, near, far *queue) {
		g := newGuest()
		g.at(near, second)
		near.timer.Stop()
		time.Sleep(second)
		let := near.take() // and nobody has told them
		g.at(near, second/2)
		g.at(far, 5*second)
		g.turn()
		assert.Equal(t, 1, near.length()+far.length())
		assert.Equal(t, []*appointment{&g.appointment}, let)
		wait(10 * second)
		assert.Equal(t, []time.Duration{5 * second}, g.came)
	})
}
