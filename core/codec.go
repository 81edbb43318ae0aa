package core

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// Codec changes the form in which outcomes are stored: compressed, sealed. It marks what it made with a first byte of its
// own; a plain outcome begins with '1'. It is safe for concurrent use.
type Codec interface {
	// Encode returns outcome in the codec's form, or outcome itself when that is not worthwhile. record names the record
	// that it is for.
	Encode(record [32]byte, outcome []byte) []byte

	// Decode undoes Encode. What is not in its form it returns unchanged, or refuses, as the codec promises. Its error wraps
	// ErrUnreadable.
	Decode(record [32]byte, kept []byte) ([]byte, error)
}

// Blobs keeps long outcomes outside the store. It is safe for concurrent use.
type Blobs interface {
	// Put keeps data under id, which nobody else uses, for ttl.
	Put(ctx context.Context, id string, data []byte, ttl time.Duration) error

	// Get returns what Put was given. After any error the outcome is replayed without its body.
	Get(ctx context.Context, id string) ([]byte, error)

	// Delete forgets id. It is asked to when the record that names it was not kept.
	Delete(ctx context.Context, id string) error
}

// pack puts a response into the form that stores keep, and its body into a blob if it is long: then blob is its id. A
// blob that can not be put is an omitted body.
func (op *operation) pack(r *Response) (outcome []byte, blob string) {
	keep := &op.engine.cfg.Keep
	if keep.Blobs == nil || r.Omitted || len(r.Body) <= keep.BlobsFrom {
		return op.encode(r, ""), ""
	}
	blob = hex.EncodeToString(op.claim.Key[:]) + "-" + strconv.FormatInt(op.claim.Fence, 10)
	whole := op.encode(r, "")
	err := op.engine.call(op.keeper.detached(), func(ctx context.Context) error { return keep.Blobs.Put(ctx, blob, whole, keep.Retention) })
	if err != nil {
		op.hear(op.engine.cfg.Hooks.StoreError, r.Status, fmt.Errorf("idem: blob was not put: %w", err))
		r.Omitted = true
		return op.encode(r, ""), ""
	}
	return op.encode(r, blob), blob
}

func (op *operation) encode(r *Response, blob string) []byte {
	outcome := encodeOutcome(r, blob)
	for _, codec := range op.engine.cfg.Keep.Codecs {
		outcome = codec.Encode(op.claim.Key, outcome)
	}
	return outcome
}

// fetch puts the body of r, which is in a blob, into its place. A blob that is lost is an omitted body.
func (op *operation) fetch(r *Response, blob string) *Response {
	r.Omitted = true
	keep := &op.engine.cfg.Keep
	if keep.Blobs == nil {
		return r
	}
	var whole []byte
	err := op.engine.call(op.ctx, func(ctx context.Context) (err error) {
		whole, err = keep.Blobs.Get(ctx, blob)
		return err
	})
	if err == nil {
		var full *Response
		if full, _, err = op.decode(whole); err == nil {
			return full
		}
	}
	op.hear(op.engine.cfg.Hooks.StoreError, r.Status, fmt.Errorf("idem: blob is lost: %w", err))
	return r
}

// decode undoes encode, and says in which blob the body is.
func (op *operation) decode(outcome []byte) (*Response, string, error) {
	codecs := op.engine.cfg.Keep.Codecs
	for i := len(codecs) - 1; i >= 0; i-- {
		var err error
		if outcome, err = codecs[i].Decode(op.claim.Key, outcome); err != nil {
			return nil, "", err
		}
	}
	return decodeOutcome(outcome)
}
