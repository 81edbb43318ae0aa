package digest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Digests name stored records, so they must never change.
func TestSumIsWhatItWas(t *testing.T) {
	input := "\x00\x00\x00\x00\x00\x00\x00\x01a" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x04body"
	assert.Equal(t, sha256.Sum256([]byte(input)), New(nil).Sum([]byte("body"), "a", ""))

	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(input))
	sum := New([]byte("secret")).Sum([]byte("body"), "a", "")
	assert.Equal(t, hex.EncodeToString(mac.Sum(nil)), hex.EncodeToString(sum[:]))
}

func TestListsThatDifferHaveDigestsThatDiffer(t *testing.T) {
	h := New(nil)
	seen := map[[32]byte]string{}
	for name, sum := range map[string][32]byte{
		"nothing":                 h.Sum(nil),
		"an empty part":           h.Sum(nil, ""),
		"two empty parts":         h.Sum(nil, "", ""),
		"one part":                h.Sum(nil, "ab"),
		"two parts":               h.Sum(nil, "a", "b"),
		"another split":           h.Sum(nil, "", "ab"),
		"a part and a body":       h.Sum([]byte("b"), "a"),
		"a body":                  h.Sum([]byte("ab")),
		"a part with a separator": h.Sum(nil, "a\x00b"),
		"a secret":                New([]byte("secret")).Sum(nil, "ab"),
		"another secret":          New([]byte("other")).Sum(nil, "ab"),
	} {
		assert.Empty(t, seen[sum], name)
		seen[sum] = name
	}
	assert.Equal(t, h.Sum(nil), h.Sum([]byte{}), "an empty body is none")
	assert.Equal(t, h.Sum(nil, "ab"), New([]byte{}).Sum(nil, "ab"), "an empty secret is none")
}

func TestAHasherIsSafeForConcurrentUse(t *testing.T) {
	h := New([]byte("secret"))
	want := map[string][32]byte{"a": h.Sum(nil, "a"), "bb": h.Sum(nil, "bb"), "ccc": h.Sum(nil, "ccc")}
	var all sync.WaitGroup
	for part, sum := range want {
		all.Go(func() {
			for range 1000 {
				assert.Equal(t, sum, h.Sum(nil, part))
			}
		})
	}
	all.Wait()
}
