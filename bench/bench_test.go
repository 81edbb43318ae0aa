package main

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
)

var ctx = context.Background()

// tiny measures just enough to see that everything works.
var tiny = plan{
	rounds: 1, bouts: 1, bout: 20 * time.Millisecond, slice: 20 * time.Millisecond, crowds: 1, requests: 50, calls: 100, scripts: 1, pairs: 20 * time.Millisecond,
	clients: 1, keys: 10_000, answers: 20, records: 100, weight: 1 << 20, profile: 500 * time.Millisecond,
}

func newTestBench(t *testing.T) *bench {
	b, err := newBench(t, tiny)
	require.NoError(t, err)
	return b
}

func TestEverySubjectAnswersAndReplays(t *testing.T) {
	b := newTestBench(t)
	require.Len(t, b.subjects, 50)
	for _, s := range b.subjects {
		t.Run(s.framework+" "+s.name, func(t *testing.T) {
			var payments shop
			served, err := b.serve(s, &payments, connections)
			require.NoError(t, err)
			defer served.stop()
			p := newPlayer(served, workloads[0], 0)
			require.NoError(t, p.post(p.fresh.at(1), false))
			first := string(p.response.Body())
			assert.Equal(t, mediaType, string(p.response.Header.ContentType()))
			require.NoError(t, p.post(p.fresh.at(2), false))
			assert.NotEqual(t, first, string(p.response.Body()), "another key")
			if s.rank == bare {
				require.NoError(t, p.post(p.fresh.at(1), false))
				assert.EqualValues(t, 3, payments.runs.Load(), "nothing guards it")
				return
			}
			require.NoError(t, p.post(p.fresh.at(1), true))
			assert.Equal(t, first, string(p.response.Body()))
			assert.Equal(t, mediaType, string(p.response.Header.ContentType()))
			assert.EqualValues(t, 2, payments.runs.Load())
		})
	}
}

func TestAShelfHasSoMuchRoomAndComparesRequests(t *testing.T) {
	s := newShelf(2 * (len("body") + len(marker) + len("true")))
	ask := func(key, body string) *held {
		keep, answer := s.begin(ctx, key, "POST", path, []byte(body))
		if keep != nil {
			keep(ctx, &held{status: http.StatusCreated, body: []byte("body")})
		}
		return answer
	}
	for _, key := range []string{"a", "b"} {
		assert.Nil(t, ask(key, "B"))
		assert.Equal(t, &held{http.StatusCreated, []string{marker, "true"}, []byte("body")}, ask(key, "B"))
		assert.Equal(t, http.StatusUnprocessableEntity, ask(key, "B'").status)
	}
	assert.NotNil(t, ask("a", "B"))
	assert.Nil(t, ask("c", "B"), "in b's place, which was asked for before a was")
	assert.NotNil(t, ask("a", "B"))
	assert.Nil(t, ask("b", "B"))
	s.recent.Front().Value.(*shelved).until = time.Now()
	assert.Nil(t, ask("b", "B"), "it is over")
}

func TestACrowdRunsTheHandlerOfThisLibraryOnce(t *testing.T) {
	b := newTestBench(t)
	for _, s := range b.subjects {
		if s.rank != onRedis && s.rank != onMemory && s.rank != bare {
			continue
		}
		rounds, err := b.crowd(s)
		require.NoError(t, err)
		require.Len(t, rounds, tiny.crowds)
		want := int64(1)
		if s.rank == bare {
			want = crowdSize
		}
		assert.Equal(t, want, rounds[0].runs, s.framework)
		assert.Equal(t, crowdSize, rounds[0].requests)
		assert.GreaterOrEqual(t, rounds[0].whole, crowdWork)
	}
}

func TestAnAnswerThatIsNotWhatItMustBeEndsTheMeasurement(t *testing.T) {
	b := newTestBench(t)
	for name, handler := range map[string]http.HandlerFunc{
		"a refusal":                func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
		"another length":           func(w http.ResponseWriter, _ *http.Request) { created(w, []byte("short")) },
		"a replay that is not one": func(w http.ResponseWriter, _ *http.Request) { replayed(w, make([]byte, answerBytes)) },
	} {
		s := &subject{framework: "http", name: name, marker: marker, mount: func(*bench, *shop) mounted { return mounted{std: handler} }}
		_, err := b.load(s, workloads[0])
		assert.Error(t, err, name)
	}
	refuses := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get(keyHeader), "shared") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		created(w, make([]byte, answerBytes))
	})
	_, err := b.crowd(&subject{mount: func(*bench, *shop) mounted { return mounted{std: refuses} }})
	assert.ErrorContains(t, err, "418")
}

func TestTheRawScriptsAndTheStoreReadEachOthersRecords(t *testing.T) {
	b := newTestBench(t)
	store := redisstore.New(b.client)
	claim := driver.Claim{Fingerprint: [32]byte{1}, Lease: 30 * time.Second, Retention: 24 * time.Hour}
	_, _ = rand.Read(claim.Key[:])
	_, _ = rand.Read(claim.Owner[:])
	entry, err := store.Begin(ctx, claim)
	require.NoError(t, err)
	names, err := b.client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.Len(t, names, 1)

	raw := &wire{key: names[0], owner: claim.Owner, fingerprint: claim.Fingerprint}
	word, fence, _, err := answer(raw.begin(ctx, b.client))
	require.NoError(t, err)
	assert.Equal(t, "claimed", word, "the same owner is known")
	assert.Equal(t, entry.Fence, fence)
	require.Equal(t, "ok", raw.complete(ctx, b.client, fence, []byte("outcome")).Val())

	claim.Owner[0]++
	entry, err = store.Begin(ctx, claim)
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, entry.State)
	assert.Equal(t, "outcome", string(entry.Outcome))
}

func TestEveryWayOfAClientClaimsAndCompletes(t *testing.T) {
	b := newTestBench(t)
	for _, w := range ways {
		pair, end, err := w.open(b)
		require.NoError(t, err)
		key := pairKey(7, time.Now())
		require.NoError(t, pair(ctx, key, []byte("outcome")), w.name)
		again := pair(ctx, key, []byte("outcome"))
		require.ErrorContains(t, again, "begin: completed", w.name)
		end()
	}
}

func TestOutcomesArePackedAsTheEngineDoes(t *testing.T) {
	for _, body := range []string{"", "body", jsonBody(512)} {
		assert.Equal(t, engineOutcome(body), packed(body))
	}
}

func TestEveryLayoutReplaysWhatItKeeps(t *testing.T) {
	b := newTestBench(t)
	for _, l := range layouts {
		require.NoError(t, b.client.FlushAll(ctx).Err())
		l.begin(ctx, b.client, "key")
		running := weigh(ctx, b.client, l.keys("key"))
		assert.Positive(t, running, l.name)
		l.complete(ctx, b.client, "key", jsonBody(4<<10))
		assert.Greater(t, weigh(ctx, b.client, l.keys("key")), running+4<<10, l.name)
	}
	word, _, _, err := answer(claimOf("new").begin(ctx, b.client))
	require.NoError(t, err)
	assert.Equal(t, "claimed", word)
	ownComplete(ctx, b.client, "new", "body")
	_, _, record, err := answer((&wire{key: claimOf("new").key, fingerprint: [32]byte{1}}).begin(ctx, b.client))
	require.NoError(t, err)
	assert.Equal(t, string(packed("body")), string(record[headBytes:]))
	for _, replay := range []func() ([]string, error){
		func() ([]string, error) { return hashAnswers(b) },
		func() ([]string, error) { return pairAnswers(b) },
	} {
		found, err := replay()
		require.NoError(t, err)
		assert.Equal(t, "completed", found[0])
		assert.Contains(t, found[1], "body")
	}
}

func hashAnswers(b *bench) ([]string, error) {
	hashOpen(ctx, b.client, "hash")
	hashClose(ctx, b.client, "hash", "body")
	return hashBegin.EvalSha(ctx, b.client, ownKeys("hash"), "another", strings.Repeat("f", 32), leaseMicros, retentionMillis).StringSlice()
}

func pairAnswers(b *bench) ([]string, error) {
	pairOpen(ctx, b.client, "pair")
	pairClose(ctx, b.client, "pair", "body")
	return pairBegin.EvalSha(ctx, b.client, pairKeys("pair"), "another", pairFingerprint, retentionMillis).StringSlice()
}

func TestServerTimeCountsEveryCallOrFails(t *testing.T) {
	b := newTestBench(t)
	usec, err := b.serverTime([]string{"set"}, 50, func(int) { b.client.Set(ctx, "k", strings.Repeat("x", 1<<16), 0) })
	require.NoError(t, err)
	assert.Positive(t, usec)
	_, err = b.serverTime([]string{"evalsha"}, 50, func(int) { b.client.EvalSha(ctx, strings.Repeat("0", 40), nil) })
	assert.ErrorContains(t, err, "went well", "a script that the server does not know")
	_, err = b.serverTime([]string{"set"}, 50, func(i int) { b.client.Set(ctx, "k", i, 0); b.client.Set(ctx, "k", i, 0) })
	assert.ErrorContains(t, err, "went well", "two calls for one")
}

func TestTheReportHasEverySectionAndSubject(t *testing.T) {
	b := newTestBench(t)
	b.subjects = append(b.subjects[:4], b.subjects[len(b.subjects)-5:]...) // the rest of them is above
	b.profile = filepath.Join(t.TempDir(), "cpu.out")
	out := t.TempDir()
	require.NoError(t, b.run(sections, out))
	report, err := os.ReadFile(filepath.Join(out, "PERFORMANCE.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"# Performance\n", "| date | ", "## End to end", "### All new keys", "### All replays", "### 90 % new, 10 % replays",
		"## One key, many clients", "## Allocations", "## Server time", "## Client", "## Cluster", "## Live keys", "## Memory",
		"### Compressed, sealed", "### Planned", "## Hottest lines",
	} {
		assert.Contains(t, "\n"+string(report), "\n"+want)
	}
	for _, s := range b.subjects {
		assert.Equal(t, 4, strings.Count(string(report), "\n| "+s.framework+" | "+s.name+" | "), s.name)
	}
	assert.NotContains(t, string(report), "NaN")
	assert.NotContains(t, string(report), "%!")
	assert.FileExists(t, b.profile)
	assert.FileExists(t, filepath.Join(out, "performance.svg"))
}

func TestAllocationsAreThoseOfTheLibraryAlone(t *testing.T) {
	b := newTestBench(t)
	require.NoError(t, measureAllocations(b))
	require.Len(t, b.results.allocations, len(frameworks))
	for _, a := range b.results.allocations {
		assert.Positive(t, a.bare.allocs, a.framework.name)
		assert.Greater(t, a.fresh.allocs, a.bare.allocs, a.framework.name)
		assert.Positive(t, a.replay.allocs, a.framework.name)
		assert.Less(t, a.replay.bytes, a.fresh.bytes, a.framework.name)
	}
}

func TestQuantiles(t *testing.T) {
	all := []int{5, 1, 4, 2, 3}
	assert.Equal(t, 3, median(all))
	assert.Equal(t, 5, quantile(all, 0.99))
	assert.Equal(t, 1, quantile(all, 0))
	assert.Equal(t, []int{5, 1, 4, 2, 3}, all, "left as it was")
	assert.Zero(t, median([]float64(nil)))
}

func TestRounds(t *testing.T) {
	assert.Equal(t, []int{3, 1, 2}, rotated([]int{1, 2, 3}, 5))
	base, rival := &subject{framework: "http", rank: onRedis}, &subject{framework: "http", beside: onRedis, reason: "it does less"}
	rounds := []round{
		{subject: base, perSecond: 100}, {subject: rival, perSecond: 50},
		{subject: rival, perSecond: 300}, {subject: base, perSecond: 200},
		{subject: base, perSecond: 10}, {subject: rival, perSecond: 20},
	}
	assert.InDelta(t, 1.5, ratio(rounds, rival, base), 1e-9, "the median of 0.5, 1.5 and 2")
	assert.Equal(t, "**faster, 1.50×**: it does less", remark(rounds, rival))
	assert.Equal(t, "0.50×", remark(rounds[:2], rival))
	assert.Empty(t, remark(rounds, base))
	assert.Zero(t, ratio(rounds, rival, nil))
}

func TestKeysAreDistinctAndAsLongAsAUUID(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"fresh-1", "fresh-11", "kept-1"} {
		k := newKeys(name)
		for range 20 {
			key := string(k.key())
			assert.Len(t, key, 36)
			assert.False(t, seen[key], key)
			seen[key] = true
		}
		assert.True(t, seen[string(k.at(20))])
	}
}

func TestTheMixHasItsShareOfReplays(t *testing.T) {
	for _, w := range workloads {
		replays := int64(0)
		for sent := range int64(30) {
			if w.isReplay(sent) {
				replays++
			}
		}
		assert.Equal(t, w.percent*30/100, replays, w.name)
	}
}

func TestThePlotIsWellFormed(t *testing.T) {
	svg := chart([]bar{{"this & that", true, []float64{0.5, 1.5}}, {"other", false, []float64{0.1, 0.2}}})
	decoder := xml.NewDecoder(strings.NewReader(svg))
	bars := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	assert.Equal(t, 1+4+4, bars, "background, legend, values")
	assert.Contains(t, svg, "this &amp; that")
	assert.NotContains(t, svg, "%!")
	assert.Contains(t, svg, `width="480.0"`, "the longest fills the plot")
}

func TestHotLines(t *testing.T) {
	top := "Showing nodes accounting for 1s\n      flat  flat%   sum%        cum   cum%\n" +
		"     0.16s 17.50% 17.50%      0.16s 17.50%  github.com/go-idem/idem/core/redisstore.(*Store).run /src/idem/core/redisstore/redisstore.go:130\n" +
		"     0.01s  1.20% 18.70%      0.01s  1.20%  github.com/go-idem/idem/adapters/http.HTTP.func1.1 /src/idem/adapters/http/http.go:41 (inline)\n" +
		"         0     0% 18.70%      0.90s 90.00%  github.com/go-idem/idem/core.(*Engine).Do /src/idem/core/engine.go:81\n"
	assert.Equal(t, []hotLine{
		{"17.50%", "core/redisstore.(*Store).run", "core/redisstore/redisstore.go:130"},
		{"1.20%", "adapters/http.HTTP.func1.1", "adapters/http/http.go:41"},
	}, hotLines([]byte(top)), "lines without a sample of their own are left out")
}

func TestSectionsAreChosenByName(t *testing.T) {
	all, err := choose("")
	require.NoError(t, err)
	assert.Len(t, all, len(sections))
	two, err := choose("memory,loads")
	require.NoError(t, err)
	assert.Equal(t, []string{"memory", "loads"}, each(two, func(s section) string { return s.name }))
	_, err = choose("loads,speed")
	assert.ErrorContains(t, err, `"speed"`)
}

func TestFiguresAreReadable(t *testing.T) {
	assert.Equal(t, "950 µs", micros(950*time.Microsecond))
	assert.Equal(t, "12.5 ms", micros(12500*time.Microsecond))
	assert.Equal(t, "512 B", kib(512))
	assert.Equal(t, "64 KiB", kib(64<<10))
	assert.Equal(t, "0.15×", times(0.15))
	assert.Empty(t, times(0))
}

func TestADuelIsHeldToItsAimAndToWhatCanBeHad(t *testing.T) {
	raw := &subject{framework: "http", name: "raw"}
	fight := func(name string, aim float64, rates ...float64) duel {
		d := duel{own: &subject{framework: "http", name: name}, beside: raw, workload: workloads[0], aim: aim}
		for _, rate := range rates {
			d.bouts = append(d.bouts, bout{round{perSecond: 1000 * rate, cpu: 30, serverCPU: 30}, round{perSecond: 1000, cpu: 20, serverCPU: 20}})
		}
		return d
	}
	r := results{duels: []duel{
		fight("fast", 0.9, 0.8, 0.9, 1, 1.1), fight("most", 0, 1.2), fight("slow", 1.3, 1.1), fight("later", 0.9, 0.89),
	}}
	table := r.duelTable(&tiny)
	for _, row := range []string{
		"| http | all new keys | fast | raw | 1.00× | 0.90× to 1.10× | 1.50× | 0.90×: kept |",
		"| http | all new keys | most | raw | 1.20× | 1.20× to 1.20× | 1.50× | what can be had |",
		"| http | all new keys | slow | raw | 1.10× | 1.10× to 1.10× | 1.50× | 1.30×: **not kept**; most had 1.20× |",
		"| http | all new keys | later | raw | 0.89× | 0.89× to 0.89× | 1.50× | 0.90×: **not kept** |",
	} {
		assert.Contains(t, table, row)
	}
	assert.Empty(t, (&results{}).duelTable(&tiny), "not measured")
}

func TestADuelChangesWhoIsFirst(t *testing.T) {
	b := newTestBench(t)
	var order []string
	subject := func(name string) *subject {
		return &subject{framework: "http", name: name, mount: func(_ *bench, s *shop) mounted { order = append(order, name); return mounted{std: s} }}
	}
	d := duel{own: subject("own"), beside: subject("beside"), workload: workloads[0]}
	for n := range 2 {
		require.NoError(t, d.fight(b, n))
		assert.Equal(t, "own", d.bouts[n].own.subject.name)
		assert.Equal(t, "beside", d.bouts[n].beside.subject.name)
	}
	assert.Equal(t, []string{"own", "beside", "beside", "own"}, order)
}

func TestAVerbIsHeldToItsAimBesideItsCallsAlone(t *testing.T) {
	of := func(begin, complete, replay float64) verbTimes {
		return verbTimes{[]float64{begin}, []float64{complete}, []float64{replay}}
	}
	r := results{scripts: []scriptTime{{size: 512, alone: of(20, 13.5, 9), busy: of(11.5, 10, 6)}}}
	for i, name := range []string{nothing, readHeader, readRecord, readClock, writeClaim, writeOutcome, "something else"} {
		r.blocks = append(r.blocks, block{name, []float64{float64(i + 1)}, []float64{float64(i+1) / 10}})
	}
	table := r.scriptVerdict()
	for _, row := range []string{
		"| begin of a new key | 11.5 | 11.5 | kept | 1.2 | 20.0 | **not kept** | 12.0 |",
		"| complete | 13.5 | 10.0 | kept | 1.0 | 13.5 | kept | 10.0 |",
		"| replay | 8.0 | 6.0 | kept | 0.4 | 9.0 | **not kept** | 4.0 |",
	} {
		assert.Contains(t, table, row)
	}
}
