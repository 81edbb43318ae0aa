package driver

import (
	"context"
	"time"
)

// Codec changes the form in which outcomes are stored: compressed, sealed. It marks what it made with a first byte of its
// own; a plain outcome begins with '1'. It is safe for concurrent use.
type Codec interface {
	// Encode returns outcome in the codec's form, or outcome itself when that is not worthwhile. name is that of the place it
	// is kept in: the record, one step of it, or one blob of it. No two places share a name, so a codec that binds it into
	// what it makes can tell when somebody has put one in the place of another.
	Encode(name [32]byte, outcome []byte) []byte

	// Decode undoes Encode. What is not in its form it returns unchanged, or refuses, as the codec promises. Its error wraps
	// ErrUnreadable.
	Decode(name [32]byte, kept []byte) ([]byte, error)
}

// Blobs keeps long outcomes outside the store. It is safe for concurrent use.
type Blobs interface {
	// Put keeps data under id, which nobody else uses, for ttl: that of the record which is going to name it, and as long as
	// it may take until that is stored.
	Put(ctx context.Context, id string, data []byte, ttl time.Duration) error

	// Get returns what Put was given. Its error wraps [fs.ErrNotExist] when there is no such blob, or no longer; any other
	// says that the blob cannot be read now. A request is replayed without its body after either. A message is then a
	// Duplicate without its result in the first case, and Busy in the second.
	Get(ctx context.Context, id string) ([]byte, error)

	// Delete forgets id. It is asked to when the record that names it was not kept.
	Delete(ctx context.Context, id string) error
}
