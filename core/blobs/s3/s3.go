// Package s3 keeps long outcomes in a bucket of S3, or of a service that speaks its language.
//
// A blob is one object. When it ends is in the metadata "Idem-Expires", in Unix milliseconds by the wall clock of who wrote
// it, and is looked at by who reads it. Nothing here removes what has ended: give the bucket a lifecycle rule for the prefix
// that expires objects some days after the retention, in whole days, and that removes noncurrent versions if it has any:
//
//	{"Rules": [{"ID": "idem", "Status": "Enabled", "Filter": {"Prefix": "idem/"}, "Expiration": {"Days": 3},
//	  "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}]}
//
// The client needs s3:PutObject, s3:GetObject and s3:DeleteObject on the prefix, and s3:ListBucket if an absent object is to
// be told from a forbidden one. It repeats what fails, ten times if minio.Options.MaxRetries does not say otherwise, until
// the context ends.
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

// Option changes a Store.
type Option func(*Store)

// Prefix begins the name of every object; services with different prefixes never meet. Default "idem/".
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// Clock replaces the clock, for tests.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Store is a driver.Blobs in a bucket. Each verb is one request.
type Store struct {
	client minio.Core
	bucket string
	prefix string
	now    func() time.Time
}

var _ driver.Blobs = (*Store)(nil)

// expiresKey is the metadata that says when a blob ends, as minio-go writes its name.
const expiresKey = "Idem-Expires"

// New returns a store in bucket, which must exist. It does not ask the service: credentials and names that are wrong show
// at the first verb.
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

// Put implements driver.Blobs. The ttl is counted in milliseconds and must be positive.
func (s *Store) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	if err := blobs.CheckID(id); err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("idem: s3: ttl: %v: must be positive", ttl)
	}
	sum := sha256.Sum256(data)
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+id, bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), minio.PutObjectOptions{
		ContentType:          "application/octet-stream",
		DisableContentSha256: true, // that is, of each chunk: the signature is over the sum of the whole
		UserMetadata: map[string]string{
			expiresKey:              strconv.FormatInt(s.now().Add(ttl).UnixMilli(), 10),
			"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:]), // else a client with TrailingHeaders adds one of its own
		},
	})
	return err
}

// Get implements driver.Blobs. The error for a blob that is not there, or no longer, is fs.ErrNotExist.
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

// Delete implements driver.Blobs. A blob that is not there is no error.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := blobs.CheckID(id); err != nil {
		return err
	}
	return s.client.RemoveObject(ctx, s.bucket, s.prefix+id, minio.RemoveObjectOptions{})
}
