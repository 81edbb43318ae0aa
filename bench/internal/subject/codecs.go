package subject

import (
	"crypto/rand"

	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/seal"
)

// Form is one way to keep an outcome.
type Form struct {
	Name   string
	Codecs []driver.Codec // applied in this order
}

// dictionaryBytes is the length of the dictionary, in bytes.
const dictionaryBytes = 4 << 10

// Forms returns codecs for Keep.Codecs as a service would make them. The dictionary is other outcomes, one after another.
func Forms() ([]Form, error) {
	zstd, err := compress.Zstd(compress.Threshold(512))
	if err != nil {
		return nil, err
	}
	dictionary, err := compress.Zstd(compress.Dictionary(1, typical(NewBodies(1))))
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // cannot fail
	sealing, err := seal.New([]seal.Key{{ID: "2026-11", Secret: secret}})
	return []Form{
		{"plain", nil}, {"zstd", []driver.Codec{zstd}}, {"zstd with a dictionary", []driver.Codec{dictionary}},
		{"sealed", []driver.Codec{sealing}}, {"zstd with a dictionary, sealed", []driver.Codec{dictionary, sealing}},
	}, err
}

// typical is a dictionary of outcomes.
func typical(bodies Bodies) (text []byte) {
	for len(text) < dictionaryBytes {
		text = append(text, Packed(bodies.Next(512))...)
	}
	return text[:dictionaryBytes]
}

// Encode returns what a store is given for an outcome.
func (f Form) Encode(record [32]byte, outcome []byte) []byte {
	for _, c := range f.Codecs {
		outcome = c.Encode(record, outcome)
	}
	return outcome
}
