// Package blobs keeps long outcomes in files of a directory. Package s3 keeps them in a bucket; package blobstest checks any
// implementation of driver.Blobs.
package blobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Option changes a DirStore. Pass options to Dir.
type Option func(*DirStore)

// Clock replaces the clock, for tests. Default time.Now.
func Clock(now func() time.Time) Option { return func(s *DirStore) { s.now = now } }

// DirStore is a driver.Blobs in a directory. It is safe for concurrent use, and processes on one or several machines may
// share the directory. It writes a file under a temporary name and then renames it. If a process dies while it writes, Sweep
// removes the file later. Only their owner may read the files. Their names are hashes of the ids.
//
// Files expire by the wall clocks of the processes that write and read them. A file is synced to disk before the rename. So a
// loss of power can lose the latest files, but leaves no incomplete ones. Put, Get and Delete end with their contexts, also if the
// file system hangs; a Put or Delete may take effect later then.
type DirStore struct {
	dir string
	now func() time.Time

	// mu keeps Sweep from removing a file that Put has just replaced: Put holds it for the rename, Sweep from its check of a
	// file until the removal.
	mu sync.RWMutex
}

var _ driver.Blobs = (*DirStore)(nil)

const (
	unfinished = "unfinished-" // prefix of temporary names
	abandoned  = time.Hour     // age at which Sweep removes a temporary file; no write takes so long
)

// Dir returns a store in the directory path. It makes the directory, accessible only to its owner, if it does not exist.
// Nothing else should write into the directory. Dir returns an error if path is empty or cannot be made.
func Dir(path string, opts ...Option) (*DirStore, error) {
	if path == "" {
		return nil, errors.New("idem: blobs: path: is empty; name a directory")
	}
	path, err := filepath.Abs(path) // the process may change its directory later
	if err != nil {
		return nil, fmt.Errorf("idem: blobs: path: %w", err)
	}
	s := &DirStore{dir: path, now: time.Now}
	for _, opt := range opts {
		opt(s)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("idem: blobs: path: %w", err)
	}
	return s, nil
}

// file returns the path of a blob, in one of 256 directories. Hashes are different names even on a file system that ignores
// case.
func (s *DirStore) file(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(s.dir, name[:2], name[2:])
}

// Put implements driver.Blobs. The ttl counts in ms and must be positive.
func (s *DirStore) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("idem: blobs: ttl: %v: must be positive", ttl)
	}
	content := encode(id, data, s.now().Add(ttl))
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, s.write(s.file(id), content) })
	return err
}

// write writes a file.
func (s *DirStore) write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		s.mu.RLock()
		defer s.mu.RUnlock()
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Get implements driver.Blobs. Its error wraps fs.ErrNotExist if there is no such blob, or if it has expired.
func (s *DirStore) Get(ctx context.Context, id string) ([]byte, error) {
	if err := check(ctx, id); err != nil {
		return nil, err
	}
	content, err := await(ctx, func() ([]byte, error) { return os.ReadFile(s.file(id)) })
	if err != nil {
		return nil, err
	}
	data, expires, err := decode(id, content)
	if err != nil {
		return nil, err
	}
	if !s.now().Before(expires) {
		return nil, fmt.Errorf("idem: blobs: %s has expired: %w", id, fs.ErrNotExist)
	}
	return data, nil
}

// Delete implements driver.Blobs. It returns nil if there is no such blob.
func (s *DirStore) Delete(ctx context.Context, id string) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, os.Remove(s.file(id)) })
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// await calls f and returns its results. If ctx ends first, await returns an error and f goes on: nothing can interrupt a file
// system that hangs, such as one on another machine.
func await[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	var result T
	var failed error
	go func() {
		defer close(done)
		result, failed = f()
	}()
	select {
	case <-done:
		return result, failed
	case <-ctx.Done():
		return value, fmt.Errorf("idem: blobs: the file system did not respond in time: %w", ctx.Err())
	}
}

// Sweep removes expired files, and temporary files that are older than an hour. It returns how many files it has removed.
// Call it regularly, from one process or several, because nothing else removes files. Sweep continues after an error and
// returns the first one: a directory that is missing, is no directory or cannot be read, or a file that cannot be read or
// removed. The store's directory and those in it may be symbolic links. Sweep does not touch files that are symbolic links or
// have another format.
func (s *DirStore) Sweep(ctx context.Context) (n int, err error) {
	shards, err := os.ReadDir(s.dir)
	for _, shard := range shards {
		if !isShard(shard.Name()) {
			continue
		}
		removed, shardErr := s.sweepShard(ctx, filepath.Join(s.dir, shard.Name()))
		n += removed
		if err == nil {
			err = shardErr
		}
	}
	return n, cmp.Or(ctx.Err(), err)
}

// isShard reports whether Put makes directories with such a name: two hexadecimal digits.
func isShard(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == 2
}

// sweepShard sweeps one of the 256 directories, and returns the first error.
func (s *DirStore) sweepShard(ctx context.Context, dir string) (n int, err error) {
	files, err := os.ReadDir(dir)
	for _, file := range files {
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		if !file.Type().IsRegular() {
			continue
		}
		removed, fileErr := s.sweep(filepath.Join(dir, file.Name()))
		if removed {
			n++
		}
		if err == nil && !errors.Is(fileErr, fs.ErrNotExist) { // another process may have removed the file
			err = fileErr
		}
	}
	return n, err
}

// sweep removes one file if it has expired or was abandoned.
func (s *DirStore) sweep(path string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired, err := s.isExpired(path)
	if err != nil || !expired {
		return false, err
	}
	err = os.Remove(path)
	return err == nil, err
}

// isExpired reports whether a file has expired, or is a temporary file that no process writes any more.
func (s *DirStore) isExpired(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if strings.HasPrefix(filepath.Base(path), unfinished) {
		info, err := f.Stat()
		return err == nil && s.now().Sub(info.ModTime()) > abandoned, err
	}
	var head [headLength]byte
	if _, err := io.ReadFull(f, head[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	expires, ok := expiry(head[:])
	return ok && !s.now().Before(expires), nil
}

// check returns an error if ctx has ended or id is not valid.
func check(ctx context.Context, id string) error { return errors.Join(ctx.Err(), CheckID(id)) }
