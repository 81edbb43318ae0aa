// Package seal encrypts kept outcomes, so that who reads or changes the store can neither read nor change them: AES-256-GCM
// with a random nonce, under a key that HKDF-SHA256 derives for each place.
//
// One AES-GCM key takes at most 2^32 messages with random nonces, which a busy service reaches in weeks. With a key for
// each place, the bound is on the outcomes of one record, and a secret has none of its own to watch.
//
// What is sealed opens in its own place only: an outcome for its record, a step's result for that step of that record, a
// blob for its id and record. It does not hide its length, the id of its key, and that it is there; and it does not stop who
// can write to the store from putting back an older outcome, or an older result of a step, of the same record.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
)

// A sealed outcome is
//
//	mark 1 byte | length of the key's id 1 byte | id | nonce 12 bytes | ciphertext | tag 16 bytes
//
// The additional data is all before the nonce, and the name of the place that it is kept in.
const (
	mark      = 's'
	secretLen = 32
	maxID     = 255
	overhead  = 12 + 16
)

// Key is a secret and its name.
type Key struct {
	ID     string // 1 to 255 bytes; stored in clear with each outcome, and must never name another secret
	Secret []byte // 32 bytes that nobody can guess, e.g. from crypto/rand or a key service
}

// Format prints a key without its secret.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "seal.Key(%q)", k.ID) }

// Option changes a codec.
type Option func(*Codec)

// AcceptPlain lets records pass that are not sealed. It is for the roll-out: set it until the retention has passed since
// the last process that did not seal, and no longer, because who can write to the store can then write plain records.
func AcceptPlain() Option { return func(c *Codec) { c.acceptPlain = true } }

// Codec is a driver.Codec. It is safe for concurrent use.
type Codec struct {
	sealing     string
	keys        map[string]derive
	acceptPlain bool
}

// derive makes the cipher for one place.
type derive func(name [32]byte) cipher.AEAD

// New returns a codec. The first key seals, all open: to rotate, give all processes the new key behind the old one, then put
// it in front, and drop the old one after the retention. The error names every bad key.
func New(keys []Key, opts ...Option) (*Codec, error) {
	c := &Codec{keys: map[string]derive{}}
	for _, opt := range opts {
		opt(c)
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("idem: seal: keys"+format, args...))
		}
	}
	check(len(keys) > 0, ": none; the first one seals")
	for i, key := range keys {
		check(len(key.ID) > 0 && len(key.ID) <= maxID, "[%d].ID: has %d bytes, must have 1 to %d", i, len(key.ID), maxID)
		check(c.keys[key.ID] == nil, "[%d].ID: %q is given twice", i, key.ID)
		check(len(key.Secret) == secretLen, "[%d].Secret: has %d bytes, must have %d", i, len(key.Secret), secretLen)
		check(!isZero(key.Secret), "[%d].Secret: is all zero; read it from crypto/rand or a key service", i)
		derive, err := newDerive(key.Secret)
		check(err == nil, "[%d].Secret: %v", i, err)
		c.keys[key.ID] = derive
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c.sealing = keys[0].ID
	return c, nil
}

// isZero tells a secret that nobody filled in.
func isZero(secret []byte) bool {
	return len(secret) == secretLen && [secretLen]byte(secret) == [secretLen]byte{}
}

// newDerive keeps what it needs of secret where no %v of a codec finds it.
func newDerive(secret []byte) (derive, error) {
	pseudorandom, err := hkdf.Extract(sha256.New, secret, nil)
	if err != nil {
		return nil, err
	}
	return func(name [32]byte) cipher.AEAD {
		key := must(hkdf.Expand(sha256.New, pseudorandom, "idem seal AES-256-GCM "+string(name[:]), 32))
		return must(cipher.NewGCMWithRandomNonce(must(aes.NewCipher(key))))
	}, nil
}

// must is for what depends on nothing but lengths, which are right.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// header is what stands before the nonce, with room for more bytes.
func header(id string, more int) []byte {
	b := make([]byte, 0, 2+len(id)+more)
	return append(append(b, mark, byte(len(id))), id...)
}

// additional is what is authenticated with the outcome, but not stored behind the header.
func additional(id string, name [32]byte) []byte {
	return append(header(id, len(name)), name[:]...)
}

// Encode implements driver.Codec. Two calls with the same arguments give different results: a run that stores its outcome
// again sends what the first call made.
func (c *Codec) Encode(name [32]byte, outcome []byte) []byte {
	aead := c.keys[c.sealing](name)
	return aead.Seal(header(c.sealing, len(outcome)+overhead), nil, outcome, additional(c.sealing, name))
}

// Decode implements driver.Codec. What is not sealed is unreadable, unless AcceptPlain is set: then what does not begin with
// 's' is returned unchanged.
func (c *Codec) Decode(name [32]byte, kept []byte) ([]byte, error) {
	if len(kept) == 0 || kept[0] != mark {
		if c.acceptPlain {
			return kept, nil
		}
		return nil, fmt.Errorf("%w: it is not sealed; seal.AcceptPlain takes such records during a roll-out", driver.ErrUnreadable)
	}
	if len(kept) < 2 || len(kept) < 2+int(kept[1]) {
		return nil, fmt.Errorf("%w: too short for a sealed outcome", driver.ErrUnreadable)
	}
	start := 2 + int(kept[1])
	id := string(kept[2:start])
	derive := c.keys[id]
	if derive == nil {
		return nil, fmt.Errorf("%w: sealed with key %q, which the codec does not have", driver.ErrUnreadable, id)
	}
	outcome, err := derive(name).Open(nil, nil, kept[start:], additional(id, name))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q does not open it: it is damaged, of another place, or sealed with another secret", driver.ErrUnreadable, id)
	}
	return outcome, nil
}
