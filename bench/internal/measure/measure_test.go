package measure

import (
	"context"
	"crypto/rand"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
)

var ctx = context.Background()

// tiny measures just enough to see that everything works.
var tiny = Plan{
	Rounds: 1, Round: 20 * time.Millisecond, Bouts: 1, Bout: 20 * time.Millisecond, Requests: 50, Calls: 100, Scripts: 1,
	Keys: 10_000, Bodies: 20,
}

func newTestBench(t *testing.T) *Bench {
	b, err := New(t, tiny)
	require.NoError(t, err)
	return b
}

func TestEverySubjectRespondsAndReplays(t *testing.T) {
	b := newTestBench(t)
	require.Len(t, b.subjects, 34)
	for _, s := range b.subjects {
		t.Run(s.Framework+" "+s.Name, func(t *testing.T) {
			var payments subject.Payments
			served, err := b.serve(s, &payments)
			require.NoError(t, err)
			defer served.stop()
			p := newPlayer(served, allNew, 0)
			require.NoError(t, p.post(p.fresh.At(1), false))
			first := string(p.response.Body())
			assert.Equal(t, subject.MediaType, string(p.response.Header.ContentType()))
			require.NoError(t, p.post(p.fresh.At(2), false))
			assert.NotEqual(t, first, string(p.response.Body()), "another key")
			if s.Name == subject.Bare {
				require.NoError(t, p.post(p.fresh.At(1), false))
				assert.EqualValues(t, 3, payments.Runs(), "nothing guards it")
				return
			}
			require.NoError(t, p.post(p.fresh.At(1), true))
			assert.Equal(t, first, string(p.response.Body()))
			assert.Equal(t, subject.MediaType, string(p.response.Header.ContentType()))
			assert.EqualValues(t, 2, payments.Runs())
		})
	}
}

func TestAResponseThatIsNotWhatItMustBeEndsTheMeasurement(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a refusal":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
		"another length": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"a replay that is not one": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(subject.Marker, "true")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(make([]byte, subject.ResponseBytes))
		},
	} {
		addr, stop, err := subject.App{Std: handler}.Listen()
		require.NoError(t, err)
		assert.Error(t, newPlayer(newTarget(addr), allNew, 0).next(), name)
		stop()
	}
}

func TestTheRawScriptsAndTheStoreReadEachOthersRecords(t *testing.T) {
	b := newTestBench(t)
	store := redisstore.New(b.client)
	claim := driver.Claim{Fingerprint: [32]byte{1}, Lease: 30 * time.Second, Retention: 24 * time.Hour}
	_, _ = rand.Read(claim.Key[:])
	entry, err := store.Begin(ctx, claim)
	require.NoError(t, err)
	names, err := b.client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.Len(t, names, 1)
	word, _, _, err := subject.ParseBegin(subject.NewClaim(names[0]).Begin(ctx, b.client))
	require.NoError(t, err)
	assert.NotEqual(t, "claimed", word, "another owner")
	claim.Fence, claim.Attempt = entry.Fence, entry.Attempt
	require.NoError(t, store.Complete(ctx, claim, []byte("outcome")))
	_, _, record, err := subject.ParseBegin(subject.NewClaim(names[0]).Begin(ctx, b.client))
	require.NoError(t, err)
	assert.Equal(t, "outcome", string(record[subject.HeadBytes:]))

	require.NoError(t, b.client.FlushAll(ctx).Err())
	raw := subject.NewClaim(names[0])
	word, fence, _, err := subject.ParseBegin(raw.Begin(ctx, b.client))
	require.NoError(t, err)
	assert.Equal(t, "claimed", word)
	require.Equal(t, "ok", raw.Complete(ctx, b.client, fence, []byte("raw")).Val())
	entry, err = store.Begin(ctx, claim)
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, entry.State)
	assert.Equal(t, "raw", string(entry.Outcome))
}

func TestEveryLayoutKeepsTheBody(t *testing.T) {
	b := newTestBench(t)
	for _, l := range subject.Layouts {
		require.NoError(t, b.client.FlushAll(ctx).Err())
		l.Begin(ctx, b.client, keyName(0))
		running := meanWeight(ctx, b.client, 1, l.Keys)
		assert.Positive(t, running, l.Name)
		l.Complete(ctx, b.client, keyName(0), subject.Body(4<<10))
		assert.Greater(t, meanWeight(ctx, b.client, 1, l.Keys), running+4<<10, l.Name)
		var replay *redis.Cmd
		_, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			l.Replay(ctx, p, keyName(0), 512)
			return nil
		})
		require.NoError(t, err, replay)
	}
}

func TestServerTimeCountsEveryCallOrFails(t *testing.T) {
	b := newTestBench(t)
	usec, err := serverTime(b.client, []string{"set"}, 50, func(int) { b.client.Set(ctx, "k", strings.Repeat("x", 1<<16), 0) })
	require.NoError(t, err)
	assert.Positive(t, usec)
	_, err = serverTime(b.client, []string{"evalsha"}, 50, func(int) { b.client.EvalSha(ctx, strings.Repeat("0", 40), nil) })
	assert.ErrorContains(t, err, "went well", "a script that the server does not know")
	_, err = serverTime(b.client, []string{"set"}, 50, func(i int) { b.client.Set(ctx, "k", i, 0); b.client.Set(ctx, "k", i, 0) })
	assert.ErrorContains(t, err, "went well", "two calls for one")
}

func TestLiveKeysAreRecordsThatReplay(t *testing.T) {
	b := newTestBench(t)
	require.NoError(t, fillLive(b.client, 500))
	assert.EqualValues(t, 501, b.client.DBSize(ctx).Val(), "and the source of the copies")
	assert.Positive(t, b.client.PTTL(ctx, subject.Own(keyName(499))[0]).Val())
	late := subject.NewClaim(subject.Own(keyName(499))[0])
	_, _, record, err := subject.ParseBegin(late.Begin(ctx, b.client))
	require.NoError(t, err)
	assert.Len(t, record, subject.HeadBytes+10)
	found := times{}
	require.NoError(t, found.add(b.client, subject.Layouts[0], 512, 20, pipelined, "_busy_us"))
	assert.EqualValues(t, 501, b.client.DBSize(ctx).Val(), "what was begun is gone")
	assert.Len(t, found.medians(), 3)
}

// Each part finds figures, and each figure is a positive number.
func TestEveryPartFindsFigures(t *testing.T) {
	b := newTestBench(t)
	rows := map[string]int{
		"loads": 2 * len(b.subjects), "duels": 2*len(pairings) + 2*(len(pairings)-2), "allocations": 4, "scripts": 6, "live": 4,
		"memory": 6, "codecs": 20,
	}
	for _, part := range Parts {
		found, err := part.Measure(b)
		require.NoError(t, err, part.Name)
		assert.Len(t, found, rows[part.Name], part.Name)
		for _, row := range found {
			assert.NotEmpty(t, row.Figures, row.Name)
			for figure, value := range row.Figures {
				isNumber := !math.IsNaN(value) && !math.IsInf(value, 0)
				isPlausible := value >= 0 && (value > 0 || strings.Contains(figure, "cpu"))
				assert.True(t, isNumber && isPlausible, "%s %q %s: %v", part.Name, row.Name, figure, value)
			}
		}
	}
}

func TestACompressedRecordIsSmaller(t *testing.T) {
	rows, err := codecs(newTestBench(t))
	require.NoError(t, err)
	for _, row := range rows {
		assert.Greater(t, row.Figures["completed_bytes"], row.Figures["outcome_bytes"]+subject.HeadBytes, row.Name)
		assert.Less(t, row.Figures["completed_bytes"], row.Figures["outcome_bytes"]*1.3+400, row.Name)
		assert.InDelta(t, 200, row.Figures["running_bytes"], 10, row.Name)
	}
	assert.Greater(t, rows[0].Figures["of_pair"], rows[2].Figures["of_pair"])
}

func TestQuantiles(t *testing.T) {
	all := []int{5, 1, 4, 2, 3}
	assert.Equal(t, 3, median(all))
	assert.Equal(t, 5, quantile(all, 0.99))
	assert.Equal(t, 1, quantile(all, 0))
	assert.Equal(t, []int{5, 1, 4, 2, 3}, all, "left as it was")
	assert.Zero(t, median([]float64(nil)))
	assert.Equal(t, []int{3, 1, 2}, rotated([]int{1, 2, 3}, 5))
}

func TestRatiosAreThoseOfTheSameRound(t *testing.T) {
	own := []round{{perSecond: 50}, {perSecond: 300}, {perSecond: 20}}
	beside := []round{{perSecond: 100}, {perSecond: 200}, {perSecond: 10}}
	assert.Equal(t, []float64{0.5, 1.5, 2}, ratios(own, beside, perSecond))
	assert.Empty(t, ratios(own, nil, perSecond))
}

func TestADuelChangesTheFirst(t *testing.T) {
	b := newTestBench(t)
	d := duel{own: b.find("http", subject.Memory), beside: b.find("http", subject.Bare), workload: allNew}
	for n := range 2 {
		require.NoError(t, d.bout(b, n))
	}
	assert.Len(t, d.rounds[0], 2)
	assert.Len(t, d.rounds[1], 2)
	assert.Equal(t, []string{"http", "all new keys", subject.Memory, subject.Bare}, d.row().Name)
}

func TestADifferenceIsTheMedianOfTurns(t *testing.T) {
	own, beside := []float64{110, 205, 95, 108}, []float64{100, 200, 90, 100}
	assert.Equal(t, "+8.00 (+8.0 %), +8.00 to +10.00", difference(own, beside, 2))
}
