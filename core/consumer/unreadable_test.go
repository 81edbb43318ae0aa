package consumer

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	life  = time.Hour
	bound = 3 * time.Hour
)

func TestARecordIsUnreadableSinceItWasFirstSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnreadable()
		for _, step := range []struct{ pause, expected time.Duration }{
			{0, 0}, {life / 2, life / 2}, {life - 1, life/2 + life - 1}, {life, 0}, {time.Second, time.Second},
		} {
			time.Sleep(step.pause)
			assert.Equal(t, step.expected, u.since(name{"group", "1"}, life, bound))
		}
		assert.Zero(t, u.since(name{"group", "2"}, life, bound), "of another message")
		assert.Zero(t, u.since(name{"another group", "1"}, life, bound))
	})
}

func TestSoManyUnreadableRecordsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnreadable()
		for i := range maxSightings {
			assert.Zero(t, u.since(name{"group", strconv.Itoa(i)}, life, bound))
		}
		time.Sleep(life / 2)
		assert.Zero(t, u.since(name{"group", "one more"}, life, bound))
		assert.Len(t, u.of, maxSightings)
		assert.Equal(t, life/2, u.since(name{"group", "7"}, life, bound), "one that is remembered")

		time.Sleep(life / 2)
		assert.Zero(t, u.since(name{"group", "one more"}, life, bound))
		assert.Len(t, u.of, 2, "what was not seen for as long as records live makes room")
		assert.Equal(t, life, u.since(name{"group", "7"}, life, bound), "it was seen since")
	})
}

// EVT-07: a flood of unreadable records keeps no message Busy for longer than it takes the others to die.
func TestDeadMessagesMakeRoomForUnreadableOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnreadable()
		seeAll := func() {
			for i := range maxSightings {
				u.since(name{"group", strconv.Itoa(i)}, life, life/2)
			}
		}
		seeAll()
		time.Sleep(life / 2)
		assert.Zero(t, u.since(name{"group", "one more"}, life, life/2), "nobody knows yet that the others are dead")
		seeAll()
		assert.Zero(t, u.since(name{"group", "one more"}, life, life/2))
		time.Sleep(life / 2)
		assert.Equal(t, life/2, u.since(name{"group", "one more"}, life, life/2))
	})
}
