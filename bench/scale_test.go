package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
)

func TestAnswersAreVariedJSONOfAnySize(t *testing.T) {
	r := newAnswers(7)
	zstd, err := compress.Zstd(compress.Threshold(1))
	require.NoError(t, err)
	for _, size := range []int{400, 512, 513, 1 << 10, 64 << 10} {
		body := r.body(size)
		assert.Len(t, body, size)
		assert.True(t, json.Valid([]byte(body)), size)
		assert.False(t, body == r.body(size), "another one")
	}
	assert.Equal(t, newAnswers(1).body(512), newAnswers(1).body(512), "the same seed")
	assert.Greater(t, len(zstd.Encode([32]byte{}, []byte(r.body(512)))), 300, "no filler")
}

func TestEveryFormGivesBackWhatItKeeps(t *testing.T) {
	all, err := forms()
	require.NoError(t, err)
	lengths := map[string]int{}
	for _, f := range all {
		kept, err := f.encode([32]byte{1}, packed(newAnswers(9).body(512)))
		require.NoError(t, err, f.name)
		lengths[f.name] = len(kept)
	}
	assert.Equal(t, 573, lengths[plainForm], "as long as the planner takes it")
	assert.Less(t, lengths[zstdForm], lengths[plainForm])
	assert.Less(t, lengths[dictionaryForm], lengths[zstdForm])
	assert.Greater(t, lengths["sealed"], lengths[plainForm])
	assert.Less(t, lengths["zstd with a dictionary, sealed"], lengths[zstdForm])
	_, err = form{"forgetful", []driver.Codec{forgetful{}}}.encode([32]byte{}, []byte("outcome"))
	assert.ErrorContains(t, err, "forgetful: another outcome came back")
}

type forgetful struct{}

func (forgetful) Encode([32]byte, []byte) []byte          { return nil }
func (forgetful) Decode([32]byte, []byte) ([]byte, error) { return nil, nil }

func TestFormsAreWeighedBesideTwoKeys(t *testing.T) {
	b := newTestBench(t)
	require.NoError(t, measureForms(b))
	require.Len(t, b.results.forms, 5*len(formSizes))
	for _, w := range b.results.forms {
		assert.Greater(t, w.completed, w.outcome+headBytes, w.form)
		assert.Less(t, w.completed, w.outcome*1.3+400, w.form)
		assert.InDelta(t, 200, w.running, 10, w.form)
		assert.Greater(t, w.pair, w.result, w.form)
		assert.Greater(t, w.base64, w.pair, "base64 is longer than quotes with backslashes")
	}
	assert.Greater(t, b.results.formNamed(plainForm, 512).ratio(), b.results.formNamed(dictionaryForm, 512).ratio())
	assert.Zero(t, b.results.formNamed(plainForm, 1))
}

func TestABoundSaysWhereItIsMissedAndWhy(t *testing.T) {
	weights := []formWeight{
		{size: 512, form: plainForm, packed: 646, outcome: 646, completed: 872, pair: 1280},
		{size: 4 << 10, form: plainForm, packed: 4230, outcome: 4230, completed: 5224, pair: 5376},
		{size: 512, form: zstdForm, packed: 646, outcome: 465, completed: 744, pair: 1280},
		{size: 4 << 10, form: zstdForm, packed: 4230, outcome: 3000, completed: 4000, pair: 5000},
	}
	assert.Equal(t, "- **plain, at most 0.72×**, kept at 512 B (0.68×);\n  **not** at 4 KiB, which is 0.97×: 0.76× are the body, "+
		"0.04× header lines and the record's header, 0.17× Redis's own and what jemalloc rounds up.\n", bound{plainForm, 0, 0.72}.explain(weights))
	assert.Equal(t, "- **zstd, at most 0.50×**;\n  **not** at 4 KiB, which is 0.80×: 0.60× are the outcome, 0.20× the record's header, "+
		"Redis's own and what jemalloc rounds up.\n", bound{zstdForm, 1 << 10, 0.5}.explain(weights))
}

func TestThePlannerIsWithinFivePercentOfARealServer(t *testing.T) {
	b := newTestBench(t)
	b.plan.records = 20_000
	b.results.forms = []formWeight{{size: 512, form: dictionaryForm, packed: 646, outcome: 323}}
	require.NoError(t, measurePlanner(b))
	found := b.results.filled
	assert.EqualValues(t, 20_000, b.client.DBSize(ctx).Val())
	assert.EqualValues(t, 20_000, found.records)
	assert.Less(t, math.Abs(found.difference()), 0.05, "%+v", found)
	require.Len(t, b.results.planned, 2)
	textbook, compressed := b.results.planned[0], b.results.planned[1]
	assert.EqualValues(t, 2_280_000, textbook.locks)
	assert.EqualValues(t, 44_496_000_000, textbook.results)
	assert.Greater(t, textbook.twoKeys, textbook.results)
	assert.Greater(t, textbook.library, textbook.twoKeys)
	assert.Contains(t, compressed.args, "-ratio 0.50")
	assert.Less(t, compressed.library, textbook.library)
	_, err := ask("-rate 0")
	assert.ErrorContains(t, err, "-rate 0: must be above 0")
}

func TestLiveKeysAreRecordsThatReplay(t *testing.T) {
	b := newTestBench(t)
	at, err := b.beside(500)
	require.NoError(t, err)
	assert.EqualValues(t, 500, at.client.DBSize(ctx).Val())
	assert.Positive(t, at.client.PTTL(ctx, ownKeys(name(499))[0]).Val())
	late := claimOf(name(499))
	late.owner[0]++
	_, _, record, err := answer(late.begin(ctx, at.client))
	require.NoError(t, err)
	assert.Len(t, record, headBytes+10)
	var l liveSpeed
	require.NoError(t, l.measure(at, 20))
	assert.EqualValues(t, 500, at.client.DBSize(ctx).Val(), "what was begun is gone")
	for _, v := range []verbSpeed{l.begin, l.complete, l.replay} {
		assert.Positive(t, median(v.usec))
		assert.Positive(t, median(v.p50))
		assert.GreaterOrEqual(t, median(v.p99), median(v.p50))
	}
}

func TestTheTableOfLiveKeysSaysWhatWasLeftOut(t *testing.T) {
	speed := func(usec float64) verbSpeed {
		return verbSpeed{[]time.Duration{time.Duration(usec) * time.Millisecond}, []time.Duration{time.Second}, []float64{usec}}
	}
	r := results{live: []liveSpeed{
		{1000, speed(10), speed(20), speed(40), ""}, {100_000, speed(12), speed(20), speed(60), ""}, {keys: 10_000_000, leftOut: "needs more"},
	}}
	text := r.liveTable()
	assert.Contains(t, text, "| 1,000 | 10.0 ms | 1000.0 ms | 10.0 | 20.0 ms |")
	assert.Contains(t, text, "| 10,000,000 | needs more |  |")
	assert.Contains(t, text, "With 100,000 live keys a begin takes the server 1.20× of what it takes with 1,000, a complete 1.00×, a replay 1.50×")
	assert.Equal(t, []int{1000, 100_000, 1_000_000, 10_000_000}, liveCounts(10_000_000))
	assert.Positive(t, freeMemory())
}

func TestTheNodesOfAClusterShareThePairs(t *testing.T) {
	b := newTestBench(t)
	c, err := b.startCluster(3)
	require.NoError(t, err)
	defer c.end()
	r, err := c.pairs(throughStore(c.client), 100*time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, r.commands)
	assert.Positive(t, r.perSecond)
	assert.Greater(t, r.least, 0.1)
	assert.Less(t, r.most, 0.6)
	assert.LessOrEqual(t, r.least, 1.0/3)
	assert.GreaterOrEqual(t, r.most, 1.0/3)
	for _, node := range c.nodes {
		assert.Positive(t, commandTime(ctx, node, "evalsha"), "each has taken part")
	}
}

func TestALineOfTheProfileHasTheTextOfItsFunction(t *testing.T) {
	assert.Contains(t, lineText("core/internal/deadline.(*Context).Done"), "go-redis looks")
	assert.Contains(t, lineText("core/redisstore.(*query).command"), "as go-redis makes it")
	assert.Contains(t, lineText("core/redisstore.(*query).sendAlone"), "a round trip", "the longer name counts")
	assert.Equal(t, "—", lineText("core.notYetWritten"))
	r := results{hottest: []hotLine{{"9%", "core.hashing.end", "a.go:1"}, {"8%", "core.hashing.end", "a.go:2"}, {"1%", "core.x", "b.go:1"}, {"1%", "core.y", "b.go:2"}}}
	text := r.hotTable()
	assert.Equal(t, 1, strings.Count(text, "states are used again"))
	assert.Equal(t, 1, strings.Count(text, "as above"))
	assert.Equal(t, 2, strings.Count(text, "| — |"))
}

func TestLargeFiguresAreReadable(t *testing.T) {
	assert.Equal(t, "0", grouped(0))
	assert.Equal(t, "999", grouped(999))
	assert.Equal(t, "1,234,567", grouped(1_234_567))
	assert.Equal(t, "2.28 MB", size(2_280_000))
	assert.Equal(t, "44.50 GB", size(44_498_280_000))
}
