package faults_test

import (
	"bytes"
	"encoding"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/lua"
)

// otherFormat turns what a client sends into what a version with another format of records would: the scripts, and the
// COMPLETED records that are made outside of them.
func otherFormat(tb testing.TB) redis.Hook {
	texts := map[string]string{}
	two := strings.NewReplacer("'1100000001'", "'3100000001'", "~= '11'", "~= '31'", "== '12'", "== '32'", "'^1[124]", "'^3[124]",
		"'1' .. STARTED", "'3' .. STARTED", "'1' .. FAILED", "'3' .. FAILED")
	for _, text := range []string{lua.Begin, lua.Extend, lua.Complete, lua.Fail, lua.Step, lua.Reopen} {
		texts[text] = two.Replace(text)
		require.NotEqual(tb, text, texts[text])
	}
	return redistest.OtherScripts(texts, redistest.Translation{Arguments: otherRecords, Reply: otherReply})
}

// completedReply is a COMPLETED record of either format, alone or behind what the script Begin says of it.
var completedReply = regexp.MustCompile(`^(?:completed -?[0-9]+ )?([13])2[01]0[0-9]{6}`)

// otherReply exchanges the formats of a record in a reply, because the Go code of both versions is that of this one.
func otherReply(text string) string {
	found := completedReply.FindStringSubmatchIndex(text)
	if found == nil {
		return text
	}
	at := found[2]
	return text[:at] + map[byte]string{'1': "3", '3': "1"}[text[at]] + text[at+1:]
}

func otherRecords(args []any) {
	for i := range args {
		argument, ok := args[i].(encoding.BinaryMarshaler)
		if !ok {
			continue
		}
		if record, _ := argument.MarshalBinary(); bytes.HasPrefix(record, []byte("12")) && len(record) >= 58 {
			args[i] = append([]byte("3"), record[1:]...)
		}
	}
}

// versions returns a store of this version and one of another, on one server.
func versions(t *testing.T) (one, two driver.Store, client *redis.Client) {
	server := redistest.Start(t)
	other := server.Client(t)
	other.AddHook(otherFormat(t))
	client = server.Client(t)
	return redisstore.New(client, redisstore.Scripts()), redisstore.New(other, redisstore.Scripts()), client
}

// Either version meets records of the other, in every state.
func TestTwoVersionsLeaveEachOthersRecordsAlone(t *testing.T) {
	t.Parallel()
	one, two, client := versions(t)
	for _, v := range []struct {
		format       string
		mine, theirs driver.Store
	}{{"1", one, two}, {"3", two, one}} {
		for state, c := range map[string]struct {
			leave func(driver.Claim) error
			next  driver.State // for the version whose record it is
		}{
			"STARTED":   {func(c driver.Claim) error { return v.mine.Extend(ctx, c) }, driver.InProgress},
			"COMPLETED": {func(c driver.Claim) error { return v.mine.Complete(ctx, c, []byte("kept")) }, driver.Completed},
			"FAILED":    {func(c driver.Claim) error { return v.mine.Fail(ctx, c, driver.Failure{}) }, driver.Claimed},
			"free":      {func(c driver.Claim) error { return v.mine.Fail(ctx, c, driver.Failure{NoEffects: true}) }, driver.Claimed},
		} {
			t.Run(state+" in format "+v.format, func(t *testing.T) {
				require.NoError(t, client.FlushAll(ctx).Err())
				claim := storetest.NewClaim(time.Minute, time.Hour)
				begin(t, v.mine, &claim)
				require.NoError(t, c.leave(claim))
				name := recordOf(t, client)
				require.Equal(t, v.format, client.GetRange(ctx, name, 0, 0).Val())
				before := client.Dump(ctx, name).Val()
				refusesAll(t, v.theirs, claim)
				assert.Equal(t, before, client.Dump(ctx, name).Val())
				entry, err := v.mine.Begin(ctx, rival(claim))
				require.NoError(t, err)
				assert.Equal(t, c.next, entry.State)
			})
		}
		t.Run("expired in format "+v.format, func(t *testing.T) {
			claim := storetest.NewClaim(50*time.Millisecond, 100*time.Millisecond)
			begin(t, v.mine, &claim)
			next := rival(claim)
			require.Eventually(t, func() bool {
				entry, err := v.theirs.Begin(ctx, next)
				next.Fence = entry.Fence
				return err == nil && entry.State == driver.Claimed
			}, 10*time.Second, 10*time.Millisecond)
			assert.Greater(t, next.Fence, claim.Fence)
		})
	}
}

func refusesAll(t *testing.T, store driver.Store, claim driver.Claim) {
	t.Helper()
	_, err := store.Begin(ctx, rival(claim))
	assert.ErrorIs(t, err, driver.ErrUnreadable)
	_, err = store.Begin(ctx, claim)
	assert.ErrorIs(t, err, driver.ErrUnreadable)
	assert.ErrorIs(t, store.Extend(ctx, claim), driver.ErrUnreadable)
	assert.ErrorIs(t, store.Complete(ctx, claim, []byte("kept")), driver.ErrUnreadable)
	assert.ErrorIs(t, store.Fail(ctx, claim, driver.Failure{}), driver.ErrUnreadable)
	assert.ErrorIs(t, store.(driver.Checkpointer).Checkpoint(ctx, claim, "step", nil), driver.ErrUnreadable)
}

// Services of both versions get the same keys at once: each runs in one of them, and the other refuses.
func TestTwoVersionsUnderLoadRunAKeyOnce(t *testing.T) {
	t.Parallel()
	one, two, _ := versions(t)
	a, b := newService(t, one), newService(t, two)
	b.ledger = a.ledger
	a.created(a.post("shared0"))
	b.created(b.post("shared1"))
	const keys = 60
	var clients sync.WaitGroup
	for _, s := range []*service{a, b} {
		for client := range 4 {
			clients.Go(func() {
				for i := range keys {
					s.post(fmt.Sprint("shared", (i+client)%keys))
				}
			})
		}
	}
	clients.Wait()
	ranIn := map[*service]int{}
	for i := range keys {
		key := fmt.Sprint("shared", i)
		owner, other := a, b
		if a.post(key).code == "record-unreadable" {
			owner, other = b, a
		}
		owner.replays(key)
		assert.Equal(t, "record-unreadable", other.post(key).code)
		ranIn[owner]++
		a.ran(key, 1)
	}
	assert.NotZero(t, ranIn[a])
	assert.NotZero(t, ranIn[b])
	t.Logf("of format 1: %d, of format 3: %d", ranIn[a], ranIn[b])
	a.promises(false)
	b.promises(false)
}
