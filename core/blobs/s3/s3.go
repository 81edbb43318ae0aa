// Package s3 keeps long outcomes in a bucket of S3, or of another service with the same API.
//
// A blob is one object. Its metadata "Idem-Expires" says when it expires, in Unix milliseconds by the wall clock of the
// process that wrote it. The process that reads a blob checks that. This package removes no expired objects. Give the bucket
// a lifecycle rule for the prefix, which expires objects some days after the retention, and removes noncurrent versions if
// the bucket has versions:
//
//	{"Rules": [{"ID": "idem", "Status": "Enabled", "Filter": {"Prefix": "idem/"}, "Expiration": {"Days": 3},
//	  "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}]}
//
// The client needs the permissions s3:PutObject, s3:GetObject and s3:DeleteObject on the prefix. With s3:ListBucket, S3
// reports an absent object as absent; without, as forbidden. For results of messages it needs that one, too: a message whose blob is
// absent is a Duplicate, and stays Busy for the retention if S3 says that the blob is forbidden. The client repeats failed requests,
// ten times unless minio.Options.MaxRetries has another value, until the context ends.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/go-idem/idem/core/blobs"
	"github.com/go-idem/idem/core/driver"
)

// Option changes a Store. Pass options to New.
type Option func(*Store)

// Prefix sets the text that begins the name of every object. Services with different prefixes share no blobs. It has at most
// 896 bytes of UTF-8 and does not begin with a slash. Default "idem/".
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// Clock replaces the clock, for tests. Default time.Now.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Store is a driver.Blobs in a bucket. Each call is one request. A Store is safe for concurrent use.
type Store struct {
	client minio.Core
	bucket string
	prefix string
	now    func() time.Time
}

var _ driver.Blobs = (*Store)(nil)

// expiresKey is the name of the metadata that says when a blob expires, in the form that minio-go uses.
const expiresKey = "Idem-Expires"

// New returns a store in bucket, which must exist. It returns an error if an argument or option is not valid. It sends no
// request, so wrong credentials or a missing bucket show at the first call.
func New(client *minio.Client, bucket string, opts ...Option) (*Store, error) {
	s := &Store{bucket: bucket, prefix: "idem/", now: time.Now}
	for _, opt := range opts {
		opt(s)
	}
	if client == nil {
		return nil, errors.New("idem: s3: client: is nil; pass what minio.New returns")
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("idem: s3: bucket: %q: %w", bucket, err)
	}
	if s3utils.CheckValidObjectName(s.prefix+strings.Repeat("i", 128)) != nil || strings.HasPrefix(s.prefix, "/") {
		return nil, fmt.Errorf("idem: s3: Prefix: %q: must be at most 896 bytes of UTF-8 and not begin with a slash", s.prefix)
	}
	s.client.Client = client
	return s, nil
}

// Put implements driver.Blobs. The ttl counts in ms and must be positive.
func (s *Store) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	if err := blobs.CheckID(id); err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("idem: s3: ttl: %v: must be positive", ttl)
	}
	sum := sha256.Sum256(data)
	options := minio.PutObjectOptions{
		ContentType:          "application/octet-stream",
		DisableContentSha256: true, // no checksum for each chunk, because the signature covers the whole
		UserMetadata: map[string]string{
			expiresKey: strconv.FormatInt(s.now().Add(ttl).UnixMilli(), 10),
			// A client with TrailingHeaders would otherwise add a checksum of its own.
			"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:]),
		},
	}
	hash := hex.EncodeToString(sum[:])
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+id, bytes.NewReader(data), int64(len(data)), "", hash, options)
	return err
}

// Get implements driver.Blobs. Its error wraps fs.ErrNotExist if there is no such blob, or if it has expired.
func (s *Store) Get(ctx context.Context, id string) ([]byte, error) {
	if err := blobs.CheckID(id); err != nil {
		return nil, err
	}
	body, info, _, err := s.client.GetObject(ctx, s.bucket, s.prefix+id, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, fmt.Errorf("idem: s3: %s: %w", id, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	expires, err := strconv.ParseInt(info.UserMetadata[expiresKey], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("idem: s3: %s: metadata %s is no time", id, expiresKey)
	}
	if !s.now().Before(time.UnixMilli(expires)) {
		return nil, fmt.Errorf("idem: s3: %s has expired: %w", id, fs.ErrNotExist)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Delete implements driver.Blobs. It returns nil if there is no such blob.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := blobs.CheckID(id); err != nil {
		return err
	}
	return s.client.RemoveObject(ctx, s.bucket, s.prefix+id, minio.RemoveObjectOptions{})
}
