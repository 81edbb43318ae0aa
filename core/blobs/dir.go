// Package blobs keeps long outcomes in files. Other places are packages of their own; package blobstest checks any.
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

// Option changes a DirStore.
type Option func(*DirStore)

// Clock replaces the clock, for tests.
func Clock(now func() time.Time) Option { return func(s *DirStore) { s.now = now } }

// DirStore is a driver.Blobs in a directory, which processes on one or several machines may share: a file is written beside
// its place and then renamed. A process that dies while it writes leaves a file that Sweep removes. Files are readable for
// their owner alone; their names say nothing of what is in them.
//
// Files expire by the wall clocks of those who write and read them. They are on disk before they have their name, so a power
// loss can lose the latest, but leaves no half of one.
type DirStore struct {
	dir string
	now func() time.Time

	mu sync.RWMutex // held while a file gets its name, and by Sweep from a look at a file to its removal
}

var _ driver.Blobs = (*DirStore)(nil)

const (
	unfinished = "unfinished-"
	abandoned  = time.Hour // no write takes as long
)

// Dir returns a store in the directory path, which it makes, for its owner alone, if there is none. Nothing else should
// write there.
func Dir(path string, opts ...Option) (*DirStore, error) {
	if path == "" {
		return nil, errors.New("idem: blobs: path: is empty; name a directory")
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

// file is where the blob lies: one of 256 directories. Hashes are distinct also where names are the same in upper and
// lower case.
func (s *DirStore) file(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(s.dir, name[:2], name[2:])
}

// Put implements driver.Blobs. The ttl is counted in milliseconds and must be positive.
func (s *DirStore) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("idem: blobs: ttl: %v: must be positive", ttl)
	}
	path := s.file(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	_, err = f.Write(encode(id, data, s.now().Add(ttl)))
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

// Get implements driver.Blobs. The error for a blob that is not there, or no longer, is fs.ErrNotExist.
func (s *DirStore) Get(ctx context.Context, id string) ([]byte, error) {
	if err := check(ctx, id); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(s.file(id))
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

// Delete implements driver.Blobs. A blob that is not there is no error.
func (s *DirStore) Delete(ctx context.Context, id string) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	if err := os.Remove(s.file(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes the files that have expired, and those that were never finished, and returns how many it removed. Call it
// now and then, from one process or several: nothing else does. It goes on after an error and returns the first: of a
// directory that is missing, is none or may not be read, and of a file that may not be read or removed. The store's directory
// and those in it may be symbolic links; files that are, and what Sweep does not understand, stay.
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

// isShard tells whether a directory may be one that Put makes: two hex digits.
func isShard(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == 2
}

// sweepShard sweeps one directory of the store's, and returns the first error.
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
		if err == nil && !errors.Is(fileErr, fs.ErrNotExist) { // another process was there first
			err = fileErr
		}
	}
	return n, err
}

// sweep removes one file, if its time is over.
func (s *DirStore) sweep(path string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over, err := s.over(path)
	if err != nil || !over {
		return false, err
	}
	err = os.Remove(path)
	return err == nil, err
}

func (s *DirStore) over(path string) (bool, error) {
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

// check refuses what no verb takes.
func check(ctx context.Context, id string) error { return errors.Join(ctx.Err(), CheckID(id)) }
