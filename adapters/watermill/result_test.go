package idem

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzResult: messages come out of a record as they went in, whatever bytes their metadata and payload are; names and UUIDs
// are text. Of other JSON there is an error, or messages that go in and out again.
func FuzzResult(f *testing.F) {
	f.Fuzz(func(t *testing.T, uuid, name, value string, payload, record []byte) {
		if utf8.ValidString(uuid) && utf8.ValidString(name) {
			msg := message.NewMessage(uuid, payload)
			msg.Metadata[name] = value
			assert.Equal(t, store([]*message.Message{msg}), store(again(t, []*message.Message{msg})))
		}
		var other []storedMessage
		if err := json.Unmarshal(record, &other); err == nil {
			produced := restore(other)
			assert.Equal(t, store(produced), store(again(t, produced)))
		}
	})
}

// again is what a duplicate gets of produced.
func again(t *testing.T, produced []*message.Message) []*message.Message {
	t.Helper()
	record, err := json.Marshal(store(produced))
	require.NoError(t, err)
	var k []storedMessage
	require.NoError(t, json.Unmarshal(record, &k))
	return restore(k)
}
