// Package digest computes SHA-256 digests, or HMACs, of lists of texts.
package digest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// Hasher computes digests, or HMACs if it has a secret. It is safe for concurrent use. It keeps its states in a pool, because
// each request needs several, and to set up an HMAC is expensive.
type Hasher struct{ states *sync.Pool }

// New returns a Hasher that computes HMACs with secret, or plain digests if secret is empty.
func New(secret []byte) Hasher {
	return Hasher{&sync.Pool{New: func() any {
		if len(secret) > 0 {
			return &state{Hash: hmac.New(sha256.New, secret)}
		}
		return &state{Hash: sha256.New()}
	}}}
}

// state is the state of one digest.
type state struct {
	hash.Hash
	buf []byte // the input that is not hashed yet, then the sum
}

// Sum returns the digest of parts, in their order, and body. Each is preceded by its length in 8 bytes, so that two different
// lists never give the same input. Stored records depend on the result, so it must not change.
func (h Hasher) Sum(body []byte, parts ...string) [32]byte {
	s := h.begin()
	for _, part := range parts {
		s.add(part)
	}
	return h.end(s, body)
}

// begin returns an empty state.
func (h Hasher) begin() *state {
	s := h.states.Get().(*state)
	s.Reset()
	s.buf = s.buf[:0]
	return s
}

// add adds one part, preceded by its length.
func (s *state) add(part string) {
	s.buf = append(binary.BigEndian.AppendUint64(s.buf, uint64(len(part))), part...)
}

// end adds the body, returns the digest, and puts the state back into the pool.
func (h Hasher) end(s *state, body []byte) (sum [32]byte) {
	s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(len(body)))
	s.Write(s.buf)
	s.Write(body)
	s.buf = s.Sum(s.buf[:0])
	copy(sum[:], s.buf)
	h.states.Put(s)
	return sum
}
