package idem

import (
	"github.com/ThreeDotsLabs/watermill/message"
)

// kept is a produced message. Values of metadata need not be text.
type kept struct {
	UUID     string
	Metadata map[string][]byte
	Payload  []byte
}

func keep(produced []*message.Message) []kept {
	k := make([]kept, len(produced))
	for i, msg := range produced {
		k[i] = kept{msg.UUID, make(map[string][]byte, len(msg.Metadata)), msg.Payload}
		for name, value := range msg.Metadata {
			k[i].Metadata[name] = []byte(value)
		}
	}
	return k
}

func restore(k []kept) (produced []*message.Message) {
	for i := range k {
		msg := message.NewMessage(k[i].UUID, k[i].Payload)
		for name, value := range k[i].Metadata {
			msg.Metadata[name] = string(value)
		}
		produced = append(produced, msg)
	}
	return produced
}
