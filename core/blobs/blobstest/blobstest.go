// Package blobstest checks that a driver.Blobs keeps its contract. It needs only the standard library, so implementations in
// other modules can use it:
//
//	func TestBlobs(t *testing.T) {
//		blobstest.Run(t, func(tb testing.TB) blobstest.Harness {
//			return blobstest.Harness{Blobs: newBlobs(tb), Advance: time.Sleep}
//		})
//	}
package blobstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Harness is a blob store under test. Each test uses its own ids, so many tests may share a store.
type Harness struct {
	Blobs driver.Blobs

	// Advance lets at least d pass on the clock by which blobs expire. For a clock that the test does not control that is
	// time.Sleep.
	Advance func(d time.Duration)
}

// The durations of the suite: a ttl that does not end during a test, and one that ends, but not between two calls on a
// busy machine.
const (
	long     = time.Hour
	short    = time.Second
	overtime = 1100 * time.Millisecond
)

// Run runs the suite on stores from newHarness, each test in parallel with the others. No test can be left out.
func Run(t *testing.T, newHarness func(testing.TB) Harness) {
	for _, test := range contract {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			test.run(&suite{TB: t, blobs: h.Blobs, advance: h.Advance})
		})
	}
}

// contract has all tests of the suite. Their names say what a blob store must do, and are what a failed run shows.
var contract = []struct {
	name string
	run  func(*suite)
}{
	{"a blob comes back as it was put", comesBack},
	{"a blob is the caller's", isTheCallers},
	{"a blob that was put again is the new one", isReplaced},
	{"a blob that nobody put is an error", (*suite).absent},
	{"a deleted blob is an error, and can be deleted again", isDeleted},
	{"a blob ends with its ttl", expires},
	{"a blob that was put again lives for the new ttl", livesAnew},
	{"ids that are alike are different blobs", areApart},
	{"a bad id is refused by every call", refusesIDs},
	{"a ttl that is not positive is refused", refusesTTLs},
	{"a cancelled context is an error", isCancelled},
	{"calls at one time see whole blobs", areWhole},
}

// suite is one running test with its blob store.
type suite struct {
	testing.TB
	blobs   driver.Blobs
	advance func(time.Duration)
}

// newID returns a random id.
func newID() string { return "id-" + rand.Text() }

// random returns random bytes, which no store can shorten by compression.
func random(size int) []byte {
	b := make([]byte, size)
	rand.Read(b)
	return b
}

// put stores data, and ends the test if Put returns an error.
func (s *suite) put(id string, data []byte, ttl time.Duration) {
	s.Helper()
	if err := s.blobs.Put(context.Background(), id, data, ttl); err != nil {
		s.Fatalf("Put %s: %v", id, err)
	}
}

// delete deletes a blob, and ends the test if Delete returns an error. A blob that is not there is no error.
func (s *suite) delete(id string) {
	s.Helper()
	if err := s.blobs.Delete(context.Background(), id); err != nil {
		s.Fatalf("Delete %s: %v", id, err)
	}
}

// is checks that Get returns want.
func (s *suite) is(id string, want []byte) {
	s.Helper()
	got, err := s.blobs.Get(context.Background(), id)
	if err != nil {
		s.Fatalf("Get %s: %v", id, err)
	}
	if !bytes.Equal(got, want) {
		s.Fatalf("Get %s: %d bytes, other than the %d that were put", id, len(got), len(want))
	}
}

// lost checks that Get returns an error that wraps fs.ErrNotExist, and nothing else. With another error the messages whose results
// are in such a blob stay Busy for ever.
func (s *suite) lost(id string) {
	s.Helper()
	if got, err := s.blobs.Get(context.Background(), id); !errors.Is(err, fs.ErrNotExist) || got != nil {
		s.Fatalf("Get %s: %d bytes and error %v, want an error alone that wraps fs.ErrNotExist", id, len(got), err)
	}
}

// comesBack puts blobs of many lengths, the empty one included, and reads each twice. nil and an empty slice are the same blob.
func comesBack(s *suite) {
	for _, data := range [][]byte{{}, {0}, []byte("text\r\n\x00\xff"), random(1), random(4097), random(1 << 20), random(6 << 20)} {
		id := newID()
		s.put(id, data, long)
		s.is(id, data)
		s.is(id, data)
	}
	id := newID()
	s.put(id, nil, long)
	s.is(id, nil)
}

// isTheCallers changes the slice that it has put, and then one that Get has returned. The blob must stay as it was: both
// slices belong to the caller.
func isTheCallers(s *suite) {
	id, data := newID(), []byte("as it was put")
	s.put(id, data, long)
	clear(data)
	s.is(id, []byte("as it was put"))
	if got, err := s.blobs.Get(context.Background(), id); err == nil {
		clear(got)
	}
	s.is(id, []byte("as it was put"))
}

// isReplaced puts blobs of other lengths under one id. No byte of a longer one may remain behind a shorter one.
func isReplaced(s *suite) {
	id := newID()
	for _, data := range [][]byte{random(1000), random(10), {}, random(2000)} {
		s.put(id, data, long)
		s.is(id, data)
	}
}

// absent reads a blob that nobody has put.
func (s *suite) absent() { s.lost(newID()) }

// isDeleted deletes a blob before it is there, once, and twice. Each Delete must return no error,
// whether the blob is there or not. Another blob must stay, and the id can be put again.
func isDeleted(s *suite) {
	id, other := newID(), newID()
	s.delete(id)
	s.put(id, []byte("first"), long)
	s.put(other, []byte("other"), long)
	s.delete(id)
	s.lost(id)
	s.delete(id)
	s.is(other, []byte("other"))
	s.put(id, []byte("second"), long)
	s.is(id, []byte("second"))
}

// expires checks that a blob is gone once its ttl is over, that a blob with a longer ttl stays, and that Delete then returns no
// error.
func expires(s *suite) {
	id, other := newID(), newID()
	s.put(other, []byte("long"), long)
	s.put(id, []byte("short"), short)
	s.is(id, []byte("short"))
	s.advance(overtime)
	s.lost(id)
	s.is(other, []byte("long"))
	s.delete(id)
}

// livesAnew puts a blob again with a longer ttl, and another with a shorter one. The last Put decides in both cases.
func livesAnew(s *suite) {
	longer, shorter := newID(), newID()
	s.put(longer, []byte("first"), short)
	s.put(longer, []byte("second"), long)
	s.put(shorter, []byte("first"), long)
	s.put(shorter, []byte("second"), short)
	s.advance(overtime)
	s.is(longer, []byte("second"))
	s.lost(shorter)
}

// areApart puts blobs under ids that a careless store would confuse: they differ in one byte, in case, in a leading "-" or "_",
// or in nothing but the last of 128 bytes. Case matters to stores on file systems that ignore it.
func areApart(s *suite) {
	base := newID()
	full := base + strings.Repeat("x", 128-len(base)-1)
	ids := []string{base, base + "a", base + "A", base + "-", base + "_", "-" + base, "_" + base, strings.ToLower(base), full + "y", full + "z"}
	for _, id := range ids {
		s.put(id, []byte("of "+id), long)
	}
	for _, id := range ids {
		s.is(id, []byte("of "+id))
	}
	s.delete(base)
	for _, id := range ids[1:] {
		s.is(id, []byte("of "+id))
	}
}

// refusesIDs checks that no call accepts an id that is empty, longer than 128 bytes, or has bytes other than ASCII letters,
// digits, "-" and "_". Such an id could name a file outside of a store's directory, or another object of a bucket.
func refusesIDs(s *suite) {
	ctx := context.Background()
	good := newID()
	s.put(good, []byte("good"), long)
	for _, id := range []string{"", ".", "..", "../" + good, "./" + good, "/" + good, good + "/", "a/b", `a\b`, "a.b", "a b", "a\x00b", "a\nb",
		"a%2e", "ä", "\u212a", strings.Repeat("x", 129), strings.Repeat("x", 10_000)} {
		if err := s.blobs.Put(ctx, id, []byte("bad"), long); err == nil {
			s.Errorf("Put %q: no error", id)
		}
		if got, err := s.blobs.Get(ctx, id); err == nil || got != nil {
			s.Errorf("Get %q: %q and error %v, want an error alone", id, got, err)
		}
		if err := s.blobs.Delete(ctx, id); err == nil {
			s.Errorf("Delete %q: no error", id)
		}
	}
	s.is(good, []byte("good"))
}

// refusesTTLs checks that a Put with a ttl of 0 or less is an error and stores nothing. Some stores take 0 for "for ever".
func refusesTTLs(s *suite) {
	id := newID()
	for _, ttl := range []time.Duration{0, -1, -time.Hour} {
		if err := s.blobs.Put(context.Background(), id, []byte("bad"), ttl); err == nil {
			s.Errorf("Put for %v: no error", ttl)
		}
	}
	s.lost(id)
}

// isCancelled checks that each call under a context that has ended returns the error of that context and changes nothing.
func isCancelled(s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	id := newID()
	s.put(id, []byte("kept"), long)
	_, getErr := s.blobs.Get(ctx, id)
	for call, err := range map[string]error{
		"Put": s.blobs.Put(ctx, id, []byte("cancelled"), long), "Get": getErr, "Delete": s.blobs.Delete(ctx, id),
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: error is %v, want %v", call, err, context.Canceled)
		}
	}
	s.is(id, []byte("kept"))
}

// areWhole runs writers and readers of one id at once. Each reader must get the whole blob of one writer.
func areWhole(s *suite) {
	const writers, rounds = 4, 10
	id := newID()
	blob := func(writer int) []byte { return bytes.Repeat([]byte{byte(writer)}, 20_000+1000*writer) }
	s.put(id, blob(0), long)
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for range rounds {
				if err := s.blobs.Put(context.Background(), id, blob(writer), long); err != nil {
					s.Errorf("Put: %v", err)
				}
			}
		})
		group.Go(func() {
			for range rounds {
				got, err := s.blobs.Get(context.Background(), id)
				if err != nil || len(got) == 0 || !bytes.Equal(got, blob(int(got[0]))) {
					s.Errorf("Get: %d bytes of no writer, error %v", len(got), err)
				}
			}
		})
	}
	group.Wait()
}
