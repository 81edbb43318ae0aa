package driver

import (
	"context"
	"time"
)

// Codec transforms outcomes before they are stored, for example to compress or seal them. The first byte of what a codec
// produces identifies the codec; a plain outcome begins with '1'. A Codec must be safe for concurrent use.
type Codec interface {
	// Encode returns outcome in the codec's form, or outcome itself if encoding is not worthwhile. The name belongs to the place
	// in which the outcome is stored: a record, a step of a record, or a blob of a record. No two places have the same name, so a
	// codec that binds the name into its form detects a form that somebody has copied from another place.
	Encode(name [32]byte, outcome []byte) []byte

	// Decode reverses Encode. Bytes that are not in the codec's form are returned unchanged, or refused, as the codec specifies.
	// A returned error wraps [ErrUnreadable].
	Decode(name [32]byte, kept []byte) ([]byte, error)
}

// Blobs stores long outcomes outside the store. A Blobs must be safe for concurrent use.
type Blobs interface {
	// Put stores data under id for ttl. The ttl covers the lifetime of the record that will name the blob, and the time that may
	// pass until the record is stored; one of 0 or less is an error. The id has at most 128 letters, digits, hyphens and
	// underscores. Each run has ids of its own, so a Put whose id is there was sent again, and replaces the blob.
	Put(ctx context.Context, id string, data []byte, ttl time.Duration) error

	// Get returns the data that Put stored under id. Its error wraps [fs.ErrNotExist] if there is no such blob, or no longer; any
	// other error says that the blob cannot be read now. In both cases a request is replayed without its body. A message is a
	// Duplicate without its result in the first case, and Busy in the second.
	Get(ctx context.Context, id string) ([]byte, error)

	// Delete removes the blob. The engine calls it if the record that names the blob was not stored. It returns nil if there is
	// no such blob.
	Delete(ctx context.Context, id string) error
}
