package seal_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/seal"
)

var _ driver.Codec = (*seal.Codec)(nil)

var record, other = [32]byte{1}, [32]byte{2}

// secret returns 32 bytes that are told from those of other names.
func secret(name string) []byte { return []byte(fmt.Sprintf("%-32s", "secret "+name)) }

func key(name string) seal.Key { return seal.Key{ID: name, Secret: secret(name)} }

func newCodec(tb testing.TB, keys []seal.Key, opts ...seal.Option) *seal.Codec {
	tb.Helper()
	c, err := seal.New(keys, opts...)
	require.NoError(tb, err)
	return c
}

func decode(tb testing.TB, c *seal.Codec, kept []byte) string {
	tb.Helper()
	outcome, err := c.Decode(record, kept)
	require.NoError(tb, err)
	return string(outcome)
}

func unreadable(tb testing.TB, c *seal.Codec, record [32]byte, kept []byte, msg ...any) {
	tb.Helper()
	outcome, err := c.Decode(record, kept)
	assert.ErrorIs(tb, err, driver.ErrUnreadable, msg...)
	assert.True(tb, outcome == nil, msg...)
	assert.NotContains(tb, fmt.Sprint(err), "secret may", msg...)
}

func TestOutcomeComesBackAsItWas(t *testing.T) {
	for name, c := range map[string]*seal.Codec{
		"one key":           newCodec(t, []seal.Key{key("may")}),
		"shortest id":       newCodec(t, []seal.Key{key("k")}),
		"longest id":        newCodec(t, []seal.Key{{ID: strings.Repeat("long.", 51), Secret: secret("long")}}),
		"id of any bytes":   newCodec(t, []seal.Key{{ID: "\x00\xff/ü", Secret: secret("odd")}}),
		"during a roll-out": newCodec(t, []seal.Key{key("may")}, seal.AcceptPlain()),
	} {
		t.Run(name, func(t *testing.T) {
			for _, outcome := range []string{"", "1", "s", "1\x00\xc9\x01 made", "z\x28\xb5", strings.Repeat("long ", 100_000), string(c.Encode(record, []byte("sealed")))} {
				input := []byte(outcome)
				kept := c.Encode(record, input)
				assert.Equal(t, byte('s'), kept[0])
				assert.Equal(t, outcome, decode(t, c, kept))
				assert.Equal(t, outcome, string(input), "Encode changed its input")
				assert.Equal(t, outcome, decode(t, c, kept), "Decode changed its input")
			}
		})
	}
}

func TestSealedOutcomeOpensForItsRecordAlone(t *testing.T) {
	c := newCodec(t, []seal.Key{key("may")})
	first, second := c.Encode(record, []byte("1 of the first")), c.Encode(other, []byte("1 of the second"))
	unreadable(t, c, other, first)
	unreadable(t, c, record, second)
	assert.Equal(t, "1 of the first", decode(t, c, first))
}

func TestKeysRotate(t *testing.T) {
	before := newCodec(t, []seal.Key{key("may")})
	during := newCodec(t, []seal.Key{key("may"), key("june")})
	after := newCodec(t, []seal.Key{key("june"), key("may")})
	at := newCodec(t, []seal.Key{key("june")})

	older, newer := during.Encode(record, []byte("1 older")), after.Encode(record, []byte("1 newer"))
	for _, c := range []*seal.Codec{before, during, after} {
		assert.Equal(t, "1 older", decode(t, c, older))
	}
	for _, c := range []*seal.Codec{during, after, at} {
		assert.Equal(t, "1 newer", decode(t, c, newer))
	}
	unreadable(t, before, record, newer)
	unreadable(t, at, record, older)
}

func TestKeyThatIsNotTheOneIsRefused(t *testing.T) {
	kept := newCodec(t, []seal.Key{key("may")}).Encode(record, []byte("1 outcome"))
	unreadable(t, newCodec(t, []seal.Key{{ID: "may", Secret: secret("june")}}), record, kept, "another secret under the same id")
	renamed := bytes.Replace(kept, []byte("may"), []byte("jun"), 1)
	unreadable(t, newCodec(t, []seal.Key{{ID: "jun", Secret: secret("may")}}), record, renamed, "the same secret under another id")
	_, err := newCodec(t, []seal.Key{key("june")}).Decode(record, kept)
	assert.ErrorContains(t, err, `"may"`, "an operator must learn which key is missing")
}

func TestOutcomeThatIsNotSealed(t *testing.T) {
	strict, rollOut := newCodec(t, []seal.Key{key("may")}), newCodec(t, []seal.Key{key("may")}, seal.AcceptPlain())
	for _, kept := range []string{"", "1\x00\xc9\x01 made", "z\x28\xb5", "S\x03may"} {
		unreadable(t, strict, record, []byte(kept), "%q", kept)
		assert.Equal(t, kept, decode(t, rollOut, []byte(kept)))
	}
	sealed := strict.Encode(record, []byte("1 outcome"))
	assert.Equal(t, "1 outcome", decode(t, rollOut, sealed))
	sealed[len(sealed)-1]++
	unreadable(t, rollOut, record, sealed, "what is sealed must open")
}

func TestOpenOnlySealsNothing(t *testing.T) {
	sealing, opening := newCodec(t, []seal.Key{key("may")}), newCodec(t, []seal.Key{key("may")}, seal.OpenOnly())
	assert.Equal(t, "1 outcome", decode(t, opening, sealing.Encode(record, []byte("1 outcome"))))
	for _, outcome := range []string{"", "1 outcome", "z\x28\xb5"} {
		assert.Equal(t, outcome, string(opening.Encode(record, []byte(outcome))))
		assert.Equal(t, outcome, decode(t, opening, []byte(outcome)))
	}
	assert.Equal(t, "s looks sealed", decode(t, opening, opening.Encode(record, []byte("s looks sealed"))))
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	c := newCodec(t, []seal.Key{key("may"), key("mai"), key("m")})
	kept := c.Encode(record, []byte("1 outcome"))
	for i := range 8 * len(kept) {
		damaged := bytes.Clone(kept)
		damaged[i/8] ^= 1 << (i % 8)
		unreadable(t, c, record, damaged, "bit %d of byte %d", i%8, i/8)
	}
	for i := range 8 * len(record) {
		neighbour := record
		neighbour[i/8] ^= 1 << (i % 8)
		unreadable(t, c, neighbour, kept, "bit %d of byte %d of the record", i%8, i/8)
	}
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	for _, id := range []string{"may", strings.Repeat("i", 255)} {
		c := newCodec(t, []seal.Key{{ID: id, Secret: secret("may")}})
		for _, outcome := range []string{"", "1 outcome"} {
			kept := c.Encode(record, []byte(outcome))
			for n := range kept {
				unreadable(t, c, record, kept[:n], "%d bytes", n)
				unreadable(t, c, record, kept[:n:n], "%d bytes", n)
			}
			unreadable(t, c, record, append(kept, 0), "one byte more")
		}
	}
}

// The bytes that are stored have nothing in them of what was sealed, nor of what sealed it.
func TestSealedBytesShowNothing(t *testing.T) {
	const piece = 8
	zstd, err := compress.Zstd(compress.Threshold(1))
	require.NoError(t, err)
	c := newCodec(t, []seal.Key{key("may")})
	outcome := []byte("1\x00\xc9\x01\x00\x01\x1b\x09/orders/7" + `{"iban":"DE02120300000000202051","name":"Canary Bird"}`)
	for name, plain := range map[string][]byte{"as it is": outcome, "compressed": zstd.Encode(record, bytes.Repeat(outcome, 10))} {
		kept := c.Encode(record, plain)
		body := string(kept[2+len("may"):])
		for _, hidden := range []string{string(outcome), string(plain), string(secret("may"))} {
			for i := range len(hidden) - piece + 1 {
				assert.NotContains(t, body, hidden[i:i+piece], name)
			}
		}
	}
}

func TestEqualOutcomesLookDifferent(t *testing.T) {
	c := newCodec(t, []seal.Key{key("may")})
	seen := map[string]bool{}
	for range 1000 {
		kept := c.Encode(record, []byte("1 outcome"))
		nonce := string(kept[2+len("may"):][:12])
		assert.False(t, seen[nonce])
		seen[nonce] = true
	}
	assert.NotContains(t, c.Encode(record, make([]byte, 1000)), make([]byte, 100))
}

// Stores hold such bytes for as long as the retention. This one was sealed with the key "may" for the record 1, 0, 0...
func TestFormIsStable(t *testing.T) {
	const golden = "73036d6179e507c8a71448a828d4625fee644d33effdf31757a5c80ffd9736eebd8367031ea9b82a46f7"
	kept, err := hex.DecodeString(golden)
	require.NoError(t, err)
	c := newCodec(t, []seal.Key{key("june"), key("may")})
	assert.Equal(t, "1 outcome", decode(t, c, kept))
	assert.Len(t, c.Encode(record, []byte("1 outcome")), len(kept)+len("june")-len("may"))
}

func TestCodecServesManyAtOnce(t *testing.T) {
	c := newCodec(t, []seal.Key{key("may")})
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 100 {
				own, outcome := [32]byte{byte(i), byte(j)}, fmt.Sprint("1 outcome ", i, j)
				got, err := c.Decode(own, c.Encode(own, []byte(outcome)))
				assert.NoError(t, err)
				assert.Equal(t, outcome, string(got))
			}
		})
	}
	group.Wait()
}

func TestSecretIsNotPrinted(t *testing.T) {
	k := key("may")
	c := newCodec(t, []seal.Key{k})
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("started", "key", k, "codec", c)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&log, verb+"\n", k)
		fmt.Fprintf(&log, verb+"\n", []seal.Key{k})
		fmt.Fprintf(&log, verb+"\n", c)
	}
	printed := log.String()
	assert.Contains(t, printed, "may")
	for _, hidden := range []string{string(k.Secret), hex.EncodeToString(k.Secret), fmt.Sprint(k.Secret)[1:40]} {
		assert.NotContains(t, printed, hidden)
	}
}

func TestSecretIsCopied(t *testing.T) {
	k := key("may")
	c := newCodec(t, []seal.Key{k})
	kept := c.Encode(record, []byte("1 outcome"))
	clear(k.Secret)
	assert.Equal(t, "1 outcome", decode(t, c, kept))
	assert.Equal(t, "1 outcome", decode(t, newCodec(t, []seal.Key{key("may")}), c.Encode(record, []byte("1 outcome"))))
}

func TestNewRefusesWhatCannotSeal(t *testing.T) {
	for name, test := range map[string]struct {
		keys []seal.Key
		want string
	}{
		"no key":           {nil, "keys: none"},
		"no id":            {[]seal.Key{{Secret: secret("a")}}, "keys[0].ID: has 0 bytes"},
		"id is too long":   {[]seal.Key{{ID: strings.Repeat("i", 256), Secret: secret("a")}}, "keys[0].ID: has 256 bytes"},
		"same id twice":    {[]seal.Key{key("a"), key("b"), key("a")}, `keys[2].ID: "a" is given twice`},
		"no secret":        {[]seal.Key{key("a"), {ID: "b"}}, "keys[1].Secret: has 0 bytes"},
		"short secret":     {[]seal.Key{{ID: "b", Secret: secret("b")[:31]}}, "keys[0].Secret: has 31 bytes"},
		"long secret":      {[]seal.Key{{ID: "b", Secret: append(secret("b"), 0)}}, "keys[0].Secret: has 33 bytes"},
		"secret of zeros":  {[]seal.Key{{ID: "b", Secret: make([]byte, 32)}}, "keys[0].Secret: is all zero"},
		"all of it at one": {[]seal.Key{{ID: "b"}, {Secret: secret("b")}}, "keys[1].ID: has 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := seal.New(test.keys)
			assert.ErrorContains(t, err, "idem: seal: "+test.want)
			assert.NotContains(t, err.Error(), "secret b")
			assert.Nil(t, c)
		})
	}
	_, err := seal.New([]seal.Key{{ID: "a"}, {Secret: secret("b")}})
	assert.ErrorContains(t, err, "keys[0].Secret: has 0 bytes")
	assert.ErrorContains(t, err, "keys[1].ID: has 0 bytes")
}

// FuzzDecode reads what the fuzzer made: as it is, and behind the header of a key that is there. Nothing of it opens. It
// seals it, too.
func FuzzDecode(f *testing.F) {
	c := newCodec(f, []seal.Key{key("may")})
	rollOut := newCodec(f, []seal.Key{key("june"), key("may")}, seal.AcceptPlain())
	f.Fuzz(func(t *testing.T, b []byte) {
		unreadable(t, c, record, b)
		unreadable(t, c, record, append([]byte("s\x03may"), b...))
		if got, err := rollOut.Decode(record, b); err == nil {
			assert.Equal(t, b, got)
			assert.False(t, bytes.HasPrefix(b, []byte("s")))
		}
		assert.Equal(t, string(b), decode(t, c, c.Encode(record, b)))
	})
}

func BenchmarkSeal(b *testing.B) {
	c := newCodec(b, []seal.Key{key("may")})
	for _, size := range []int{512, 4 << 10, 64 << 10} {
		outcome := bytes.Repeat([]byte("1"), size)
		kept := c.Encode(record, outcome)
		b.Run(fmt.Sprintf("encode/bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(kept)-size), "more-B")
			for b.Loop() {
				c.Encode(record, outcome)
			}
		})
		b.Run(fmt.Sprintf("decode/bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Decode(record, kept); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
