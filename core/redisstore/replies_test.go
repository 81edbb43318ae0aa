package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// refusal is an error that a server, or a proxy before it, replies with.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// refuse has commands with these names refused, and returns the count of the client's round trips.
func refuse(client *redis.Client, replies map[string]refusal) *roundTrips {
	trips := &roundTrips{}
	client.AddHook(trips)
	client.AddHook(givenReplies(func(cmd redis.Cmder) any {
		if reply, isRefused := replies[cmd.Name()]; isRefused {
			return reply
		}
		return nil
	}))
	return trips
}

// givenReplies is a hook that replies to commands in place of the server, which does not get them: with an error, or with a
// value. A command for which it returns nil goes to the server.
type givenReplies func(redis.Cmder) any

func (givenReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g givenReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if g.reply(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (g givenReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds = slices.DeleteFunc(slices.Clone(cmds), g.reply); len(cmds) == 0 {
			return nil
		}
		return next(ctx, cmds)
	}
}

// reply replies to a command, if the hook has a reply to it.
func (g givenReplies) reply(cmd redis.Cmder) bool {
	switch reply := g(cmd).(type) {
	case nil:
		return false
	case error:
		cmd.SetErr(reply)
	default:
		cmd.(interface{ SetVal(any) }).SetVal(reply)
	}
	return true
}

// Hooks look for the type of a command, to read its reply or to replace it.
func TestAScriptIsARedisCmdForTheHooksOfAClient(t *testing.T) {
	client, scripts := redistest.Start(t).Client(t), 0
	client.AddHook(givenReplies(func(cmd redis.Cmder) any {
		if strings.HasPrefix(cmd.Name(), "eval") {
			scripts++
			assert.IsType(t, &redis.Cmd{}, cmd)
		}
		return nil
	}))
	claimed(t, redisstore.New(client, redisstore.Scripts()), time.Minute)
	assert.Equal(t, 2, scripts, "EVALSHA, and EVAL after the first")
}

// isSplit reports whether a command is a script with more than one key, which a server refuses while their slot moves.
func isSplit(cmd redis.Cmder) bool {
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return false
	}
	keys, _ := cmd.Args()[2].(int)
	return keys > 1
}

// recordCall is a call for a record that prepare has made.
type recordCall struct {
	prepare func(*testing.T, *redisstore.Store) driver.Claim
	do      func(*redisstore.Store, driver.Claim) error
	whole   bool // only while the slot stays
	begins  bool // it would wait for a claim
	waits   int  // how many of its writes must be durable
	splits  int  // how many must while the slot moves
}

// running prepares a run with a step and a LateRetry, so that its calls have all keys.
func running(t *testing.T, store *redisstore.Store) driver.Claim {
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Checkpoint(ctx, c, "early", []byte("done")))
	c.Steps, c.LateRetry = true, time.Hour
	return c
}

// completed prepares an outcome, which Lua does not return if it is long.
func completed(outcome string) func(*testing.T, *redisstore.Store) driver.Claim {
	return func(t *testing.T, store *redisstore.Store) driver.Claim {
		c := running(t, store)
		require.NoError(t, store.Complete(ctx, c, []byte(outcome)))
		return c
	}
}

var longOutcome = strings.Repeat("x", 10_000)

func begin(store *redisstore.Store, c driver.Claim) error {
	_, err := store.Begin(ctx, c)
	return err
}

// recordCalls are the calls for one record, by their names.
var recordCalls = map[string]recordCall{
	"Begin": {
		prepare: func(*testing.T, *redisstore.Store) driver.Claim {
			c := storetest.NewClaim(time.Minute, time.Hour)
			c.LateRetry = time.Hour
			return c
		},
		do: begin, waits: 1, splits: 1,
	},
	"Begin of a long outcome": {prepare: completed(longOutcome), do: begin, begins: true},
	"Begin of another long outcome": {
		prepare: completed(longOutcome),
		do: func(store *redisstore.Store, c driver.Claim) error {
			if err := begin(store, c); err != nil {
				return err
			}
			return begin(store, c)
		},
		begins: true, whole: true,
	},
	"Extend": {prepare: running, do: func(store *redisstore.Store, c driver.Claim) error { return store.Extend(ctx, c) }},
	"Complete": {
		prepare: running, waits: 1, splits: 2,
		do: func(store *redisstore.Store, c driver.Claim) error { return store.Complete(ctx, c, []byte("kept")) },
	},
	"Fail": {
		prepare: running,
		do:      func(store *redisstore.Store, c driver.Claim) error { return store.Fail(ctx, c, driver.Failure{}) },
	},
	"Reopen": {
		prepare: completed("kept"), waits: 1, splits: 1,
		do: func(store *redisstore.Store, c driver.Claim) error { return store.Reopen(ctx, c, []byte("kept")) },
	},
	"Checkpoint": {
		prepare: running,
		do:      func(store *redisstore.Store, c driver.Claim) error { return store.Checkpoint(ctx, c, "late", nil) },
	},
	"Checkpoints": {
		prepare: running,
		do:      func(store *redisstore.Store, c driver.Claim) error { _, err := store.Checkpoints(ctx, c); return err },
	},
	"Look": {
		prepare: running, whole: true,
		do: func(store *redisstore.Store, c driver.Claim) error { _, err := store.Look(ctx, c.Key); return err },
	},
	"Steps": {
		prepare: running, whole: true,
		do: func(store *redisstore.Store, c driver.Claim) error { _, err := store.Steps(ctx, c.Key); return err },
	},
	"Outcome": {
		prepare: completed(longOutcome),
		do:      func(store *redisstore.Store, c driver.Claim) error { _, err := store.Outcome(ctx, c.Key); return err },
	},
	"Forget": {
		prepare: completed("kept"), whole: true, waits: 1,
		do: func(store *redisstore.Store, c driver.Claim) error {
			seen, err := store.Look(ctx, c.Key)
			if err != nil {
				return err
			}
			return store.Forget(ctx, seen)
		},
	},
}

// eachCall tries each call while the slot stays, and while it moves. prepare makes a record for it.
func eachCall(t *testing.T, try func(t *testing.T, call recordCall, prepare func() driver.Claim, isMoving bool)) {
	store := redisstore.New(redistest.Shared(t).Client(t), redisstore.Scripts())
	for name, call := range recordCalls {
		_ = call.do(store, call.prepare(t, store)) // the server learns the scripts
		for _, isMoving := range []bool{false, true} {
			if isMoving && call.whole {
				continue
			}
			t.Run(fmt.Sprintf("%s, moving %t", name, isMoving), func(t *testing.T) {
				try(t, call, func() driver.Claim { return call.prepare(t, store) }, isMoving)
			})
		}
	}
}

// answered makes a call with a client whose server is replaced by replies, and by that of a slot that moves.
func answered(t *testing.T, call recordCall, c driver.Claim, isMoving bool, replies givenReplies, opts ...redisstore.Option) error {
	client := redistest.Shared(t).Client(t)
	if isMoving {
		client.AddHook(slotMoves)
	}
	client.AddHook(replies)
	return call.do(redisstore.New(client, append(opts, redisstore.Scripts())...), c)
}

// slotMoves replies as a server does while the slot of each record moves.
var slotMoves = givenReplies(func(cmd redis.Cmder) any {
	if isSplit(cmd) {
		return refusal("TRYAGAIN the slot moves")
	}
	return nil
})

// A call of several commands ends with the first that is refused: a caller who does not know of the error would run or replay
// something that is not there. Only a GET of a record that has moved is replaced by a script.
func TestACallReturnsTheErrorOfEachOfItsCommands(t *testing.T) {
	t.Parallel()
	const unreadable, moved = refusal("WRONGTYPE it is refused"), refusal("MOVED 1 refused:1")
	eachCall(t, func(t *testing.T, call recordCall, prepare func() driver.Claim, isMoving bool) {
		for _, text := range []refusal{unreadable, moved} {
			c, refusals := prepare(), 0
			for at, sent := 1, 1; sent >= at-1; at++ {
				var refused string
				sent = 0
				err := answered(t, call, c, isMoving, func(cmd redis.Cmder) any {
					if name := cmd.Name(); name == "evalsha" || name == "eval" || name == "get" {
						if sent++; sent == at {
							refused = name
							refusals++
							return text
						}
					}
					return nil
				})
				if refused == "" || refused == "get" && text == moved {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, string(text), "command %d", at)
				}
			}
			require.NotZero(t, refusals, "no command was refused")
		}
	})
}

// A key that expires while a script runs is on the other node for the rest of the script, if its slot moves. The server then refuses
// what is left of the script, with an error of its own.
func TestAScriptThatIsRefusedInTheMiddleIsSplit(t *testing.T) {
	t.Parallel()
	const text = "cript attempted to access a non local key in a cluster node script: 1f, on @user_script:33."
	refused := map[string]bool{}
	eachCall(t, func(t *testing.T, call recordCall, prepare func() driver.Claim, isMoving bool) {
		for _, reply := range []refusal{"ERR S" + text, "ERR Error running script: Lua s" + text} {
			assert.NoError(t, answered(t, call, prepare(), false, func(cmd redis.Cmder) any {
				if !isMoving || !isSplit(cmd) {
					return nil
				}
				refused[t.Name()] = true
				return reply
			}))
		}
	})
	assert.Len(t, refused, 7, "all calls but Fail and Outcome, which name one key")
}

// A reply that no script gives comes from another program, or from a proxy. It is neither a claim nor a success.
func TestAReplyThatNoScriptGivesIsAnError(t *testing.T) {
	t.Parallel()
	eachCall(t, func(t *testing.T, call recordCall, prepare func() driver.Claim, isMoving bool) {
		c := prepare()
		oddSteps := []any{"record", "1", int64(1), int64(1), int64(1), "", []any{"step"}}
		for _, reply := range []any{"nonsense", "claimed 1 2", int64(7), []any{"ok", "step"}, oddSteps} {
			sent := 0
			err := answered(t, call, c, isMoving, func(cmd redis.Cmder) any {
				if cmd.Name() != "evalsha" {
					return nil
				}
				sent++
				return reply
			})
			values, _ := reply.([]any)
			// For Steps fewer values are no steps, and half a step is none.
			if sent > 0 && (values == nil || !strings.HasSuffix(t.Name(), "/Steps,_moving_false")) {
				assert.Error(t, err, "%v", reply)
			}
		}
	})
}

// What Begin, Complete, Reopen and Forget write is durable, or the call says that it is not. The others wait for nothing.
func TestEachWriteThatCountsWaitsForReplicas(t *testing.T) {
	t.Parallel()
	eachCall(t, func(t *testing.T, call recordCall, prepare func() driver.Claim, isMoving bool) {
		want, refused := call.waits, 0
		if isMoving {
			want = call.splits
		}
		for at, sent := 1, 1; sent >= at-1; at++ {
			sent = 0
			err := answered(t, call, prepare(), isMoving, func(cmd redis.Cmder) any {
				if cmd.Name() != "wait" {
					return nil
				}
				assert.Equal(t, []any{"WAIT", 2, int64(300)}, cmd.Args())
				if sent++; sent == at {
					return int64(1)
				}
				return int64(2)
			}, redisstore.WaitReplicas(2, 300*time.Millisecond), redisstore.Batch())
			if err != nil {
				require.ErrorIs(t, err, driver.ErrNotDurable)
				refused++
			}
			if want == 0 && !call.begins {
				require.Zero(t, sent, "a wait that nothing needs")
			}
		}
		assert.Equal(t, want, refused)
	})
}

func TestWaitAOFCountsTheServersThatHaveWrittenToDisk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply any
		want  string // in the error
	}{
		"all have":               {[]any{int64(1), int64(2)}, ""},
		"more than needed":       {[]any{int64(1), int64(3)}, ""},
		"the master has not":     {[]any{int64(0), int64(2)}, driver.ErrNotDurable.Error()},
		"a replica has not":      {[]any{int64(1), int64(1)}, driver.ErrNotDurable.Error()},
		"one number":             {[]any{int64(1)}, "1 numbers"},
		"three numbers":          {[]any{int64(1), int64(2), int64(2)}, "3 numbers"},
		"no number":              {"nonsense", "unexpected type"},
		"the command is unknown": {refusal("ERR unknown command"), "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			err := answered(t, recordCalls["Begin"], storetest.NewClaim(time.Minute, time.Hour), false, func(cmd redis.Cmder) any {
				if cmd.Name() != "waitaof" {
					return nil
				}
				assert.Equal(t, []any{"WAITAOF", 1, 2, int64(300)}, cmd.Args())
				return test.reply
			}, redisstore.WaitAOF(2, 300*time.Millisecond))
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// A long outcome that expires between the script and the GET is looked for again, and not for good.
func TestABeginWhoseRecordVanishesOnEveryReadIsAnError(t *testing.T) {
	t.Parallel()
	call := recordCalls["Begin of a long outcome"]
	c := call.prepare(t, redisstore.New(redistest.Shared(t).Client(t), redisstore.Scripts()))
	for vanishes, want := range map[int]string{1: "", 2: "", 3: "record changed on every read"} {
		reads := 0
		err := answered(t, call, c, false, func(cmd redis.Cmder) any {
			if cmd.Name() != "get" {
				return nil
			}
			if reads++; reads <= vanishes {
				return redis.Nil
			}
			return nil
		})
		if want == "" {
			assert.NoError(t, err, "%d times", vanishes)
			continue
		}
		assert.ErrorContains(t, err, want)
		assert.Equal(t, 3, reads)
	}
}

// A reply to a claim while the slot moves says no more and no less than any other.
func TestABeginWhoseSlotMovesKnowsTheRestOfTheRetention(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]driver.State{"of a new key": driver.Claimed, "of an outcome": driver.Completed} {
		t.Run(name, func(t *testing.T) {
			c := storetest.NewClaim(time.Minute, time.Hour)
			if want == driver.Completed {
				store := redisstore.New(redistest.Shared(t).Client(t))
				c = claimed(t, store, time.Minute)
				require.NoError(t, store.Complete(ctx, c, []byte("kept")))
			}
			c.LateRetry, c.WantRemaining = time.Hour, true
			call := recordCall{do: func(store *redisstore.Store, c driver.Claim) error {
				entry, err := store.Begin(ctx, c)
				assert.Equal(t, want, entry.State)
				assert.Positive(t, entry.Remaining)
				return err
			}}
			require.NoError(t, answered(t, call, c, true, func(redis.Cmder) any { return nil }))
		})
	}
}

// A run with steps, and without a LateRetry, names the key of a tombstone and makes none.
func TestCompleteLeavesATombstoneOnlyForALateRetry(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for late, want := range map[time.Duration]int64{0: 0, time.Hour: 1} {
		for _, isMoving := range []bool{false, true} {
			c := running(t, redisstore.New(client, redisstore.Scripts()))
			c.LateRetry = late
			require.NoError(t, answered(t, recordCalls["Complete"], c, isMoving, func(redis.Cmder) any { return nil }))
			assert.Equal(t, want, client.Exists(ctx, nameOf(c)+":late").Val(), "late retry %v, moving %t", late, isMoving)
			assert.Zero(t, client.Exists(ctx, nameOf(c)+":steps").Val())
		}
	}
}

func TestNewPanicsForAClientThatCannotKeepRecords(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	assert.Panics(t, func() { redisstore.New(nil) }, "none")
	assert.Panics(t, func() { redisstore.New(ring) }, "a Ring")
}

// A Cluster places keys by the text in their first braces, and by their whole names if that is empty.
func TestARecordIsOnTheMasterOfItsStepsUnderAnyPrefix(t *testing.T) {
	client := redistest.StartMasters(t, 2).Client(t)
	for _, prefix := range []string{"", "a{", "a}{", "}{", "{x}", "a{x}{}:", "{{}:"} {
		store := redisstore.New(client, redisstore.Prefix(prefix))
		for range 8 { // half of the names are on the other master
			c := storetest.NewClaim(time.Minute, time.Hour)
			c.Steps, c.LateRetry = true, time.Hour
			entry, err := store.Begin(ctx, c)
			require.NoError(t, err, "prefix %q", prefix)
			c.Fence, c.Attempt = entry.Fence, entry.Attempt
			require.NoError(t, store.Checkpoint(ctx, c, "charge", nil), "prefix %q", prefix)
			require.NoError(t, store.Complete(ctx, c, []byte("kept")), "prefix %q", prefix)
		}
	}
	for _, prefix := range []string{"{}", "a{}:", "}{}{x}"} {
		assert.Panics(t, func() { redisstore.New(client, redisstore.Prefix(prefix)) }, prefix)
		assert.NotPanics(t, func() { redisstore.New(redis.NewClient(&redis.Options{}), redisstore.Prefix(prefix)) }, prefix)
	}
}

// A node whose WAIT is refused has not said that a replica has the write.
func TestAWaitThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel()
	err := answered(t, recordCalls["Begin"], storetest.NewClaim(time.Minute, time.Hour), false, func(cmd redis.Cmder) any {
		if cmd.Name() == "wait" {
			return refusal("NOPERM no right")
		}
		return nil
	}, redisstore.WaitReplicas(1, 300*time.Millisecond))
	assert.ErrorContains(t, err, "NOPERM no right")
	assert.NotErrorIs(t, err, driver.ErrNotDurable)
}

// A GET that a node redirects is replaced by a script, whose error and whose lack of a record are those of the call.
func TestAnOutcomeThatHasMovedIsReadByAScript(t *testing.T) {
	t.Parallel()
	none := storetest.NewClaim(time.Minute, time.Hour)
	isRefused := false
	redirected := func(cmd redis.Cmder) any {
		if cmd.Name() == "get" || isRefused && strings.HasPrefix(cmd.Name(), "eval") {
			return refusal("MOVED 1 refused:1")
		}
		return nil
	}
	assert.NoError(t, answered(t, recordCalls["Outcome"], none, false, redirected), "there is none")
	isRefused = true
	assert.ErrorContains(t, answered(t, recordCalls["Outcome"], none, false, redirected), "MOVED")
}

// The scripts of an operator name all keys, so they are sent again until the slot has moved, but not for good.
func TestWhatAnOperatorAsksForWaitsUntilTheSlotHasMoved(t *testing.T) {
	t.Parallel()
	store := redisstore.New(redistest.Shared(t).Client(t))
	for _, name := range []string{"Look", "Steps", "Forget"} {
		call := recordCalls[name]
		for refusals, ends := range map[int]bool{1: true, 16: true, 17: false} {
			began, sent := time.Now(), 0
			err := answered(t, call, call.prepare(t, store), false, func(cmd redis.Cmder) any {
				if isSplit(cmd) {
					if sent++; sent <= refusals {
						return refusal("TRYAGAIN the slot moves")
					}
				}
				return nil
			})
			if ends {
				assert.NoError(t, err, "%s, %d", name, refusals)
			} else {
				assert.ErrorContains(t, err, "TRYAGAIN", name)
				assert.Equal(t, 17, sent)
				assert.Greater(t, time.Since(began), 500*time.Millisecond)
			}
		}
	}
}

func TestExtendKeepsTheStepsAliveOnTwoNodes(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for _, isMoving := range []bool{false, true} {
		c := running(t, redisstore.New(client))
		require.NoError(t, client.Expire(ctx, nameOf(c)+":steps", time.Minute).Err())
		require.NoError(t, answered(t, recordCalls["Extend"], c, isMoving, func(redis.Cmder) any { return nil }))
		assert.Greater(t, client.TTL(ctx, nameOf(c)+":steps").Val(), time.Minute, "moving %t", isMoving)
	}
}

// Who does not wait has nobody told of the end.
func TestTheEndOfARunIsPublishedOnlyToWhoHasSubscribed(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client, redisstore.Scripts())
	for published, subscribed := range []bool{false, true} {
		c := claimed(t, store, time.Minute)
		rival := rivalOf(c)
		rival.Subscribed = subscribed
		entry, err := store.Begin(ctx, rival)
		require.NoError(t, err)
		require.Equal(t, driver.InProgress, entry.State)
		require.NoError(t, store.Complete(ctx, c, nil))
		assert.Equal(t, published, executions(t, client, "publish")+executions(t, client, "spublish"))
	}
}

// The record says on which kind of channel its requests wait: see lua/record.lua.
func TestTheEndOfARunIsPublishedAsItsRequestsWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if !server.Knows(t, "SPUBLISH") {
		t.Skip("this server has no sharded channels")
	}
	client := server.Client(t)
	store := redisstore.New(client, redisstore.Scripts())
	for _, denied := range []bool{false, true} { // a user who may not publish ends runs all the same
		for mark, command := range map[string]string{"1": "publish", "2": "spublish"} {
			c := claimed(t, store, time.Minute)
			require.NoError(t, client.SetRange(ctx, nameOf(c), 3, mark).Err())
			require.NoError(t, store.Complete(ctx, c, nil))
			assert.Equal(t, 1, executions(t, client, command), command)
		}
		require.Equal(t, 1, executions(t, client, "publish"))
		require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "default", "-publish", "-spublish").Err(), denied)
	}
}
