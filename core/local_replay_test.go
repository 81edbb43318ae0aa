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
