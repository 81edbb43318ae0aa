package idem

import (
	"github.com/ThreeDotsLabs/watermill/message"
)

// storedMessage is a produced message. Values of metadata need not be text.
type storedMessage struct {
	UUID     string
	Metadata map[string][]byte
	Payload  []byte
}

func store(produced []*message.Message) []storedMessage {
	k := make([]storedMessage, len(produced))
	for i, msg := range produced {
		k[i] = storedMessage{msg.UUID, make(map[string][]byte, len(msg.Metadata)), msg.Payload}
		for name, value := range msg.Metadata {
			k[i].Metadata[name] = []byte(value)
		}
	}
	return k
}

func restore(k []storedMessage) (produced []*message.Message) {
	for i := range k {
		msg := message.NewMessage(k[i].UUID, k[i].Payload)
		for name, value := range k[i].Metadata {
			msg.Metadata[name] = string(value)
		}
		produced = append(produced, msg)
	}
	return produced
}
