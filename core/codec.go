package core

import (
	"crypto/sha256"

	"github.com/go-idem/idem/core/driver"
)

// codecs change the form of what a store or a blob store keeps. Each thing that is kept has a name of its own, so that codecs can
// tell when one is put in the place of another: an outcome has the name of its record.
type codecs []driver.Codec

// encode turns a response into the bytes that are kept under name. With a blob, the body of the response is in that blob.
func (c codecs) encode(name [32]byte, r *Response, blob string) []byte {
	outcome := encodeOutcome(r, blob)
	for _, codec := range c {
		outcome = codec.Encode(name, outcome)
	}
	return outcome
}

// decode undoes encode, and returns in which blob the body is. Its error wraps driver.ErrUnreadable, or is that of a codec.
func (c codecs) decode(name [32]byte, outcome []byte) (r *Response, blob string, err error) {
	for i := len(c) - 1; i >= 0; i-- {
		if outcome, err = c[i].Decode(name, outcome); err != nil {
			return nil, "", err
		}
	}
	return decodeOutcome(outcome)
}

// stepName is the name of a step's result.
func stepName(record [32]byte, step string) [32]byte {
	return sha256.Sum256([]byte("idem step " + string(record[:]) + step))
}

// blobName is the name of what a blob holds.
func blobName(record [32]byte, id string) [32]byte {
	return sha256.Sum256([]byte("idem blob " + string(record[:]) + id))
}
