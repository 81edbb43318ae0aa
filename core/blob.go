package core

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// encodeOutcome turns a response into an outcome. A long body goes into a blob, whose id is returned; if the blob store does not
// take it, the outcome does without its body.
func (op *operation) encodeOutcome(r *Response) (outcome []byte, blob string) {
	keep := &op.engine.cfg.Keep
	if keep.Blobs == nil || r.Omitted || len(r.Body) <= keep.BlobsFrom {
		return op.engine.codecs.encode(op.claim.Key, r, ""), ""
	}
	blob = hex.EncodeToString(op.claim.Key[:]) + "-" + strconv.FormatInt(op.claim.Fence, 10)
	whole := op.engine.codecs.encode(blobName(op.claim.Key, blob), r, "")
	ttl := blobLife(keep.Retention, op.engine.cfg.Lease.Duration)
	err := op.engine.call(op.run.detached(), func(ctx context.Context) error { return keep.Blobs.Put(ctx, blob, whole, ttl) })
	if err != nil {
		op.emit(op.engine.cfg.Hooks.StoreError, r.Status, fmt.Errorf("idem: blob was not put: %w", err))
		r.Omitted = true
		return op.engine.codecs.encode(op.claim.Key, r, ""), ""
	}
	return op.engine.codecs.encode(op.claim.Key, r, blob), blob
}

// blobLife is how long a blob is kept. The retention begins when the record is stored, and the engine tries to store it for ten
// leases.
func blobLife(retention, lease time.Duration) time.Duration {
	return retention + 11*lease
}

// errBlobUnavailable says that a blob cannot be read now.
var errBlobUnavailable = errors.New("idem: blob is unavailable")

// fetchBody returns r with its body, which is in a blob. If the blob is lost, r stays without a body. If the blob cannot be read
// now, a request is replayed without it too, while a task gets an error, since a later retry can have the body.
func (op *operation) fetchBody(r *Response, blob string) (*Response, error) {
	full, err := op.getBlob(blob)
	if err == nil {
		return full, nil
	}
	if op.task != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	op.blobErr = fmt.Errorf("idem: blob is lost: %w", err)
	op.emit(op.engine.cfg.Hooks.StoreError, r.Status, op.blobErr)
	r.Omitted = true
	return r, nil
}

// getBlob reads a blob. Its error wraps fs.ErrNotExist when the blob is lost, errBlobUnavailable when it cannot be read now, or
// driver.ErrUnreadable.
func (op *operation) getBlob(id string) (*Response, error) {
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
		return nil, fmt.Errorf("%w: %w", errBlobUnavailable, err)
	}
	full, another, err := op.engine.codecs.decode(blobName(op.claim.Key, id), whole)
	if err == nil && another != "" {
		return nil, fmt.Errorf("%w: a blob names a blob", driver.ErrUnreadable)
	}
	return full, err
}
