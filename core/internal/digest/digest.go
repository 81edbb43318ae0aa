// Package digest makes SHA-256 digests, or HMACs, of lists of texts.
package digest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// Hasher makes digests: HMACs if it has a secret. It is safe for concurrent use. Its states are pooled, because each request
// needs several and an HMAC is dear to set up.
type Hasher struct{ states *sync.Pool }

// New returns a Hasher with a secret, or without one when that is empty.
func New(secret []byte) Hasher {
	return Hasher{&sync.Pool{New: func() any {
		if len(secret) > 0 {
			return &state{Hash: hmac.New(sha256.New, secret)}
		}
		return &state{Hash: sha256.New()}
	}}}
}

type state struct {
	hash.Hash
	buf []byte
}

// Sum is SHA-256 over parts and body, each preceded by its length in 8 bytes: no two different lists give the same
// input, wherever a separator may stand in them.
func (h Hasher) Sum(body []byte, parts ...string) [32]byte {
	s := h.begin()
	for _, part := range parts {
		s.add(part)
	}
	return h.end(s, body)
}

func (h Hasher) begin() *state {
	s := h.states.Get().(*state)
	s.Reset()
	s.buf = s.buf[:0]
	return s
}

func (s *state) add(part string) {
	s.buf = append(binary.BigEndian.AppendUint64(s.buf, uint64(len(part))), part...)
}

// end returns the digest and gives the state back.
func (h Hasher) end(s *state, body []byte) (sum [32]byte) {
	s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(len(body)))
	s.Write(s.buf)
	s.Write(body)
	s.buf = s.Sum(s.buf[:0])
	copy(sum[:], s.buf)
	h.states.Put(s)
	return sum
}
