package blobs_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/blobs"
	"github.com/go-idem/idem/core/blobs/blobstest"
	"github.com/go-idem/idem/internal/testclock"
)

var ctx = context.Background()

func newClock() *testclock.Clock { return testclock.New(time.Now().Truncate(time.Millisecond)) }

func newStore(tb testing.TB) (store *blobs.DirStore, dir string, c *testclock.Clock) {
	tb.Helper()
	dir, c = filepath.Join(tb.TempDir(), "not", "there"), newClock()
	store, err := blobs.Dir(dir, blobs.Clock(c.Now))
	require.NoError(tb, err)
	return store, dir, c
}

func put(tb testing.TB, store *blobs.DirStore, id, data string, ttl time.Duration) {
	tb.Helper()
	require.NoError(tb, store.Put(ctx, id, []byte(data), ttl))
}

// files returns the paths of all files below dir.
func files(tb testing.TB, dir string) (paths []string) {
	tb.Helper()
	require.NoError(tb, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

func sweep(tb testing.TB, store *blobs.DirStore) int {
	tb.Helper()
	n, err := store.Sweep(ctx)
	require.NoError(tb, err)
	return n
}

func TestContract(t *testing.T) {
	t.Run("on a directory of its own", func(t *testing.T) {
		blobstest.Run(t, func(tb testing.TB) blobstest.Harness {
			store, _, c := newStore(tb)
			return blobstest.Harness{Blobs: store, Advance: c.Advance}
		})
	})
	t.Run("while another process sweeps", func(t *testing.T) {
		dir := t.TempDir()
		blobstest.Run(t, func(tb testing.TB) blobstest.Harness {
			store, err := blobs.Dir(dir)
			require.NoError(tb, err)
			other, err := blobs.Dir(dir)
			require.NoError(tb, err)
			return blobstest.Harness{Blobs: store, Advance: func(d time.Duration) {
				_, err := other.Sweep(ctx)
				assert.NoError(tb, err)
				time.Sleep(d)
				_, err = other.Sweep(ctx)
				assert.NoError(tb, err)
			}}
		})
	})
}

func TestBlobEndsAtItsTTLAndNotBefore(t *testing.T) {
	store, _, c := newStore(t)
	put(t, store, "id", "data", time.Minute)
	c.Advance(time.Minute - time.Millisecond)
	_, err := store.Get(ctx, "id")
	require.NoError(t, err)
	assert.Equal(t, 0, sweep(t, store))
	c.Advance(time.Millisecond)
	_, err = store.Get(ctx, "id")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, 1, sweep(t, store))
}

func TestBlobOutlivesTheProcess(t *testing.T) {
	store, dir, _ := newStore(t)
	put(t, store, "id", "data", time.Hour)
	again, err := blobs.Dir(dir)
	require.NoError(t, err)
	data, err := again.Get(ctx, "id")
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	store, dir, _ := newStore(t)
	for _, id := range []string{"one", "two", "three"} {
		put(t, store, id, "data", time.Hour)
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		if entry.IsDir() {
			assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), path)
			return nil
		}
		assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
		return nil
	}))
}

func TestFilesAreSpreadOverDirectories(t *testing.T) {
	store, dir, _ := newStore(t)
	for i := range 200 {
		put(t, store, "same-beginning-"+strings.Repeat("x", i%100)+strings.Repeat("y", i/100), "data", time.Hour)
	}
	directories := map[string]int{}
	for _, path := range files(t, dir) {
		directories[filepath.Dir(path)]++
	}
	assert.Greater(t, len(directories), 50)
	for _, n := range directories {
		assert.Less(t, n, 20)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	store, dir, c := newStore(t)
	for range 3 {
		put(t, store, "id", "data", time.Hour)
	}
	assert.Len(t, files(t, dir), 1)
	require.NoError(t, store.Delete(ctx, "id"))
	assert.Empty(t, files(t, dir))
	put(t, store, "id", "data", time.Minute)
	c.Advance(time.Hour)
	assert.Equal(t, 1, sweep(t, store))
	assert.Empty(t, files(t, dir))
}

// A file where the directory of a blob should be, or a directory where its file should be, is a write that fails.
func TestPutThatFailsLeavesNothingBehind(t *testing.T) {
	store, dir, _ := newStore(t)
	put(t, store, "id", "data", time.Hour)
	path := files(t, dir)[0]
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	require.Error(t, store.Put(ctx, "id", []byte("data"), time.Hour))
	assert.Empty(t, files(t, dir))

	require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	require.NoError(t, os.WriteFile(filepath.Dir(path), nil, 0o600))
	require.Error(t, store.Put(ctx, "id", []byte("data"), time.Hour))
	_, err := store.Get(ctx, "id")
	require.Error(t, err)
	require.Error(t, store.Delete(ctx, "id"))
}

func TestDamagedFileIsLost(t *testing.T) {
	store, dir, _ := newStore(t)
	put(t, store, "id", "some data", time.Hour)
	path := files(t, dir)[0]
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	lost := func(content []byte, msg ...any) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, content, 0o600))
		data, err := store.Get(ctx, "id")
		assert.Error(t, err, msg...)
		assert.Nil(t, data, msg...)
		_, err = store.Sweep(ctx)
		assert.NoError(t, err, msg...)
	}
	for n := range whole {
		lost(whole[:n], "the first %d bytes", n)
	}
	lost(append(bytes.Clone(whole), 0), "one byte more")
	lost(make([]byte, len(whole)), "zeros")
	for i := range 8 * len(whole) {
		damaged := bytes.Clone(whole)
		damaged[i/8] ^= 1 << (i % 8)
		lost(damaged, "bit %d of byte %d", i%8, i/8)
		put(t, store, "id", "some data", time.Hour)
	}
	_, err = store.Get(ctx, "id")
	assert.NoError(t, err)
}

func TestFileOfAnotherBlobIsLost(t *testing.T) {
	store, dir, _ := newStore(t)
	put(t, store, "mine", "my data", time.Hour)
	mine := files(t, dir)[0]
	put(t, store, "theirs", "their data", time.Hour)
	for _, path := range files(t, dir) {
		if path != mine {
			require.NoError(t, os.Rename(path, mine))
		}
	}
	_, err := store.Get(ctx, "mine")
	assert.Error(t, err)
}

func TestSweepRemovesWhatIsOverAndNothingElse(t *testing.T) {
	store, dir, c := newStore(t)
	put(t, store, "short", "data", time.Minute)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	content, err := os.ReadFile(files(t, dir)[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(elsewhere, content, 0o600))
	put(t, store, "shorter", "data", time.Second)
	put(t, store, "long", "data", time.Hour)
	beside := filepath.Dir(files(t, dir)[0])
	foreign := map[string]string{"short-file": "1", "other-format": "2\x00\x00\x00\x00\x00\x00\x00\x00 and more", "empty": ""}
	for name, content := range foreign {
		require.NoError(t, os.WriteFile(filepath.Join(beside, name), []byte(content), 0o600))
	}
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(beside, "link")))
	c.Advance(2 * time.Minute)
	assert.Equal(t, 2, sweep(t, store))
	assert.Equal(t, 0, sweep(t, store))
	_, err = store.Get(ctx, "long")
	assert.NoError(t, err)
	assert.Len(t, files(t, dir), 1+len(foreign)+1)
}

// What a process left that died while it wrote.
func TestSweepRemovesFilesThatWereNeverFinished(t *testing.T) {
	store, dir, c := newStore(t)
	put(t, store, "id", "data", 24*time.Hour)
	left := filepath.Join(filepath.Dir(files(t, dir)[0]), "unfinished-1234")
	require.NoError(t, os.WriteFile(left, []byte("1\x00\x00"), 0o600))
	c.Advance(30 * time.Minute)
	assert.Equal(t, 0, sweep(t, store), "it may be being written")
	c.Advance(2 * time.Hour)
	assert.Equal(t, 1, sweep(t, store))
	assert.NoFileExists(t, left)
	_, err := store.Get(ctx, "id")
	assert.NoError(t, err)
}

// lookedAt returns a store on dir that calls then, once, while it sweeps: after a look at a file, before its removal.
func lookedAt(tb testing.TB, dir string, c *testclock.Clock, then func()) *blobs.DirStore {
	tb.Helper()
	var looked atomic.Bool
	store, err := blobs.Dir(dir, blobs.Clock(func() time.Time {
		if !looked.Swap(true) {
			then()
		}
		return c.Now()
	}))
	require.NoError(tb, err)
	return store
}

// An operator has moved the directory, or a part of it, to another disk.
func TestSweepFollowsLinksToDirectories(t *testing.T) {
	_, dir, c := newStore(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	linked, err := blobs.Dir(link, blobs.Clock(c.Now))
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c"} {
		put(t, linked, id, "data", time.Minute)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	shard := filepath.Dir(files(t, dir)[0])
	require.NoError(t, os.Rename(shard, moved))
	require.NoError(t, os.Symlink(moved, shard))
	require.NoError(t, os.WriteFile(filepath.Join(moved, "unfinished-1"), nil, 0o600))
	assert.Equal(t, 0, sweep(t, linked))
	c.Advance(2 * time.Hour)
	assert.Equal(t, 4, sweep(t, linked))
	assert.Empty(t, files(t, moved))
	put(t, linked, "a", "data", time.Hour)
	_, err = linked.Get(ctx, "a")
	assert.NoError(t, err)
}

// A sweep that could not look is not one that found nothing.
func TestSweepReportsWhatItCannotLookAt(t *testing.T) {
	loop := func(path string) error { return os.Symlink(path, path) }
	dangling := func(path string) error { return os.Symlink(path+" is gone", path) }
	file := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	closed := func(path string) error { return os.Mkdir(path, 0) }
	for name, instead := range map[string]func(string) error{
		"a link that leads nowhere": dangling, "a link to itself": loop, "a file": file, "a directory that may not be read": closed,
		"nothing": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a directory that may not be read" && os.Getuid() == 0 {
				t.Skip("root may read it")
			}
			store, dir, c := newStore(t)
			for _, id := range []string{"a", "b", "c"} {
				put(t, store, id, "data", time.Minute)
			}
			c.Advance(time.Hour)
			all := files(t, dir)
			shard := filepath.Dir(all[1])
			if name != "nothing" {
				require.NoError(t, os.RemoveAll(shard))
				require.NoError(t, instead(shard))
				n, err := store.Sweep(ctx)
				assert.ErrorContains(t, err, shard)
				assert.Equal(t, 2, n, "the others are swept")
			}
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, instead(dir))
			n, err := store.Sweep(ctx)
			assert.ErrorContains(t, err, dir)
			assert.Zero(t, n)
		})
	}
}

// A disk's own directory, which only root may read, lies beside the store's.
func TestSweepLeavesForeignDirectoriesAlone(t *testing.T) {
	store, dir, c := newStore(t)
	put(t, store, "a", "data", time.Minute)
	content, err := os.ReadFile(files(t, dir)[0])
	require.NoError(t, err)
	for _, name := range []string{"lost+found", "abc", "zz"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "file"), content, 0o600))
	}
	c.Advance(time.Hour)
	assert.Equal(t, 1, sweep(t, store))
	assert.Len(t, files(t, dir), 3)
}

func TestSweepGoesOnAfterAnError(t *testing.T) {
	store, dir, c := newStore(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		put(t, store, id, "data", time.Minute)
	}
	c.Advance(time.Hour)
	first := files(t, dir)[0]
	n, err := lookedAt(t, dir, c, func() {
		require.NoError(t, os.Remove(first))
		require.NoError(t, os.MkdirAll(filepath.Join(first, "in the way"), 0o700))
	}).Sweep(ctx)
	assert.ErrorContains(t, err, filepath.Base(first))
	assert.Equal(t, 3, n)
}

func TestSweepIsNotTroubledByAnotherProcess(t *testing.T) {
	store, dir, c := newStore(t)
	put(t, store, "a", "data", time.Minute)
	put(t, store, "b", "data", time.Minute)
	c.Advance(time.Hour)
	n, err := lookedAt(t, dir, c, func() { assert.Equal(t, 2, sweep(t, store)) }).Sweep(ctx)
	assert.NoError(t, err)
	assert.Equal(t, 0, n)
}

func TestBlobThatIsPutWhileItIsSweptIsNotLost(t *testing.T) {
	_, dir, c := newStore(t)
	done := make(chan struct{})
	var store *blobs.DirStore
	store = lookedAt(t, dir, c, func() {
		go func() {
			defer close(done)
			assert.NoError(t, store.Put(ctx, "id", []byte("new"), time.Hour))
		}()
		select {
		case <-done: // too early: what is removed now is the new one
		case <-time.After(200 * time.Millisecond):
		}
	})
	other, err := blobs.Dir(dir, blobs.Clock(c.Now))
	require.NoError(t, err)
	put(t, other, "id", "old", time.Minute)
	c.Advance(time.Hour / 2)
	assert.Equal(t, 1, sweep(t, store))
	<-done
	data, err := store.Get(ctx, "id")
	require.NoError(t, err)
	assert.Equal(t, "new", string(data))
}

func TestSweepEndsWithItsContext(t *testing.T) {
	store, dir, c := newStore(t)
	put(t, store, "id", "data", time.Minute)
	c.Advance(time.Hour)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	n, err := store.Sweep(cancelled)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 0, n)
	assert.Len(t, files(t, dir), 1)
}

func TestARelativeDirectoryStaysWhereItWas(t *testing.T) {
	t.Chdir(t.TempDir())
	store, err := blobs.Dir("kept")
	require.NoError(t, err)
	put(t, store, "id", "data", time.Hour)
	t.Chdir(t.TempDir())
	_, err = store.Get(ctx, "id")
	assert.NoError(t, err)
}

func TestDirRefusesWhatIsNoDirectory(t *testing.T) {
	_, err := blobs.Dir("")
	assert.ErrorContains(t, err, "idem: blobs: path: is empty")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = blobs.Dir(file)
	assert.ErrorContains(t, err, "idem: blobs: path: ")
}

// A named pipe without a writer stands for a file on a file system that hangs.
func TestACallEndsWithItsContextAlthoughTheFileSystemHangs(t *testing.T) {
	store, dir, _ := newStore(t)
	put(t, store, "id", "data", time.Hour)
	file := files(t, dir)[0]
	require.NoError(t, os.Remove(file))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := store.Get(soon, "id")
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotErrorIs(t, err, fs.ErrNotExist, "it is not lost")
	writer, err := os.OpenFile(file, os.O_WRONLY, 0) // lets the read end
	require.NoError(t, err)
	require.NoError(t, writer.Close())
}
