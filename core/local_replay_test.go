package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
)

// Between the moment when a replay is begun and the one when it is remembered, the record may have gone, or be another.
func TestTheReplayOfAnOutcomeIsNotRememberedForAnother(t *testing.T) {
	l, c := newLocal(1<<20), &driver.Claim{}
	op := &operation{engine: &Engine{}}
	late := &Response{Status: 201}
	l.prepared(c, []byte("early"), op.engine, late)
	assert.Nil(t, l.find(&c.Key), "forgotten")

	l.learn(c, []byte("early"), time.Now(), time.Hour)
	l.learn(c, []byte("later"), time.Now(), time.Hour)
	l.prepared(c, []byte("early"), op.engine, late)
	assert.Equal(t, "later", string(l.find(&c.Key).entry(op).Outcome))
	assert.Nil(t, op.ready)

	l.prepared(c, []byte("later"), op.engine, late)
	other := &operation{engine: &Engine{}}
	l.find(&c.Key).entry(other)
	assert.Nil(t, other.ready, "another engine makes its own")
	l.find(&c.Key).entry(op)
	assert.Equal(t, late, op.ready)
}

// Between the moment when a record is seen to be over and the one when it is dropped, it may be learned again.
func TestARecordThatIsLearnedAgainIsNotDroppedForTheOldOne(t *testing.T) {
	l, c := newLocal(1<<20), &driver.Claim{}
	l.learn(c, []byte("early"), time.Now(), time.Hour)
	old := l.records[c.Key]
	l.learn(c, []byte("later"), time.Now(), time.Hour)
	l.end(old)
	assert.Equal(t, "later", string(l.find(&c.Key).outcome))
	assert.Equal(t, localBytes+len("later"), l.bytes)
}

// What many have asked for is not moved out of the way one by one while everybody waits.
func TestRoomIsMadeInFewMoves(t *testing.T) {
	const records = 1000
	l := newLocal(records * (localBytes + 1))
	key := func(i int) *driver.Claim { return &driver.Claim{Key: [32]byte{byte(i >> 8), byte(i)}} }
	for i := range records {
		l.learn(key(i), []byte("x"), time.Now(), time.Hour)
		l.find(&key(i).Key)
	}
	l.learn(key(records), []byte("x"), time.Now(), time.Hour)
	moved := 0
	for element := l.recent.Front(); element != nil; element = element.Next() {
		if !element.Value.(*localRecord).asked.Load() {
			moved++
		}
	}
	assert.Equal(t, manyChances+1, moved, "and the new one")
	assert.Len(t, l.records, records)
	assert.Equal(t, l.limit, l.bytes)
}

func TestWhatIsOverGetsNoOtherChance(t *testing.T) {
	l := newLocal(2 * (localBytes + 1))
	old, recent, latest := &driver.Claim{Key: [32]byte{1}}, &driver.Claim{Key: [32]byte{2}}, &driver.Claim{Key: [32]byte{3}}
	l.learn(old, []byte("x"), time.Now(), time.Hour)
	l.find(&old.Key)
	l.records[old.Key].until = time.Now()
	l.learn(recent, []byte("x"), time.Now(), time.Hour)
	l.learn(latest, []byte("x"), time.Now(), time.Hour)
	assert.NotNil(t, l.find(&recent.Key))
}
