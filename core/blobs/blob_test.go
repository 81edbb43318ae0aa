package blobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Directories hold such files for as long as the retention, so a change of them needs a new format.
func TestFormatOneIsStable(t *testing.T) {
	const golden = "1" + "\x00\x00\x01\x9a\xa1\xb2\xc3\xd4" + "some data" + "\xa7\xcd\xda\x9e"
	expires := time.UnixMilli(0x19aa1b2c3d4)
	assert.Equal(t, golden, string(encode("id", []byte("some data"), expires)))
	data, got, err := decode("id", []byte(golden))
	require.NoError(t, err)
	assert.Equal(t, "some data", string(data))
	assert.True(t, expires.Equal(got))
}

func TestFormatFromTheFutureIsNotRead(t *testing.T) {
	b := encode("id", []byte("data"), time.Now())
	b[0]++
	binary.BigEndian.PutUint32(b[len(b)-checksumLength:], checksum("id", b[:len(b)-checksumLength]))
	_, _, err := decode("id", b)
	assert.ErrorIs(t, err, errDamaged)
}

// FuzzDecode reads what the fuzzer made, as it is and with a checksum that fits.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, id string, b []byte) {
		sealed := binary.BigEndian.AppendUint32(bytes.Clone(b), checksum(id, b))
		for _, content := range [][]byte{b, sealed} {
			data, expires, err := decode(id, content)
			if err != nil {
				assert.ErrorIs(t, err, errDamaged)
				assert.Nil(t, data)
				continue
			}
			assert.Equal(t, content, encode(id, data, expires))
		}
	})
}

// A lock that is not given back stands for a file system on which a file cannot be renamed.
func TestAPutEndsWithItsContext(t *testing.T) {
	store, err := Dir(t.TempDir())
	require.NoError(t, err)
	store.mu.Lock()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, store.Put(soon, "id", []byte("data"), time.Hour), context.DeadlineExceeded)
	store.mu.Unlock()
	assert.Eventually(t, func() bool {
		_, err := store.Get(t.Context(), "id")
		return err == nil
	}, 10*time.Second, time.Millisecond, "it goes on")
}
