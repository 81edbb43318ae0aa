package simulation

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// blobLink is the connection of one process to the store of blobs, which all processes share. It has the faults of a link.
type blobLink struct{ link }

var _ driver.Blobs = (*blobLink)(nil)

// Put implements driver.Blobs. Blobs outlive the history, so ttl does not count.
func (l *blobLink) Put(ctx context.Context, id string, data []byte, _ time.Duration) error {
	_, err := send(ctx, &l.link, doOf(ctx, keyOfBlob(id)), "Put", func(context.Context) (struct{}, error) {
		l.history.blobs[id] = slices.Clone(data)
		return struct{}{}, nil
	}, func(struct{}, error) {})
	if err != nil {
		l.mayOmitBody(doOf(ctx, keyOfBlob(id)))
	}
	return err
}

// Get implements driver.Blobs.
func (l *blobLink) Get(ctx context.Context, id string) ([]byte, error) {
	data, err := send(ctx, &l.link, doOf(ctx, keyOfBlob(id)), "Get", func(context.Context) ([]byte, error) {
		if data, ok := l.history.blobs[id]; ok {
			return slices.Clone(data), nil
		}
		return nil, fs.ErrNotExist
	}, func([]byte, error) {})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.history.mu.Lock()
		defer l.history.mu.Unlock()
		doOf(ctx, keyOfBlob(id)).hasNoBlob = true
	}
	return data, err
}

// Delete implements driver.Blobs.
func (l *blobLink) Delete(ctx context.Context, id string) error {
	_, err := send(ctx, &l.link, doOf(ctx, keyOfBlob(id)), "Delete", func(context.Context) (struct{}, error) {
		delete(l.history.blobs, id)
		return struct{}{}, nil
	}, func(struct{}, error) {})
	return err
}

// keyOfBlob returns the record of a blob, with which the engine begins the id.
func keyOfBlob(id string) (key [32]byte) {
	_, _ = hex.Decode(key[:], []byte(id[:2*len(key)]))
	return key
}
