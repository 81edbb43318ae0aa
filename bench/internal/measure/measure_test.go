package measure

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
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
	"github.com/go-idem/idem/internal/redistest"
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
		running := b.meanWeight(l, 1)
		assert.Positive(t, running, l.Name)
		kept := l.Kept(subject.Body(4 << 10))
		l.Complete(ctx, b.client, keyName(0), kept)
		assert.Greater(t, b.meanWeight(l, 1), running+4<<10, l.Name)
		sent, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			l.Replay(ctx, p, keyName(0), 4<<10)
			return nil
		})
		require.NoError(t, err, l.Name)
		replay := ""
		switch last := sent[len(sent)-1].(type) {
		case *redis.StringCmd: // a GET
			replay = last.Val()
		case *redis.Cmd: // a script
			replay = fmt.Sprint(last.Val())
		}
		assert.Contains(t, replay, string(kept), l.Name)
	}
}

func TestServerTimeCountsEveryCallOrFails(t *testing.T) {
	b := newTestBench(t)
	require.NoError(t, b.client.Set(ctx, "k", strings.Repeat("x", 1<<16), 0).Err())
	names := make([]string, 50)
	for _, together := range []int{1, 20} {
		_, err := serverTime(b.client, names, []string{"evalsha", "get"}, together, func(to redis.Cmdable, _ string) { to.Get(ctx, "k") })
		assert.ErrorContains(t, err, "evalsha", "a command that no call has sent takes no time")
		usec, err := serverTime(b.client, names, []string{"get"}, together, func(to redis.Cmdable, _ string) { to.Get(ctx, "k") })
		require.NoError(t, err)
		assert.Positive(t, usec)
		_, err = serverTime(b.client, names, []string{"evalsha"}, together, func(to redis.Cmdable, _ string) { to.EvalSha(ctx, strings.Repeat("0", 40), nil) })
		assert.ErrorContains(t, err, "went well", "a script that the server does not know")
		_, err = serverTime(b.client, names, []string{"get"}, together, func(to redis.Cmdable, _ string) { to.Get(ctx, "k"); to.Get(ctx, "k") })
		assert.ErrorContains(t, err, "went well", "two calls for one")
	}
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
	found := map[string]float64{}
	require.NoError(t, timeCalls(found, "_busy_us", b.client, subject.Layouts[0], 512, 20, pipelined))
	assert.EqualValues(t, 501, b.client.DBSize(ctx).Val(), "what was begun is gone")
	assert.Len(t, found, 3)
}

// Each part finds figures, and each figure is a positive number.
func TestEveryPartFindsFigures(t *testing.T) {
	b := newTestBench(t)
	t.Setenv("MORE_SERVERS", redistest.Binary(t))
	rows := map[string]int{
		"loads": 2 * len(b.subjects), "duels": 4*(len(pairings)-4) + 2*2 + 2, "newer": 8, "allocations": 4, "scripts": 6, "commands": 16,
		"pipelines": 6, "live": 4, "memory": 6, "codecs": 20,
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
		assert.InDelta(t, 200, row.Figures["running_bytes"], 10, row.Name)
		assert.Greater(t, row.Figures["completed_bytes"], row.Figures["running_bytes"], row.Name)
		assert.Less(t, row.Figures["of_pair"], 1.0, row.Name)
	}
	for plain := 0; plain < len(rows); plain += 5 {
		assert.Greater(t, rows[plain].Figures["of_pair"], rows[plain+1].Figures["of_pair"], "zstd")
		assert.Greater(t, rows[plain+1].Figures["of_pair"], rows[plain+2].Figures["of_pair"], "a dictionary")
	}
}

func TestQuantiles(t *testing.T) {
	all := []float64{5, 1, 4, 2, 3}
	assert.EqualValues(t, 3, median(all))
	assert.EqualValues(t, 5, quantile(all, 0.99))
	assert.EqualValues(t, 1, quantile(all, 0))
	assert.Equal(t, []float64{5, 1, 4, 2, 3}, all, "left as it was")
	assert.Zero(t, median(nil))
}

func TestEachRoundBeginsWithAnotherWay(t *testing.T) {
	var order []int
	found, err := inTurns(2, 3, func(way int) (map[string]float64, error) {
		order = append(order, way)
		return map[string]float64{"at": float64(len(order))}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2, 1, 2, 0}, order)
	assert.Equal(t, []rounds{{"at": {1, 6}}, {"at": {2, 4}}, {"at": {3, 5}}}, found)
	assert.Equal(t, map[string]float64{"at": 6}, found[0].medians())
	starts := map[int]bool{}
	_, err = inTurns(9, 68, func(way int) (map[string]float64, error) {
		if len(order)%68 == 6 {
			starts[way] = true
		}
		order = append(order, way)
		return nil, nil
	})
	require.NoError(t, err)
	assert.Len(t, starts, 9, "spread over all")
	assert.True(t, starts[56])
	_, err = inTurns(1, 2, func(int) (map[string]float64, error) { return nil, io.EOF })
	assert.ErrorIs(t, err, io.EOF)
}

func TestRatiosAreThoseOfTheSameRound(t *testing.T) {
	own, beside := rounds{"per_second": {50, 300, 20}}, rounds{"per_second": {100, 200, 10}}
	assert.Equal(t, []float64{0.5, 1.5, 2}, ratios(own, beside, "per_second"))
	assert.Empty(t, ratios(own, nil, "per_second"))
}

func TestADuelNamesBothSubjects(t *testing.T) {
	b := newTestBench(t)
	row, err := b.duel(b.find("http", subject.Memory), b.find("http", subject.Bare), allNew)
	require.NoError(t, err)
	assert.Equal(t, []string{"http", "all new keys", subject.Memory, subject.Bare}, row.Name)
	assert.Len(t, row.Figures, 4)
}

func TestADifferenceIsTheMedianOfTurns(t *testing.T) {
	own, beside := []float64{110, 205, 95, 108}, []float64{100, 200, 90, 100}
	assert.Equal(t, "+8.00 (+8.0 %), +8.00 to +10.00", difference(own, beside, 2))
}
