// Package seal encrypts kept outcomes. People with access to the store can then neither read nor change them. It uses
// AES-256-GCM with a random nonce, and a key that HKDF-SHA256 derives from the secret for each place. A place is a record, a
// step of a record, or a blob.
//
// One AES-GCM key may encrypt at most 2^32 messages with random nonces, which a busy service reaches in weeks. Because each
// place has its own key, this limit counts the outcomes of one record, and no limit of the secret needs watching.
//
// A sealed text opens only in its own place: an outcome in its record, the result of a step in that step of that record, a
// blob under its id and record. Sealing does not hide the length of a text, the id of its key, or its existence. It does not
// keep someone with write access to the store from restoring an older outcome, or an older result of a step, of the same
// record.
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

// A sealed outcome has these parts:
//
//	mark, 1 byte | length of the key's id, 1 byte | id | nonce, 12 bytes | ciphertext | tag, 16 bytes
//
// The additional data of GCM is all parts before the nonce, and the name of the place.
const (
	mark      = 's'
	secretLen = 32
	maxID     = 255
	overhead  = 12 + 16
)

// Key is a secret and its name.
type Key struct {
	ID     string // 1 to 255 bytes. It is stored in clear with each outcome. Never use it for another secret
	Secret []byte // 32 random bytes, for example from crypto/rand or a key service
}

// Format implements fmt.Formatter. It prints the ID only, so that no log contains the secret.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "seal.Key(%q)", k.ID) }

// Option changes a Codec. Pass options to New.
type Option func(*Codec)

// AcceptPlain accepts outcomes that are not sealed. Use it to introduce sealing: remove it when the retention has passed
// since the last process without sealing has stopped. As long as it is set, someone with write access to the store can store
// plain outcomes. Default: plain outcomes are unreadable.
func AcceptPlain() Option { return func(c *Codec) { c.acceptPlain = true } }

// OpenOnly opens sealed outcomes and seals none; it includes AcceptPlain. Use it in the deploy before the one that begins to
// seal, so that no process meets a sealed outcome that it cannot open: first OpenOnly, then AcceptPlain, then neither. To stop
// sealing, use it until the retention has passed since the last process that sealed has stopped. Default: the codec seals.
func OpenOnly() Option { return func(c *Codec) { c.openOnly, c.acceptPlain = true, true } }

// Codec is a driver.Codec. It is safe for concurrent use.
type Codec struct {
	sealing     string
	keys        map[string]derive
	acceptPlain bool
	openOnly    bool
}

// derive returns the cipher for a place.
type derive func(name [32]byte) cipher.AEAD

// New returns a codec that seals with the first key and opens with all keys. To rotate, first give all processes the new key
// after the old one, then put the new key first, and remove the old key after the retention. New returns an error that lists
// every bad key.
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

// isZero reports whether a secret has the right length but was never filled in.
func isZero(secret []byte) bool {
	return len(secret) == secretLen && [secretLen]byte(secret) == [secretLen]byte{}
}

// newDerive returns the derive of a secret. The closure hides the secret from a %v of the codec.
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

// must is for functions whose errors depend on lengths only, which are right here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// header returns the parts before the nonce, with capacity for more bytes.
func header(id string, more int) []byte {
	b := make([]byte, 0, 2+len(id)+more)
	return append(append(b, mark, byte(len(id))), id...)
}

// additional returns the additional data of GCM: the header, and the name of the place, which is not stored.
func additional(id string, name [32]byte) []byte {
	return append(header(id, len(name)), name[:]...)
}

// Encode implements driver.Codec. Its nonce is random, so two calls with the same arguments return different results. The
// engine therefore encodes an outcome once, even if it stores it repeatedly. With OpenOnly it returns outcome itself, unless
// outcome would be taken for a sealed one.
func (c *Codec) Encode(name [32]byte, outcome []byte) []byte {
	if c.openOnly && (len(outcome) == 0 || outcome[0] != mark) {
		return outcome
	}
	aead := c.keys[c.sealing](name)
	return aead.Seal(header(c.sealing, len(outcome)+overhead), nil, outcome, additional(c.sealing, name))
}

// Decode implements driver.Codec. An outcome that does not begin with 's' is not sealed: Decode returns it unchanged with
// AcceptPlain or OpenOnly, and otherwise an error that wraps driver.ErrUnreadable.
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
		return nil, fmt.Errorf("%w: key %q does not open it: it is damaged, of another place, or sealed with another secret",
			driver.ErrUnreadable, id)
	}
	return outcome, nil
}
