package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// What lies beside a record has a name of its own for codecs. An outcome has the record's.
func stepName(record [32]byte, step string) [32]byte {
	return sha256.Sum256([]byte("idem step " + string(record[:]) + step))
}

func blobName(record [32]byte, id string) [32]byte {
	return sha256.Sum256([]byte("idem blob " + string(record[:]) + id))
}

// pack puts a response into the form that stores keep, and its body into a blob if it is long: then blob is its id. A
// blob that can not be put is an omitted body.
func (op *operation) pack(r *Response) (outcome []byte, blob string) {
	keep := &op.engine.cfg.Keep
	if keep.Blobs == nil || r.Omitted || len(r.Body) <= keep.BlobsFrom {
		return op.encode(r, ""), ""
	}
	blob = hex.EncodeToString(op.claim.Key[:]) + "-" + strconv.FormatInt(op.claim.Fence, 10)
	whole := op.encodeAs(blobName(op.claim.Key, blob), r, "")
	ttl := blobLife(keep.Retention, op.engine.cfg.Lease.Duration)
	err := op.engine.call(op.keeper.detached(), func(ctx context.Context) error { return keep.Blobs.Put(ctx, blob, whole, ttl) })
	if err != nil {
		op.emit(op.engine.cfg.Hooks.StoreError, r.Status, fmt.Errorf("idem: blob was not put: %w", err))
		r.Omitted = true
		return op.encode(r, ""), ""
	}
	return op.encode(r, blob), blob
}

// blobLife is for how long a blob is kept: the retention begins when its record is stored, and a store that is away gets the
// record for ten leases.
func blobLife(retention, lease time.Duration) time.Duration {
	return retention + 11*lease
}

func (op *operation) encode(r *Response, blob string) []byte {
	return op.encodeAs(op.claim.Key, r, blob)
}

// encodeAs puts a response into the form in which the place that name names keeps it.
func (op *operation) encodeAs(name [32]byte, r *Response, blob string) []byte {
	outcome := encodeOutcome(r, blob)
	for _, codec := range op.engine.cfg.Keep.Codecs {
		outcome = codec.Encode(name, outcome)
	}
	return outcome
}

// errBlobAway says that a blob cannot be read now.
var errBlobAway = errors.New("idem: blob is away")

// fetch puts the body of r, which is in a blob, into its place. A blob that is lost is an omitted body. A request is replayed
// without a body that cannot be read now; a message comes again, so there that is an error.
func (op *operation) fetch(r *Response, blob string) (*Response, error) {
	full, err := op.blob(blob)
	if err == nil {
		return full, nil
	}
	if op.isMessage && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	op.blobErr = fmt.Errorf("idem: blob is lost: %w", err)
	op.emit(op.engine.cfg.Hooks.StoreError, r.Status, op.blobErr)
	r.Omitted = true
	return r, nil
}

// blob reads a blob. Its error wraps fs.ErrNotExist when it is lost, errBlobAway or ErrUnreadable.
func (op *operation) blob(id string) (*Response, error) {
	blobs := op.engine.cfg.Keep.Blobs
	if blobs == nil {
		return nil, fmt.Errorf("%w: the body is in a blob, and Config.Keep.Blobs is not set", driver.ErrUnreadable)
	}
	var whole []byte
	err := op.engine.call(op.ctx, func(ctx context.Context) (err error) {
		whole, err = blobs.Get(ctx, id)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, driver.ErrUnreadable):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errBlobAway, err)
	}
	full, another, err := op.decodeAs(blobName(op.claim.Key, id), whole)
	if err == nil && another != "" {
		return nil, fmt.Errorf("%w: a blob names a blob", driver.ErrUnreadable)
	}
	return full, err
}

// decode undoes encode, and says in which blob the body is.
func (op *operation) decode(outcome []byte) (*Response, string, error) {
	return op.decodeAs(op.claim.Key, outcome)
}

// decodeAs undoes encodeAs.
func (op *operation) decodeAs(name [32]byte, outcome []byte) (*Response, string, error) {
	codecs := op.engine.cfg.Keep.Codecs
	for i := len(codecs) - 1; i >= 0; i-- {
		var err error
		if outcome, err = codecs[i].Decode(name, outcome); err != nil {
			return nil, "", err
		}
	}
	return decodeOutcome(outcome)
}
