package idem

import (
	"github.com/ThreeDotsLabs/watermill/message"
)

// storedMessage is a produced message as it is stored with the outcome. Metadata values are bytes, because they need not be
// UTF-8.
type storedMessage struct {
	UUID     string
	Metadata map[string][]byte
	Payload  []byte
}

// store returns what is stored of the produced messages.
func store(produced []*message.Message) []storedMessage {
	stored := make([]storedMessage, len(produced))
	for i, msg := range produced {
		stored[i] = storedMessage{msg.UUID, make(map[string][]byte, len(msg.Metadata)), msg.Payload}
		for name, value := range msg.Metadata {
			stored[i].Metadata[name] = []byte(value)
		}
	}
	return stored
}

// restore returns the messages of a stored outcome, for a duplicate. They have no contexts.
func restore(stored []storedMessage) (produced []*message.Message) {
	for i := range stored {
		msg := message.NewMessage(stored[i].UUID, stored[i].Payload)
		for name, value := range stored[i].Metadata {
			msg.Metadata[name] = string(value)
		}
		produced = append(produced, msg)
	}
	return produced
}
