package subject

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/compress"
)

func TestBodiesAreVariedJSONOfAnySize(t *testing.T) {
	r := NewBodies(7)
	zstd, err := compress.Zstd(compress.Threshold(1))
	require.NoError(t, err)
	for _, size := range []int{400, 512, 513, 1 << 10, 64 << 10} {
		body := r.Next(size)
		assert.Len(t, body, size)
		assert.True(t, json.Valid([]byte(body)), size)
		assert.False(t, body == r.Next(size), "another one")
	}
	assert.Equal(t, Body(512), Body(512), "the same seed")
	assert.Greater(t, len(zstd.Encode([32]byte{}, []byte(r.Next(512)))), 300, "no filler")
}

func TestEveryFormGivesBackWhatItKeeps(t *testing.T) {
	all, err := Forms()
	require.NoError(t, err)
	lengths := map[string]int{}
	for _, f := range all {
		outcome := Packed(NewBodies(9).Next(512))
		kept := f.Encode([32]byte{1}, outcome)
		lengths[f.Name] = len(kept)
		for _, c := range slices.Backward(f.Codecs) {
			kept, err = c.Decode([32]byte{1}, kept)
			require.NoError(t, err, f.Name)
		}
		assert.Equal(t, outcome, kept, f.Name)
	}
	assert.Equal(t, 573, lengths["plain"], "as long as idem plan takes it")
	assert.Less(t, lengths["zstd"], lengths["plain"])
	assert.Less(t, lengths["zstd with a dictionary"], lengths["zstd"])
	assert.Greater(t, lengths["sealed"], lengths["plain"])
	assert.Less(t, lengths["zstd with a dictionary, sealed"], lengths["zstd"])
}

func TestKeysAreDistinctAndAsLongAsAUUID(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"fresh-1", "fresh-11", "kept-1"} {
		k := NewKeys(name)
		for i := range int64(20) {
			key := string(k.At(i))
			assert.Len(t, key, 36)
			assert.False(t, seen[key], key)
			seen[key] = true
		}
		assert.True(t, seen[string(k.At(19))])
	}
}

func TestAHeldResponseIsUnpackedAsItWasPacked(t *testing.T) {
	h := &held{201, []string{"A", "1", "B", ""}, []byte("body")}
	assert.Equal(t, h, unpacked(h.packed()))
}
