package core_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/seal"
	"github.com/go-idem/idem/core/storetest"
)

// kept is a store that shows the outcomes that reach it. A damage changes those that it gives back.
type kept struct {
	driver.Store
	outcomes [][]byte
	damage   func([]byte) []byte
}

func (k *kept) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	entry, err := k.Store.Begin(ctx, c)
	if entry.State == driver.Completed && k.damage != nil {
		entry.Outcome = k.damage(bytes.Clone(entry.Outcome))
	}
	return entry, err
}

func (k *kept) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	k.outcomes = append(k.outcomes, outcome)
	return k.Store.Complete(ctx, c, outcome)
}

// keeping puts k between an engine and its store.
func keeping(k *kept) func(*core.Config) {
	return func(c *core.Config) {
		k.Store = c.Store
		c.Store = k
	}
}

// tagged is a codec that puts a tag in front, and notes what it does.
type tagged struct {
	tag string
	log *[]string
}

func (c tagged) Encode(record [32]byte, outcome []byte) []byte {
	*c.log = append(*c.log, "encode "+c.tag)
	return append([]byte(c.tag+string(record[:1])), outcome...)
}

func (c tagged) Decode(record [32]byte, kept []byte) ([]byte, error) {
	*c.log = append(*c.log, "decode "+c.tag)
	rest, ok := bytes.CutPrefix(kept, []byte(c.tag+string(record[:1])))
	if !ok {
		return nil, fmt.Errorf("%w: no tag %s", driver.ErrUnreadable, c.tag)
	}
	return rest, nil
}

// coded is an engine's codecs: first zip, then seal.
func coded(log *[]string) func(*core.Config) {
	return func(c *core.Config) { c.Keep.Codecs = []driver.Codec{tagged{"zip", log}, tagged{"seal", log}} }
}

func TestCodecsAreUndoneInReverse(t *testing.T) {
	var log []string
	k := &kept{}
	f := newFixture(t, keeping(k), coded(&log))
	f.answered(f.send(request("K", "B"), made), 201, "made")
	require.Len(t, k.outcomes, 1)
	assert.True(t, bytes.HasPrefix(k.outcomes[0], []byte("seal")), "the last codec makes what is stored")
	f.replayed(f.send(request("K", "B"), made), 201, "made")
	assert.Equal(t, []string{"encode zip", "encode seal", "decode seal", "decode zip"}, log)
	f.ran(1)
}

func TestAnOutcomeIsEncodedOnceHoweverOftenItIsSent(t *testing.T) {
	inBubble(t, "a nonce of its own each time would be another outcome", func(t *testing.T) {
		var log []string
		f := newFixture(t, coded(&log))
		f.store.Inject("complete", storetest.After, 3)
		f.send(request("K", "B"), made)
		f.close()
		assert.Equal(t, []string{"encode zip", "encode seal"}, log)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
	})
}

func TestWhatCodecsCannotReadIsRefusedAndNeverRunAgain(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"by the last":           func(b []byte) []byte { b[0]++; return b },
		"by the first":          func(b []byte) []byte { b[len("seal")+1]++; return b },
		"by none":               func(b []byte) []byte { b[len(b)-1]++; return b },
		"of another record":     func(b []byte) []byte { b[len("seal")]++; return b },
		"kept without codecs":   func(b []byte) []byte { return b[len("seal")+len("zip")+2:] },
		"of which nothing left": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			k := &kept{}
			f := newFixture(t, keeping(k), coded(new([]string)))
			f.send(request("K", "B"), made)
			k.damage = damage
			f.heard.take()
			for range 2 {
				result := f.send(request("K", "B"), made)
				f.refused(result, 503, "record-unreadable")
				assert.NotContains(t, string(result.Response.Body), "made")
			}
			events := f.heard.take()
			require.Len(t, events, 2)
			assert.ErrorIs(t, events[0].Err, driver.ErrUnreadable)
			if codec, isOfCodec := map[string]string{"by the last": "no tag seal", "by the first": "no tag zip"}[name]; isOfCodec {
				assert.ErrorContains(t, events[0].Err, codec)
			}
			k.damage = nil
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			f.ran(1)
		})
	}
	t.Run("because they are not configured any more", func(t *testing.T) {
		f := newFixture(t, coded(new([]string)))
		f.send(request("K", "B"), made)
		plain := f.with(func(c *core.Config) { c.Keep.Codecs = nil })
		plain.refused(plain.send(request("K", "B"), made), 503, "record-unreadable")
		f.ran(1)
	})
}

// shelf is blobs in memory.
type shelf struct {
	mu                 sync.Mutex
	blobs              map[string][]byte
	ends               map[string]time.Time
	log                []string
	put, get, deleting func(context.Context) error // fail when they are told to
}

func newShelf() *shelf {
	fine := func(context.Context) error { return nil }
	return &shelf{blobs: map[string][]byte{}, ends: map[string]time.Time{}, put: fine, get: fine, deleting: fine}
}

func (s *shelf) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprint("put for ", ttl))
	if err := s.put(ctx); err != nil {
		return err
	}
	s.blobs[id], s.ends[id] = data, time.Now().Add(ttl)
	return nil
}

func (s *shelf) Get(ctx context.Context, id string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "get")
	data, ok := s.blobs[id]
	if !ok || !s.ends[id].After(time.Now()) {
		return nil, fmt.Errorf("blob %s: %w", id, fs.ErrNotExist)
	}
	return data, s.get(ctx)
}

func (s *shelf) Delete(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "delete")
	delete(s.blobs, id)
	return s.deleting(ctx)
}

// taken is what was asked of the shelf since this was last called.
func (s *shelf) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// clear removes all blobs.
func (s *shelf) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.blobs)
	s.log = nil
}

// ids are those of the blobs on the shelf.
func (s *shelf) ids() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.blobs {
		ids = append(ids, id)
	}
	return ids
}

// shelving keeps bodies longer than 4 bytes on s.
func shelving(s *shelf) func(*core.Config) {
	return func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom, c.Keep.MaxBody = s, 4, 100 }
}

var (
	length = core.Field{Name: "X-Kept", Value: "kept"}
	long   = answers(201, "whole", length)
)

// omitted: result is a replay without its body.
func (f *fixture) omitted(result core.Result) {
	f.tb.Helper()
	f.replayed(result, 201, "")
	assert.Equal(f.tb, []string{"omitted"}, values(result.Response, "Idempotent-Body"))
	assert.Equal(f.tb, []string{"kept"}, values(result.Response, "X-Kept"))
	assert.Equal(f.tb, []string{"0"}, values(result.Response, "Content-Length"))
}

// RPL-27.
func TestALongBodyIsKeptInABlob(t *testing.T) {
	s, k := newShelf(), &kept{}
	f := newFixture(t, keeping(k), shelving(s))
	f.answered(f.send(request("K", "B"), long), 201, "whole")
	assert.Equal(t, []string{fmt.Sprint("put for ", retention+11*lease)}, s.taken())
	require.Len(t, k.outcomes, 1)
	assert.NotContains(t, string(k.outcomes[0]), "whole", "the store is spared it")
	for range 2 {
		again := f.send(request("K", "B"), long)
		f.replayed(again, 201, "whole")
		assert.Equal(t, []string{"kept"}, values(again.Response, "X-Kept"))
		assert.Equal(t, []string{"5"}, values(again.Response, "Content-Length"))
		assert.Empty(t, values(again.Response, "Idempotent-Body"))
	}
	assert.Equal(t, []string{"get", "get"}, s.taken())
	f.ran(1)
	assert.Equal(t, "begin kept replay replay", f.heard.names())
}

func TestABodyThatIsNotLongNeedsNoBlob(t *testing.T) {
	for name, c := range map[string]struct {
		handler handler
		change  func(*core.Config)
		want    string
	}{
		"of exactly the limit":       {answers(201, "1234", length), nil, "1234"},
		"over what is kept at all":   {answers(201, strings.Repeat("x", 101), length), nil, ""},
		"that is omitted on purpose": {long, func(c *core.Config) { c.Keep.OmitBody = func(*core.Response) bool { return true } }, ""},
		"of an answer to be retried": {answers(500, "whole", length), nil, "whole"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			f := newFixture(t, shelving(s))
			if c.change != nil {
				f = f.with(c.change)
			}
			f.send(request("K", "B"), c.handler)
			again := f.send(request("K", "B"), c.handler)
			assert.Equal(t, c.want, string(again.Response.Body))
			assert.Empty(t, s.taken())
		})
	}
}

// RPL-27: what can not be had is an omitted body, not another run.
func TestABlobThatIsLostIsAnOmittedBody(t *testing.T) {
	for name, lose := range map[string]func(*shelf, string){
		"gone":                    func(s *shelf, id string) { delete(s.blobs, id) },
		"out of reach":            func(s *shelf, _ string) { s.get = func(context.Context) error { return errTest } },
		"damaged":                 func(s *shelf, id string) { s.blobs[id] = append([]byte{}, s.blobs[id][1:]...) },
		"of nothing":              func(s *shelf, id string) { s.blobs[id] = nil },
		"unreadable":              func(s *shelf, _ string) { s.get = func(context.Context) error { return driver.ErrUnreadable } },
		"slower than the timeout": func(s *shelf, _ string) { s.get = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newShelf()
			f := newFixture(t, shelving(s))
			f.send(request("K", "B"), long)
			require.Len(t, s.ids(), 1)
			lose(s, s.ids()[0])
			assert.LessOrEqual(t, elapsed(func() { f.omitted(f.send(request("K", "B"), long)) }), storeTimeout)
			events := f.heard.take()
			assert.Equal(t, "begin kept store-error replay", namesOf(events))
			isOutOfReach := name == "out of reach" || name == "slower than the timeout"
			assert.Equal(t, isOutOfReach, strings.Contains(fmt.Sprint(events[2].Err), "blob is unavailable"), "%v", events[2].Err)
			f.ran(1)
		})
	}
	t.Run("that names a blob in its turn", func(t *testing.T) {
		s, k := newShelf(), &kept{}
		f := newFixture(t, keeping(k), shelving(s))
		f.send(request("K", "B"), long)
		s.blobs[s.ids()[0]] = k.outcomes[0]
		f.omitted(f.send(request("K", "B"), long))
	})
	t.Run("for an engine that has no blobs any more", func(t *testing.T) {
		f := newFixture(t, shelving(newShelf()))
		f.send(request("K", "B"), long)
		plain := f.with(func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = nil, 0 })
		plain.omitted(plain.send(request("K", "B"), long))
		f.ran(1)
	})
}

func TestABlobThatCannotBePutIsAnOmittedBody(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"it fails": func(context.Context) error { return errTest },
		"it hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newShelf()
			f := newFixture(t, shelving(s))
			s.put = fail
			assert.LessOrEqual(t, elapsed(func() { f.answered(f.send(request("K", "B"), long), 201, "whole") }), storeTimeout)
			f.omitted(f.send(request("K", "B"), long))
			assert.NotContains(t, s.taken(), "get")
			f.ran(1)
			assert.Equal(t, "begin store-error kept replay", f.heard.names())
		})
	}
}

func TestABlobOfAnOutcomeThatWasNotKeptIsDeleted(t *testing.T) {
	inBubble(t, "another run has the key", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, request("K", "B"), long)
		time.Sleep(lease)
		f.answered(f.send(request("K", "B"), answers(201, "the heir's", length)), 201, "the heir's")
		heirs := s.ids()
		require.Len(t, heirs, 1)
		s.deleting = func(context.Context) error { return errTest } // it has its own end: nobody minds
		f.refused(running.finish(), 409, "claim-lost")
		assert.Equal(t, []string{fmt.Sprint("put for ", retention+11*lease), fmt.Sprint("put for ", retention+11*lease), "delete"}, s.taken())
		assert.Equal(t, heirs, s.ids(), "the heir's stands")
		f.replayed(f.send(request("K", "B"), made), 201, "the heir's")
	})
	inBubble(t, "but not while the store may have taken it", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		f.store.Inject("complete", storetest.After, 2)
		f.answered(f.send(request("K", "B"), long), 201, "whole")
		f.close()
		assert.NotContains(t, s.taken(), "delete")
		f.replayed(f.send(request("K", "B"), long), 201, "whole")
	})
}

// refusing is a store that takes no outcome before a time.
type refusing struct {
	driver.Store
	until time.Time
}

func (r *refusing) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if time.Now().Before(r.until) {
		return errTest
	}
	return r.Store.Complete(ctx, c, outcome)
}

func TestABlobLivesAsLongAsItsRecordAlsoWhenThatIsStoredLate(t *testing.T) {
	inBubble(t, "after nine leases", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s), func(c *core.Config) { c.Store = &refusing{c.Store, time.Now().Add(9 * lease)} })
		f.send(request("K", "B"), long)
		f.close()
		time.Sleep(retention - lease)
		f.replayed(f.send(request("K", "B"), made), 201, "whole")
		f.ran(1)
	})
	inBubble(t, "with the longest lease", func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		s := newShelf()
		f := newFixture(t, shelving(s), func(c *core.Config) { c.Lease.Duration, c.Keep.Retention = year, 100*year })
		f.send(request("K", "B"), long)
		assert.Equal(t, []string{fmt.Sprint("put for ", 111*year)}, s.taken())
	})
}

func TestBlobsAreNamedByTheirClaim(t *testing.T) {
	inBubble(t, "no two claims share one", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		var events []heard
		for _, key := range []string{"K", "K", "L"} {
			f.answered(f.send(request(key, "B"), long), 201, "whole")
			events = append(events, f.heard.take()...)
			time.Sleep(retention)
		}
		ids := s.ids()
		assert.Len(t, ids, 3)
		for i := 0; i < len(events); i += 2 {
			assert.Condition(t, func() bool {
				for _, id := range ids {
					if recordOf(t, id) == events[i].Record && strings.HasSuffix(id, fmt.Sprint("-", events[i].Fence)) {
						return true
					}
				}
				return false
			}, "no blob of %+v in %v", events[i].Event, ids)
		}
	})
}

// recordOf returns the text form of the name of the record whose blob has this ID.
func recordOf(t *testing.T, id string) string {
	digits, _, _ := strings.Cut(id, "-")
	name, err := hex.DecodeString(digits)
	require.NoError(t, err)
	return string(driver.AppendRecordName(nil, [32]byte(name)))
}

func TestCodecsApplyToBlobsToo(t *testing.T) {
	s, k := newShelf(), &kept{}
	f := newFixture(t, keeping(k), shelving(s), coded(new([]string)))
	f.send(request("K", "B"), long)
	require.Len(t, s.ids(), 1)
	for _, data := range append(k.outcomes, s.blobs[s.ids()[0]]) {
		assert.True(t, bytes.HasPrefix(data, []byte("seal")), "%q", hex.EncodeToString(data))
	}
	f.replayed(f.send(request("K", "B"), long), 201, "whole")
	s.blobs[s.ids()[0]][0]++
	f.omitted(f.send(request("K", "B"), long))
	f.ran(1)
}

// A codec is added in steps. No process meets an outcome that it cannot read, as long as only neighbouring steps run together.
func TestACodecThatIsAddedInStepsMakesNothingUnreadable(t *testing.T) {
	sealing := func(opts ...seal.Option) driver.Codec {
		codec, err := seal.New([]seal.Key{{ID: "1", Secret: bytes.Repeat([]byte("k"), 32)}}, opts...)
		require.NoError(t, err)
		return codec
	}
	packing := func(threshold int) driver.Codec {
		codec, err := compress.Zstd(compress.Threshold(threshold))
		require.NoError(t, err)
		return codec
	}
	steps := [][]driver.Codec{
		nil,
		{packing(math.MaxInt), sealing(seal.OpenOnly())},
		{packing(1), sealing(seal.AcceptPlain())},
		{packing(1), sealing()},
	}
	long := strings.Repeat("paid ", 100)
	f := newFixture(t)
	at := func(step int) *fixture { return f.with(func(c *core.Config) { c.Keep.Codecs = steps[step] }) }
	for step := range len(steps) - 1 {
		for _, pair := range [][2]int{{step, step + 1}, {step + 1, step}} {
			key := fmt.Sprint("K", pair[0], "-", pair[1])
			f.answered(at(pair[0]).send(request(key, "B"), answers(201, long)), 201, long)
			f.replayed(at(pair[1]).send(request(key, "B"), made), 201, long)
		}
	}
	at(2).send(request("K", "B"), answers(201, long))
	f.refused(at(0).send(request("K", "B"), made), 503, "record-unreadable")
	events := f.heard.take()
	assert.ErrorContains(t, events[len(events)-1].Err, "a process with another codec")
}
