package core

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/wire"
)

// goldenOutcome and goldenOmitted are what format '1' is made of. Stores hold such bytes for as long as the retention, so
// a change of them needs a new format.
const (
	goldenOutcome = "1\x00" + "\xc9\x01" + "\x01" + "\x00\x06X-Gone" + "\x03" + "\x1b\x09/orders/7" + "\x21" + "\x00\x06X-Made\x01y" + "made" + "\x0a\x18\xe1\xd2"
	goldenOmitted = "1\x01" + "\xc8\x01" + "\x00" + "\x00" + "\x6f\xf0\x39\xcc"
)

func goldenResponse() *Response {
	return &Response{
		Status:  201,
		Header:  []Field{{"Location", "/orders/7"}, {"Vary", "Accept"}, {"X-Made", "y"}},
		Removed: []string{"X-Gone"},
		Body:    []byte("made"),
	}
}

func TestFormatOneIsStable(t *testing.T) {
	r := goldenResponse()
	assert.Equal(t, goldenOutcome, string(encodeOutcome(r, "")))
	decoded, _, err := decodeOutcome([]byte(goldenOutcome))
	require.NoError(t, err)
	assert.Equal(t, r, decoded)

	omitted := &Response{Status: 200, Omitted: true, Body: []byte{}}
	assert.Equal(t, goldenOmitted, string(encodeOutcome(omitted, "")))
	decoded, _, err = decodeOutcome([]byte(goldenOmitted))
	require.NoError(t, err)
	assert.Equal(t, omitted, decoded)
}

func TestOutcomeComesBackAsItWas(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for name, r := range map[string]*Response{
		"status alone":        {Status: 204},
		"lowest status":       {Status: 100},
		"highest status":      {Status: 999},
		"body":                {Status: 200, Body: []byte("\x00\r\n\xff")},
		"long body":           {Status: 200, Body: []byte(long)},
		"repeated names":      {Status: 200, Header: []Field{{"Link", "a"}, {"Vary", "b"}, {"Link", "c"}}},
		"empty value":         {Status: 200, Header: []Field{{"X-Empty", ""}}},
		"value beyond ASCII":  {Status: 200, Header: []Field{{"X-Name", "M\xfcller \u00fc\t"}}},
		"long value":          {Status: 200, Header: []Field{{"X-Long", long}}},
		"names in their case": {Status: 200, Header: []Field{{"x-lower", "a"}, {"X-UPPER", "b"}, {"ETag", "c"}, {"Etag", "d"}, {"etag", "e"}}},
		"common lines":        {Status: 200, Header: []Field{{"Vary", "Accept"}, {"Vary", "accept"}, {"vary", "Accept"}, {"Vary", ""}}},
		"every common line":   {Status: 200, Header: everyCommonLine()},
		"removed names":       {Status: 200, Removed: []string{"Server", "X-Powered-By", "X-Own", "X-Frame-Options"}},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, _, err := decodeOutcome(encodeOutcome(r, ""))
			require.NoError(t, err)
			if r.Body == nil {
				r.Body = []byte{}
			}
			assert.Equal(t, r, decoded)
		})
	}
}

func everyCommonLine() (lines []Field) {
	for _, f := range wire.HeaderDict {
		lines = append(lines, Field(f))
	}
	return lines
}

// RPL-27: the part of a body that was captured is not kept.
func TestOmittedBodyIsLeftOut(t *testing.T) {
	decoded, _, err := decodeOutcome(encodeOutcome(&Response{Status: 200, Body: []byte("the first half"), Omitted: true}, ""))
	require.NoError(t, err)
	assert.True(t, decoded.Omitted)
	assert.Empty(t, decoded.Body)
}

func TestABodyInABlobIsNamed(t *testing.T) {
	packed := encodeOutcome(&Response{Status: 200, Header: []Field{{"Vary", "Accept"}}, Body: []byte("elsewhere")}, "blob-7")
	assert.NotContains(t, string(packed), "elsewhere")
	decoded, blob, err := decodeOutcome(packed)
	require.NoError(t, err)
	assert.Equal(t, "blob-7", blob)
	assert.Equal(t, &Response{Status: 200, Header: []Field{{"Vary", "Accept"}}}, decoded)
}

func TestWhatBelongsToOneExchangeIsLeftOut(t *testing.T) {
	r := &Response{Status: 200, Body: []byte("b"), Trailer: []Field{{"X-Sum", "1"}}, Sent: true, Hijacked: true}
	decoded, _, err := decodeOutcome(encodeOutcome(r, ""))
	require.NoError(t, err)
	assert.Equal(t, &Response{Status: 200, Body: []byte("b")}, decoded)
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	for i := range goldenOutcome {
		for bit := range 8 {
			damaged := []byte(goldenOutcome)
			damaged[i] ^= 1 << bit
			r, _, err := decodeOutcome(damaged)
			assert.ErrorIs(t, err, driver.ErrUnreadable, "bit %d of byte %d", bit, i)
			assert.Nil(t, r)
		}
	}
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	for _, golden := range []string{goldenOutcome, goldenOmitted} {
		for n := range golden {
			_, _, err := decodeOutcome([]byte(golden[:n]))
			assert.ErrorIs(t, err, driver.ErrUnreadable, "%d bytes", n)
		}
	}
}

// seal gives a record of any kind the checksum that fits.
func seal(parts ...string) []byte {
	b := []byte(strings.Join(parts, ""))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func TestRecordThatFitsItsChecksumIsStillChecked(t *testing.T) {
	_, _, err := decodeOutcome(seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x01v", "body"))
	require.NoError(t, err, "the records below are this one with one thing changed")

	const huge = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	for name, record := range map[string][]byte{
		"format before":              seal("0\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x01v", "body"),
		"format from the future":     seal("2\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x01v", "body"),
		"flag from the future":       seal("1\x03", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x01v", "body"),
		"blob without a name":        seal("1\x02", "\xc8\x01", "\x00", "\x00"),
		"omitted body is there":      seal("1\x01", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x01v", "body"),
		"origin of nothing":          seal("1\x04", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x01v", "\x00", "body"),
		"nothing":                    nil,
		"checksum alone":             seal(),
		"format alone":               seal("1\x00"),
		"status 0":                   seal("1\x00", "\x00", "\x00", "\x00"),
		"status 99":                  seal("1\x00", "\x63", "\x00", "\x00"),
		"status 1000":                seal("1\x00", "\xe8\x07", "\x00", "\x00"),
		"status beyond int":          seal("1\x00", huge, "\x00", "\x00"),
		"status without an end":      seal("1\x00", "\xff"),
		"number beyond 64 bits":      seal("1\x00", strings.Repeat("\xff", 11)+"\x01", "\x00", "\x00"),
		"list without an end":        seal("1\x00", "\xc8\x01", "\x00", "\x02", "\x00\x01A", "\x01v"),
		"endless list":               seal("1\x00", "\xc8\x01", "\x00", huge),
		"endless removed list":       seal("1\x00", "\xc8\x01", huge),
		"endless name":               seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00"+huge, "\x01v"),
		"endless value":              seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", huge),
		"CR in a value":              seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x02v\r", "body"),
		"LF in a value":              seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x02\nv", "body"),
		"NUL in a value":             seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01A", "\x02v\x00", "body"),
		"CR in a name":               seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x02A\r", "\x01v", "body"),
		"colon in a name":            seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x02A:", "\x01v", "body"),
		"space in a name":            seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x02 A", "\x01v", "body"),
		"byte beyond ASCII":          seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x01\xfc", "\x01v", "body"),
		"empty name":                 seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x00\x00", "\x01v", "body"),
		"place beyond the last":      seal("1\x00", "\xc8\x01", "\x00", "\x01", string(rune(len(wire.HeaderDict)+1)), "\x01v", "body"),
		"place over a byte":          seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x80\x01", "\x01v", "body"),
		"place beyond 64 bits":       seal("1\x00", "\xc8\x01", "\x00", "\x01", huge, "\x01v", "body"),
		"place written too long":     seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x81\x00", "\x01v", "body"),
		"CR in a common line":        seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x01", "\x02v\r", "body"),
		"common line without an end": seal("1\x00", "\xc8\x01", "\x00", "\x01", "\x01"),
		"whole line removed":         seal("1\x00", "\xc8\x01", "\x01", "\x02", "\x00", "body"),
		"removed beyond the last":    seal("1\x00", "\xc8\x01", "\x01", string(rune(len(wire.HeaderDict)+1)), "\x00", "body"),
		"status written too long":    seal("1\x00", "\xc8\x81\x00", "\x00", "\x00", "body"),
		"second name is bad":         seal("1\x00", "\xc8\x01", "\x00", "\x02", "\x00\x01A", "\x01v", "\x00\x01:", "\x01v", "body"),
	} {
		t.Run(name, func(t *testing.T) {
			r, blob, err := decodeOutcome(record)
			assert.ErrorIs(t, err, driver.ErrUnreadable)
			assert.Nil(t, r)
			assert.Empty(t, blob)
		})
	}
}

func TestCommonLinesTakeNoMemoryOfTheirOwn(t *testing.T) {
	common := encodeOutcome(&Response{Status: 200, Header: []Field{{"Content-Type", "application/json"}, {"Vary", "Accept"}}}, "")
	bare := encodeOutcome(&Response{Status: 200, Header: []Field{{"Content-Type", "application/json"}, {"X-Own", "v"}}}, "")
	allocations := func(record []byte) float64 {
		return testing.AllocsPerRun(100, func() { _, _, _ = decodeOutcome(record) })
	}
	assert.EqualValues(t, 2, allocations(common), "the response and its list of lines")
	assert.EqualValues(t, 3, allocations(bare), "and what all other texts share")
}

// A record can lie about lengths. What it costs to find out is bounded by its own length.
func TestMemoryForARecordIsBoundedByItsLength(t *testing.T) {
	const length = 1 << 18
	count := string(binary.AppendUvarint(nil, length))
	for name, record := range map[string][]byte{
		"lines that are not there":  seal("1\x00", "\xc8\x01", "\x00", count, strings.Repeat("\xff", length)),
		"lines of nothing":          seal("1\x00", "\xc8\x01", "\x00", count, strings.Repeat("\x00", length)),
		"common lines":              seal("1\x00", "\xc8\x01", "\x00", count, strings.Repeat("\x02", length)),
		"removed common names":      seal("1\x00", "\xc8\x01", count, strings.Repeat("\x01", length)),
		"removed names of nothing":  seal("1\x00", "\xc8\x01", count, strings.Repeat("\x00", length)),
		"a name as long as it gets": seal("1\x00", "\xc8\x01", "\x00", "\x01", count, strings.Repeat("\x00", length)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, _ = decodeOutcome(record)
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes for %d", after.TotalAlloc-before.TotalAlloc, len(record))
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256*len(record)))
		})
	}
}

// FuzzDecodeOutcome reads what the fuzzer made, as it is and with a checksum that fits.
func FuzzDecodeOutcome(f *testing.F) {
	for _, golden := range []string{goldenOutcome, goldenOmitted} {
		f.Add([]byte(golden))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, record := range [][]byte{b, seal(string(b))} {
			r, blob, err := decodeOutcome(record)
			if err != nil {
				assert.ErrorIs(t, err, driver.ErrUnreadable)
				assert.Nil(t, r)
				assert.Empty(t, blob)
				continue
			}
			packed := encodeOutcome(r, blob)
			assert.LessOrEqual(t, len(packed), len(record), "it could be shorter than the engine packs it")
			again, blobAgain, err := decodeOutcome(packed)
			require.NoError(t, err)
			assert.Equal(t, r, again)
			assert.Equal(t, blob, blobAgain)
		}
	})
}
