package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Between the moment when a replay is begun and the one when it is remembered, the record may have gone, or be another.
func TestTheReplayOfAnOutcomeIsNotRememberedForAnother(t *testing.T) {
	l, e, c := newLocal(1<<20), &Engine{}, &Claim{}
	late := &Response{Status: 201}
	l.prepared(c, []byte("early"), e, late)
	_, _, ok := l.find(c, e)
	assert.False(t, ok, "forgotten")

	l.learn(c, []byte("early"), time.Now(), time.Hour)
	l.learn(c, []byte("later"), time.Now(), time.Hour)
	l.prepared(c, []byte("early"), e, late)
	entry, replay, _ := l.find(c, e)
	assert.Equal(t, "later", string(entry.Outcome))
	assert.Nil(t, replay)

	l.prepared(c, []byte("later"), e, late)
	_, replay, _ = l.find(c, e)
	assert.Equal(t, late, replay)
	_, replay, _ = l.find(c, &Engine{})
	assert.Nil(t, replay, "another engine makes its own")
}

// What many have asked for is not moved out of the way one by one while everybody waits.
func TestRoomIsMadeInFewMoves(t *testing.T) {
	const records = 1000
	l, e := newLocal(records*(localBytes+1)), &Engine{}
	key := func(i int) *Claim { return &Claim{Key: [32]byte{byte(i >> 8), byte(i)}} }
	for i := range records {
		l.learn(key(i), []byte("x"), time.Now(), time.Hour)
		l.find(key(i), e)
	}
	l.learn(key(records), []byte("x"), time.Now(), time.Hour)
	moved := 0
	for element := l.recent.Front(); element != nil; element = element.Next() {
		if !element.Value.(*localRecord).asked {
			moved++
		}
	}
	assert.Equal(t, manyChances+1, moved, "and the new one")
	assert.Len(t, l.records, records)
	assert.Equal(t, l.limit, l.bytes)
}

func TestWhatIsOverGetsNoOtherChance(t *testing.T) {
	l, e := newLocal(2*(localBytes+1)), &Engine{}
	old, recent, latest := &Claim{Key: [32]byte{1}}, &Claim{Key: [32]byte{2}}, &Claim{Key: [32]byte{3}}
	l.learn(old, []byte("x"), time.Now(), time.Hour)
	l.find(old, e)
	l.records[old.Key].Value.(*localRecord).until = time.Now()
	l.learn(recent, []byte("x"), time.Now(), time.Hour)
	l.learn(latest, []byte("x"), time.Now(), time.Hour)
	_, _, ok := l.find(recent, e)
	assert.True(t, ok)
}
