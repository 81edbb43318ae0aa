package model

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/lua"
)

var ctx = context.Background()

func clockedMemory() *Clocked {
	now := epoch
	return &Clocked{
		memstore.New(memstore.Clock(func() time.Time { return time.Unix(0, int64(now)) })),
		func() time.Duration { return now },
		func(d time.Duration) { now += d },
		nil,
	}
}

// clockedRedis is a real server whose clock stands still, and a store that sends scripts alone: they are sent to it with another place to read the time
// from, and when time passes, the keys are told how much.
func clockedRedis(tb testing.TB, server *redistest.Server) *Clocked {
	name := rand.Text()
	client := server.Client(tb)
	move := redis.NewScript(`
		redis.call('HSET', KEYS[1], 's', ARGV[1], 'us', ARGV[4])
		for _, key in ipairs(redis.call('KEYS', ARGV[3])) do
			redis.call('PEXPIRE', key, redis.call('PTTL', key) - ARGV[2])
		end`)
	now := epoch - tick
	set := func(d, passed time.Duration) {
		now += d
		err := move.Run(ctx, client, []string{"clock:" + name}, int64(now/time.Second), passed.Milliseconds(), name+"*", int64(now%time.Second/time.Microsecond)).Err()
		if !errors.Is(err, redis.Nil) {
			require.NoError(tb, err)
		}
	}
	advance := func(d time.Duration) { set(d, d) }
	advance(tick)
	scripts := server.Client(tb)
	scripts.AddHook(otherClock(tb, "clock:"+name))
	return &Clocked{redisstore.New(scripts, redisstore.Prefix(name), redisstore.Scripts()), func() time.Duration { return now }, advance, func(d time.Duration) { set(d, 0) }}
}

// otherClock sends scripts that read a clock that the test sets.
func otherClock(tb testing.TB, name string) redis.Hook {
	texts := map[string]string{}
	for _, text := range []string{lua.Begin, lua.Extend, lua.Complete, lua.Fail} {
		const clock = "redis.call('TIME')"
		require.Positive(tb, strings.Count(text, clock), "a script that does not read the time")
		texts[text] = strings.Replace(text, clock, "redis.call('HMGET', '"+name+"', 's', 'us')", -1)
	}
	return redistest.OtherScripts(texts, redistest.Translation{})
}

func TestTheMemoryStoreAnswersAsTheModelDoesInEverySituation(t *testing.T) {
	t.Parallel()
	for _, way := range ways() {
		require.NoError(t, clockedMemory().play(0, way))
	}
}

func TestTheScriptsAnswerAsTheModelDoesInEverySituation(t *testing.T) {
	t.Parallel()
	all := ways()
	if os.Getenv("SOAK") == "" {
		all = oneLookEach(all)
	}
	t.Logf("%d ways", len(all))
	const workers = 4
	server := redistest.Start(t)
	var wg sync.WaitGroup
	for part := range workers {
		store := clockedRedis(t, server)
		wg.Go(func() {
			for i := part; i < len(all); i += workers {
				if err := store.play(0, all[i]); !assert.NoError(t, err) {
					return
				}
				store.Advance(10 * tick) // whatever there is expires
			}
		})
	}
	wg.Wait()
}

// A few of the ways, with leases that end on the server's own clock.
func TestTheScriptsAnswerAsTheModelDoesOnTheServersClock(t *testing.T) {
	t.Parallel()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := mathrand.New(mathrand.NewSource(seed))
	all, n := ways(), 60
	if os.Getenv("SOAK") != "" {
		n = len(all)
	}
	store := redisstore.New(redistest.Shared(t).Client(t), redisstore.Prefix(rand.Text()))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 50) // most of the time is spent waiting for leases to end
	for i, pick := range random.Perm(len(all))[:n] {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			timely := false
			for length := 100 * time.Millisecond; !timely; length *= 2 { // on a machine that is too busy a tick gets longer
				var err error
				key := [8]byte{}
				binary.BigEndian.PutUint64(key[:], uint64(i)<<32|uint64(length))
				timely, err = playInTime(store, key[:], all[pick], length)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
}

// playInTime makes moves on a store with a clock of its own, and on the model. It is timely when each call came soon after
// its tick began; leases and retentions end in the middle of one.
func playInTime(s driver.Store, key []byte, way []move, length time.Duration) (timely bool, err error) {
	var record Record
	var model, store fences
	began, ticks := time.Now(), time.Duration(0)
	for i, m := range way {
		if m.verb == "" {
			ticks++
			time.Sleep(time.Until(began.Add(ticks * length)))
			continue
		}
		var want Answer
		record, want = Step(record, m.call(model.latest), epoch+ticks*tick)
		call := m.call(store.latest)
		copy(call.Claim.Key[:], key)
		call.Claim.Lease = call.Claim.Lease/tick*length - length/2
		call.Claim.Retention = call.Claim.Retention/tick*length - length/2
		got := apply(ctx, s, call)
		if time.Since(began) > ticks*length+length*2/5 {
			return false, nil
		}
		if got, want := store.words(got), model.words(want); got != want {
			return true, fmt.Errorf("%v: the store answers %s, the model %s", way[:i+1], got, want)
		}
	}
	return true, nil
}

// fences names the fences that a store gives by their order, in which stores agree.
type fences struct {
	latest int64
	given  []int64
}

func (f *fences) words(a Answer) string {
	if a.Entry.State == driver.Claimed && a.Entry.Fence > f.latest {
		f.latest = a.Entry.Fence
		f.given = append(f.given, f.latest)
	}
	a.Entry.Remaining = 0
	for _, fence := range []*int64{&a.Entry.Fence, &a.Entry.Operation} {
		if place := slices.Index(f.given, *fence); place >= 0 {
			*fence = int64(place) + 1
		}
	}
	return fmt.Sprint(a)
}

// The clock of the server jumps while a run holds the key: its lease ends at once, or much later.
func TestAClockThatJumpsMovesLeasesAndNothingElse(t *testing.T) {
	a1, b1 := move{verb: Begin, owner: 0}, move{verb: Begin, owner: 1}
	for _, jump := range []time.Duration{60 * tick, -60 * tick} {
		server := clockedRedis(t, redistest.Shared(t))
		begin := func(m move) driver.Entry {
			call := m.call(0)
			call.Claim.Retention = 1000 * tick
			answer := apply(ctx, server.Store, call)
			require.NoError(t, answer.Err)
			return answer.Entry
		}
		first := begin(a1)
		server.jump(jump)
		complete := move{verb: Complete, owner: 0, fence: newest, outcome: "one"}.call(first.Fence)
		second := begin(b1)
		if jump > 0 {
			assert.True(t, second.Takeover)
			assert.Greater(t, second.Fence, first.Fence)
			assert.ErrorIs(t, apply(ctx, server.Store, complete).Err, driver.ErrLost)
			continue
		}
		assert.Equal(t, driver.InProgress, second.State)
		assert.Equal(t, 62*tick, second.Remaining)
		assert.NoError(t, apply(ctx, server.Store, move{verb: Fail, owner: 0, fence: newest}.call(first.Fence)).Err)
		third := begin(b1)
		assert.Greater(t, third.Fence, first.Fence, "the clock is behind the last fence")
		assert.ErrorIs(t, apply(ctx, server.Store, complete).Err, driver.ErrLost)
	}
}
