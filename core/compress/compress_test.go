package compress_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
)

var _ driver.Codec = (*compress.Codec)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var record = [32]byte{1, 2, 3}

func newCodec(tb testing.TB, opts ...compress.Option) *compress.Codec {
	tb.Helper()
	c, err := compress.Zstd(opts...)
	require.NoError(tb, err)
	return c
}

func decode(tb testing.TB, c *compress.Codec, kept []byte) []byte {
	tb.Helper()
	outcome, err := c.Decode(record, kept)
	require.NoError(tb, err)
	return outcome
}

func unreadable(tb testing.TB, c *compress.Codec, kept []byte, msg ...any) {
	tb.Helper()
	outcome, err := c.Decode(record, kept)
	assert.ErrorIs(tb, err, driver.ErrUnreadable, msg...)
	assert.True(tb, outcome == nil, msg...)
}

// trained is the output of zstd --train --maxdict=4096 --dictID=9 on answers like those of orders.
func trained(tb testing.TB) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/orders.dict")
	require.NoError(tb, err)
	return b
}

// frame is outcome in the codec's form, whatever it costs.
func frame(tb testing.TB, outcome []byte, opts ...zstd.EOption) []byte {
	tb.Helper()
	e, err := zstd.NewWriter(nil, opts...)
	require.NoError(tb, err)
	return e.EncodeAll(outcome, []byte{'z'})
}

func noise(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(b)
	return b
}

func TestOutcomeComesBackAsItWas(t *testing.T) {
	codecs := map[string][]compress.Option{
		"default":                  nil,
		"everything":               {compress.Threshold(1)},
		"fast":                     {compress.Threshold(1), compress.Level(1)},
		"better":                   {compress.Threshold(1), compress.Level(7)},
		"best":                     {compress.Threshold(1), compress.Level(22)},
		"plain text as dictionary": {compress.Threshold(1), compress.Dictionary(300, newOrders(1).raw())},
		"trained dictionary":       {compress.Threshold(1), compress.Dictionary(9, trained(t))},
		"shortest dictionary":      {compress.Threshold(1), compress.Dictionary(1<<32-1, []byte("12345678"))},
		"longest dictionary":       {compress.Threshold(1), compress.Dictionary(70_000, bytes.Repeat([]byte("longest "), 1<<17))},
	}
	outcomes := map[string][]byte{
		"nothing":                  {},
		"one byte":                 []byte("1"),
		"mark alone":               []byte("z"),
		"like a stored one":        []byte("z\x00"),
		"like a compressed one":    frame(t, []byte("an outcome")),
		"long and begins with z":   bytes.Repeat([]byte("z"), 5000),
		"255 bytes":                newOrders(2).outcome(255)[:255],
		"256 bytes":                newOrders(2).outcome(256)[:256],
		"short answer":             newOrders(2).outcome(512),
		"answer":                   newOrders(2).outcome(4 << 10),
		"long answer":              newOrders(2).outcome(64 << 10),
		"more than a block":        newOrders(2).outcome(200 << 10),
		"more than the window":     newOrders(2).outcome(5 << 18),
		"zeros":                    append([]byte("1"), make([]byte, 1<<20)...),
		"noise":                    append([]byte("1"), noise(100_000)...),
		"noise, twice, far away":   append(append([]byte("1"), noise(1<<20+100)...), noise(1<<20+100)...),
		"words of the dictionary":  bytes.Repeat([]byte("longest "), 1000),
		"start of the dictionary":  []byte("12345678"),
		"line of the dictionary":   newOrders(1).raw()[:1000],
		"bytes of every value":     []byte(strings.Repeat("\x00\x01\xfe\xff\r\n", 500)),
		"text after a long nought": append(make([]byte, 300_000), newOrders(3).outcome(4096)...),
	}
	for name, opts := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCodec(t, opts...)
			for name, outcome := range outcomes {
				before := bytes.Clone(outcome)
				kept := c.Encode(record, outcome)
				assert.True(t, bytes.Equal(before, decode(t, c, kept)), name)
				assert.True(t, bytes.Equal(before, outcome), "%s: Encode changed its input", name)
			}
		})
	}
}

func TestOutcomeIsCompressedFromTheThreshold(t *testing.T) {
	dictionary := compress.Dictionary(1, newOrders(1).raw())
	for name, test := range map[string]struct {
		opts []compress.Option
		from int
	}{
		"1 KiB by default":        {nil, 1024},
		"less with a dictionary":  {[]compress.Option{dictionary}, 128},
		"as told":                 {[]compress.Option{compress.Threshold(2000)}, 2000},
		"as told, but dictionary": {[]compress.Option{dictionary, compress.Threshold(2000)}, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCodec(t, test.opts...)
			outcome := append([]byte("1"), bytes.Repeat([]byte("answer "), 1000)...)
			below, at := outcome[:test.from-1], outcome[:test.from]
			assert.Equal(t, below, c.Encode(record, below))
			kept := c.Encode(record, at)
			assert.Equal(t, byte('z'), kept[0])
			assert.Less(t, len(kept), len(at))
			assert.Equal(t, at, decode(t, c, kept))
		})
	}
}

func TestOutcomeThatWouldNotGetSmallerStaysAsItIs(t *testing.T) {
	c := newCodec(t, compress.Threshold(1), compress.Dictionary(1, newOrders(1).raw()))
	for _, outcome := range [][]byte{[]byte("1"), []byte("1\x00ab"), append([]byte("1"), noise(5000)...)} {
		kept := c.Encode(record, outcome)
		assert.Equal(t, outcome, kept)
		assert.Equal(t, outcome, decode(t, c, kept))
	}
}

func TestWhatIsInAnotherFormIsReturnedUnchanged(t *testing.T) {
	c := newCodec(t)
	for _, kept := range []string{"", "1\x00\xc9\x01", "s\x01k", "\x28\xb5\x2f\xfd", "Z"} {
		assert.Equal(t, kept, string(decode(t, c, []byte(kept))))
	}
}

func TestEncodedOutcomeBelongsToTheCaller(t *testing.T) {
	c := newCodec(t)
	first := c.Encode(record, newOrders(1).outcome(60_000))
	before := bytes.Clone(first)
	assert.Less(t, cap(first), len(first)*5/4, "a store in memory keeps all of it")
	for seed := range uint64(20) {
		c.Encode(record, newOrders(seed).outcome(60_000))
	}
	assert.Equal(t, before, first)
}

func TestCodecServesManyAtOnce(t *testing.T) {
	c := newCodec(t, compress.Dictionary(9, trained(t)))
	var group sync.WaitGroup
	for seed := range uint64(16) {
		group.Go(func() {
			for r := newOrders(seed); seed < 1000; seed += 100 {
				outcome := r.outcome(100 + r.IntN(20_000))
				kept := c.Encode(record, outcome)
				got, err := c.Decode(record, kept)
				assert.NoError(t, err)
				assert.Equal(t, outcome, got)
				_, err = c.Decode(record, kept[:len(kept)-1])
				assert.ErrorIs(t, err, driver.ErrUnreadable)
			}
		})
	}
	group.Wait()
}

func TestDictionaryMakesShortAnswersSmaller(t *testing.T) {
	outcome := newOrders(5).outcome(512)
	without := newCodec(t, compress.Threshold(1)).Encode(record, outcome)
	for name, dictionary := range map[string]compress.Option{
		"plain text": compress.Dictionary(9, newOrders(1).raw()),
		"trained":    compress.Dictionary(9, trained(t)),
	} {
		with := newCodec(t, dictionary).Encode(record, outcome)
		assert.Less(t, len(with), len(without)*3/4, name)
	}
}

func TestDictionariesRotate(t *testing.T) {
	older, newer := compress.Dictionary(9, trained(t)), compress.Dictionary(10, newOrders(1).raw())
	outcome := newOrders(5).outcome(1000)
	before := newCodec(t, older).Encode(record, outcome)
	without := newCodec(t, compress.Threshold(1)).Encode(record, outcome)

	both := newCodec(t, newer, older)
	after := both.Encode(record, outcome)
	for _, kept := range [][]byte{before, after, without} {
		assert.Equal(t, outcome, decode(t, both, kept))
	}
	unreadable(t, newCodec(t, older), after, "the first dictionary encodes")
	assert.Equal(t, outcome, decode(t, newCodec(t, newer), after))
	unreadable(t, newCodec(t, newer), before)
	unreadable(t, newCodec(t), before)
}

func TestChangedDictionaryIsNoticed(t *testing.T) {
	text := newOrders(1).raw()
	kept := newCodec(t, compress.Dictionary(1, text)).Encode(record, newOrders(5).outcome(1000))
	unreadable(t, newCodec(t, compress.Dictionary(1, text[:len(text)-1])), kept)
	unreadable(t, newCodec(t, compress.Dictionary(1, bytes.ToUpper(text))), kept)
}

func TestDictionaryIsCopied(t *testing.T) {
	text, outcome := newOrders(1).raw(), newOrders(5).outcome(1000)
	c := newCodec(t, compress.Dictionary(1, text))
	kept := c.Encode(record, outcome)
	clear(text)
	assert.Equal(t, outcome, decode(t, c, kept))
	assert.Equal(t, outcome, decode(t, c, c.Encode(record, outcome)))
}

func TestLongOutcomeIsLeftAsItIsAndNotDecoded(t *testing.T) {
	for _, limit := range []int{100, 1023, 1024, 5000, 2 << 20} {
		c := newCodec(t, compress.Threshold(1), compress.MaxDecoded(limit))
		longest, longer := bytes.Repeat([]byte("1"), limit), bytes.Repeat([]byte("1"), limit+1)
		kept := c.Encode(record, longest)
		assert.Equal(t, byte('z'), kept[0], "%d", limit)
		assert.Equal(t, longest, decode(t, c, kept), "%d", limit)
		assert.Equal(t, longer, c.Encode(record, longer), "%d", limit)
		unreadable(t, c, newCodec(t, compress.Threshold(1)).Encode(record, longer), "%d", limit)
	}
}

func TestDefaultLimitIsSixteenMiB(t *testing.T) {
	c, higher := newCodec(t), newCodec(t, compress.MaxDecoded(64<<20))
	longest := make([]byte, 16<<20)
	assert.Len(t, decode(t, c, c.Encode(record, longest)), len(longest))
	unreadable(t, c, higher.Encode(record, append(longest, 0)))
}

// bombs say, or hide, that they are long.
func bombs(tb testing.TB) map[string][]byte {
	zeros := make([]byte, 64<<20)
	honest := frame(tb, zeros, zstd.WithSingleSegment(true))
	var stream bytes.Buffer
	stream.WriteByte('z')
	w, err := zstd.NewWriter(&stream)
	require.NoError(tb, err)
	for range len(zeros) >> 20 {
		_, err = w.Write(zeros[:1<<20])
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	short := frame(tb, zeros[:1000], zstd.WithSingleSegment(true))
	liar := bytes.Clone(honest)
	binary.LittleEndian.PutUint32(liar[1+5:], 1<<20)
	return map[string][]byte{
		"says its length":                honest,
		"says no length":                 stream.Bytes(),
		"says a shorter length":          liar,
		"hides behind a short frame":     append(bytes.Clone(short), honest[1:]...),
		"hides behind a skippable frame": append([]byte("z\x50\x2a\x4d\x18\x00\x00\x00\x00"), honest[1:]...),
	}
}

func TestMemoryForABombIsBounded(t *testing.T) {
	c := newCodec(t, compress.MaxDecoded(4<<20))
	for name, bomb := range bombs(t) {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			unreadable(t, c, bomb)
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes for %d", after.TotalAlloc-before.TotalAlloc, len(bomb))
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		})
	}
}

func TestFrameThatIsFollowedBySomethingIsUnreadable(t *testing.T) {
	c := newCodec(t)
	one := frame(t, bytes.Repeat([]byte("1"), 2000), zstd.WithSingleSegment(true))
	decode(t, c, one)
	unreadable(t, c, append(bytes.Clone(one), one[1:]...))
	unreadable(t, c, append(bytes.Clone(one), "something"...))
}

func TestFrameThatHoldsNothingIsUnreadable(t *testing.T) {
	c := newCodec(t)
	unreadable(t, c, []byte("z\x50\x2a\x4d\x18\x00\x00\x00\x00"), "a skippable frame")
	unreadable(t, c, []byte("z"))
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	c := newCodec(t, compress.Dictionary(9, trained(t)))
	kept := c.Encode(record, newOrders(5).outcome(4096))
	for n := 1; n < len(kept); n++ {
		unreadable(t, c, kept[:n], "%d bytes", n)
	}
}

// Some bits of a frame mean nothing. A change of any other is noticed.
func TestNoFlippedBitChangesTheOutcome(t *testing.T) {
	for name, opts := range map[string][]compress.Option{
		"without dictionary": {compress.Threshold(1)},
		"with dictionaries":  {compress.Dictionary(9, trained(t)), compress.Dictionary(8, newOrders(1).raw())},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCodec(t, opts...)
			outcome := newOrders(5).outcome(512)
			kept := c.Encode(record, outcome)
			unnoticed := 0
			for i := 8; i < 8*len(kept); i++ { // the mark itself says whose it is
				damaged := bytes.Clone(kept)
				damaged[i/8] ^= 1 << (i % 8)
				got, err := c.Decode(record, damaged)
				if err == nil {
					unnoticed++
					assert.Equal(t, outcome, got, "bit %d of byte %d", i%8, i/8)
					continue
				}
				assert.ErrorIs(t, err, driver.ErrUnreadable)
			}
			assert.LessOrEqual(t, unnoticed, 8)
		})
	}
}

// Stores hold such bytes for as long as the retention. The frame was made by the reference implementation.
func TestFormIsStable(t *testing.T) {
	const reference = "7a28b52ffd2446950000606f6e6520616e737765722c200100ff5992fd211d96"
	kept, err := hex.DecodeString(reference)
	require.NoError(t, err)
	assert.Equal(t, "one answer"+strings.Repeat(", one answer", 5), string(decode(t, newCodec(t), kept)))
	assert.Equal(t, "z and more", string(decode(t, newCodec(t), []byte("z\x00z and more"))))
}

func TestZstdRefusesWhatCannotWork(t *testing.T) {
	text := newOrders(1).raw()
	for name, test := range map[string]struct {
		opt  compress.Option
		want string
	}{
		"negative threshold":            {compress.Threshold(-1), "Threshold: -1"},
		"level 0":                       {compress.Level(0), "Level: 0"},
		"level 23":                      {compress.Level(23), "Level: 23"},
		"no length":                     {compress.MaxDecoded(0), "MaxDecoded: 0"},
		"any length":                    {compress.MaxDecoded(1<<29 + 1), "MaxDecoded: 536870913"},
		"dictionary 0":                  {compress.Dictionary(0, text), "Dictionary: id 0"},
		"dictionary is empty":           {compress.Dictionary(3, nil), "Dictionary: id 3: data has 0 bytes"},
		"dictionary is too short":       {compress.Dictionary(3, text[:7]), "Dictionary: id 3: data has 7 bytes"},
		"dictionary is too long":        {compress.Dictionary(3, make([]byte, 1<<20+1)), "Dictionary: id 3: data has 1048577 bytes"},
		"dictionary has another id":     {compress.Dictionary(3, trained(t)), "Dictionary: id 3: data says that its id is 9"},
		"trained dictionary is cut off": {compress.Dictionary(9, trained(t)[:20]), "Dictionary: "},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := compress.Zstd(test.opt)
			assert.ErrorContains(t, err, "idem: compress: "+test.want)
			assert.Nil(t, c)
		})
	}
	_, err := compress.Zstd(compress.Level(99), compress.Dictionary(7, text), compress.Dictionary(7, text))
	assert.ErrorContains(t, err, "Level: 99")
	assert.ErrorContains(t, err, "Dictionary: id 7 is given twice")
}

// FuzzDecode reads what the fuzzer made, as it is and behind a mark, and takes it as an outcome.
func FuzzDecode(f *testing.F) {
	c := newCodec(f, compress.Threshold(1), compress.MaxDecoded(1<<20),
		compress.Dictionary(9, trained(f)), compress.Dictionary(8, newOrders(1).raw()))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kept := range [][]byte{b, append([]byte("z"), b...)} {
			got, err := c.Decode(record, kept)
			if err != nil {
				assert.ErrorIs(t, err, driver.ErrUnreadable)
				assert.Nil(t, got)
			}
			assert.LessOrEqual(t, len(got), max(1<<20, len(kept)))
		}
		assert.True(t, bytes.Equal(b, decode(t, c, c.Encode(record, b))))
	})
}

// benchmark runs on answers as JSON, without a dictionary and with one of 4 KiB.
func benchmark(b *testing.B, run func(b *testing.B, c *compress.Codec, outcomes [][]byte)) {
	for _, bench := range []struct {
		dictionary string
		opts       []compress.Option
	}{
		{"none", nil},
		{"text", []compress.Option{compress.Dictionary(8, newOrders(1).raw())}},
		{"trained", []compress.Option{compress.Dictionary(9, trained(b))}},
	} {
		for _, size := range []int{512, 4 << 10, 64 << 10} {
			b.Run("dictionary="+bench.dictionary+"/bytes="+strconv.Itoa(size), func(b *testing.B) {
				var outcomes [][]byte
				for r := newOrders(77); len(outcomes) < 32; {
					outcomes = append(outcomes, r.outcome(size))
				}
				c := newCodec(b, append(bench.opts, compress.Threshold(1))...)
				c.Encode(record, outcomes[0])
				b.ReportAllocs()
				run(b, c, outcomes)
			})
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	benchmark(b, func(b *testing.B, c *compress.Codec, outcomes [][]byte) {
		var in, out int
		for i := 0; b.Loop(); i++ {
			outcome := outcomes[i%len(outcomes)]
			in += len(outcome)
			out += len(c.Encode(record, outcome))
		}
		b.ReportMetric(float64(in)/float64(out), "ratio")
	})
}

func BenchmarkDecode(b *testing.B) {
	benchmark(b, func(b *testing.B, c *compress.Codec, outcomes [][]byte) {
		for i, outcome := range outcomes {
			outcomes[i] = c.Encode(record, outcome)
		}
		for i := 0; b.Loop(); i++ {
			if _, err := c.Decode(record, outcomes[i%len(outcomes)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
