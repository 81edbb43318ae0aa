package redisstore_test

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// What a record of format 1 begins with, and what the fence and the end of the lease of a claim look like.
var (
	beginning = regexp.MustCompile(`^1[124][012][012][0-9]{6}`)
	number    = regexp.MustCompile(`^[0-9]{16}`)
)

// isRecord tells whether the scripts can read b.
func isRecord(b []byte) bool {
	return len(b) >= 58 && beginning.Match(b) && (b[1] == '2' || len(b) >= 90 && number.Match(b[10:]) && number.Match(b[58:]))
}

// FuzzRecord puts what the fuzzer made, and the same for the claim's own request, where a record should be: the scripts
// of a real server leave what is no record alone, and never run what is over.
func FuzzRecord(f *testing.F) {
	client := redistest.Shared(f).Client(f)
	store, prefix := prefixed(f, client)
	c := storetest.NewClaim(time.Minute, time.Minute)
	_, err := store.Begin(ctx, c)
	require.NoError(f, err)
	key := onlyKey(f, client, prefix)
	f.Fuzz(func(t *testing.T, b []byte) {
		own := bytes.Clone(b)
		if len(own) >= 58 {
			copy(own[26:], c.Fingerprint[:])
		}
		for _, record := range [][]byte{b, own} {
			require.NoError(t, client.Set(ctx, key, record, time.Minute).Err())
			entry, err := store.Begin(ctx, c)
			switch {
			case len(record) == 0:
				assert.Equal(t, core.Claimed, entry.State)
				continue
			case entry.State == core.Completed:
				assert.Equal(t, record[58:], entry.Outcome)
				assert.Equal(t, c.Fingerprint[:], record[26:58], "the outcome of another request")
			case !isRecord(record):
				assert.ErrorIs(t, err, core.ErrUnreadable)
				untouched(t, store, c)
			default:
				assert.NoError(t, err)
				assert.False(t, record[1] == '2' && entry.State == core.Claimed, "runs again")
				continue
			}
			assert.Equal(t, record, []byte(client.Get(ctx, key).Val()), "it was changed")
		}
	})
}

// untouched sends the other verbs to what is no record.
func untouched(t *testing.T, store *redisstore.Store, c core.Claim) {
	t.Helper()
	c.Fence = 1
	assert.ErrorIs(t, store.Extend(ctx, c), core.ErrUnreadable)
	assert.ErrorIs(t, store.Complete(ctx, c, []byte("kept")), core.ErrUnreadable)
	assert.ErrorIs(t, store.Fail(ctx, c, core.Failure{}), core.ErrUnreadable)
}
