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

// storeBody encodes a response as an outcome. A long body goes into a blob, whose id is returned; if the blob store does not
// take it, the outcome does without its body.
func (k *keyed) storeBody(r *Response) (outcome []byte, blob string) {
	keep := &k.engine.cfg.Keep
	if keep.Blobs == nil || r.Omitted || len(r.Body) <= keep.BlobsFrom {
		return k.engine.codecs.encode(k.claim.Key, r, ""), ""
	}
	// In hex, since some file systems ignore the case of letters.
	blob = hex.EncodeToString(k.claim.Key[:]) + "-" + strconv.FormatInt(k.claim.Fence, 10)
	whole := k.engine.codecs.encode(blobName(k.claim.Key, blob), r, "")
	ttl := blobLife(keep.Retention, k.engine.cfg.Lease.Duration)
	err := k.engine.callBlobs(k.detached(), "Blobs.Put", func(ctx context.Context) error { return keep.Blobs.Put(ctx, blob, whole, ttl) })
	if err != nil {
		k.emit(k.engine.cfg.Hooks.StoreError, r.Status, fmt.Errorf("idem: blob was not put: %w", err))
		r.Omitted = true
		return k.engine.codecs.encode(k.claim.Key, r, ""), ""
	}
	return k.engine.codecs.encode(k.claim.Key, r, blob), blob
}

// blobLife is how long a blob is kept. The retention begins when the record is stored, and the engine tries to store it for ten
// leases.
func blobLife(retention, lease time.Duration) time.Duration {
	return retention + 11*lease
}

// errBlobUnavailable says that a blob cannot be read now.
var errBlobUnavailable = errors.New("idem: blob is unavailable")

// fetchBody returns r with its body, which is in a blob. If the blob is lost, r stays without a body, and lost says why. If the
// blob cannot be read now, a request is replayed without it too, while a task gets an error, since a later retry can have the body.
func (k *keyed) fetchBody(r *Response, blob string) (full *Response, lost, err error) {
	full, err = k.getBlob(blob)
	if err == nil {
		return full, nil, nil
	}
	if k.isTask && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	lost = fmt.Errorf("idem: blob is lost: %w", err)
	if !k.hasLeft(err) {
		k.emit(k.engine.cfg.Hooks.StoreError, r.Status, lost)
	}
	r.Omitted = true
	return r, lost, nil
}

// getBlob reads a blob. Its error wraps fs.ErrNotExist when the blob is lost, errBlobUnavailable when it cannot be read now, or
// driver.ErrUnreadable.
func (k *keyed) getBlob(id string) (*Response, error) {
	blobs := k.engine.cfg.Keep.Blobs
	if blobs == nil {
		return nil, fmt.Errorf("%w: the body is in a blob, and Config.Keep.Blobs is not set", driver.ErrUnreadable)
	}
	var whole []byte
	err := k.engine.callBlobs(k.ctx, "Blobs.Get", func(ctx context.Context) (err error) {
		whole, err = blobs.Get(ctx, id)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, driver.ErrUnreadable):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errBlobUnavailable, err)
	}
	full, another, err := k.engine.codecs.decode(blobName(k.claim.Key, id), whole)
	if another != "" {
		return nil, fmt.Errorf("%w: a blob names a blob", driver.ErrUnreadable)
	}
	return full, err
}
