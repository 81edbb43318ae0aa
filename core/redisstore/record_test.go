package redisstore_test

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// What the records of format 1 look like, each state's by itself. FAILED ones of an earlier version have a 0 in front of the
// attempt; a COMPLETED one may have any fence.
var (
	beginning = regexp.MustCompile(`^1[124][012][012][0-9]{6}`)
	shapes    = map[byte]*regexp.Regexp{
		'1': regexp.MustCompile(`(?s)^(....000001[0-9]{16}.{32}[0-9]{16}.{16}|.{10}[0-9]{16}.{32}[0-9]{16}.{16}[0-9]{16}(.{16}){0,16})$`),
		'2': regexp.MustCompile(`(?s)^.{58}`),
		'4': regexp.MustCompile(`(?s)^(...0000001[0-9]{16}.{32}[0-9]{16}.{16}|...0.{6}[0-9]{16}.{32}[0-9]{16}.{16}[0-9]{16}|...[12].{6}[0-9]{16}.{32}[0-9]{16}.{16}[0-9]{16}([0-9]{2}))`),
	}
)

// isRecord tells whether the scripts can read b.
func isRecord(b []byte) bool {
	if !beginning.Match(b) {
		return false
	}
	latin := make([]rune, len(b)) // a byte is a character
	for i := range b {
		latin[i] = rune(b[i])
	}
	match := shapes[b[1]].FindStringSubmatch(string(latin))
	if match == nil || b[1] != '4' || b[3] == '0' {
		return match != nil
	}
	noted, err := strconv.Atoi(match[2])
	return err == nil && noted <= 16 && len(b) >= 108+16*noted
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
			case entry.State == driver.Completed:
				assert.Equal(t, record[58:], entry.Outcome)
				assert.Equal(t, c.Fingerprint[:], record[26:58], "the outcome of another request")
			case !isRecord(record):
				assert.ErrorIs(t, err, driver.ErrUnreadable)
				untouched(t, store, c)
			default:
				assert.NoError(t, err)
				assert.False(t, record[1] == '2' && entry.State == driver.Claimed, "runs again")
				continue
			}
			assert.Equal(t, record, []byte(client.Get(ctx, key).Val()), "it was changed")
		}
	})
}

// untouched sends the other calls to what is no record.
func untouched(t *testing.T, store *redisstore.Store, c driver.Claim) {
	t.Helper()
	c.Fence = 1
	assert.ErrorIs(t, store.Extend(ctx, c), driver.ErrUnreadable)
	assert.ErrorIs(t, store.Complete(ctx, c, []byte("kept")), driver.ErrUnreadable)
	assert.ErrorIs(t, store.Reopen(ctx, c, []byte("dead")), driver.ErrUnreadable)
	assert.ErrorIs(t, store.Checkpoint(ctx, c, "step", nil), driver.ErrUnreadable)
	assert.ErrorIs(t, store.Fail(ctx, c, driver.Failure{}), driver.ErrUnreadable)
	c.Fence = 0 // only Fail accepts it, and only Fail asks the server
	assert.ErrorIs(t, store.Extend(ctx, c), driver.ErrLost)
	assert.ErrorIs(t, store.Complete(ctx, c, []byte("kept")), driver.ErrLost)
	assert.ErrorIs(t, store.Checkpoint(ctx, c, "step", nil), driver.ErrLost)
	_, err := store.Checkpoints(ctx, c)
	assert.ErrorIs(t, err, driver.ErrLost)
	assert.ErrorIs(t, store.Fail(ctx, c, driver.Failure{}), driver.ErrUnreadable)
}
