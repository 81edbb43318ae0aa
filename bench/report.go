package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// write writes the report and its plot into dir.
func (b *bench) write(dir string) error {
	about, err := environment(b)
	if err != nil {
		return err
	}
	r := &b.results
	parts := []string{
		about, b.loadTables(), r.duelTable(&b.plan), b.crowdTable(), r.allocationTable(), r.scriptTables(), r.clientTables(), r.clusterTable(), r.liveTable(),
		r.memoryTable(), r.formTable(), r.plannerTable(), r.hotTable(),
	}
	file := filepath.Join(dir, "PERFORMANCE.md")
	if parts, err = b.amend(file, parts); err != nil {
		return err
	}
	if r.loads != nil {
		if err := os.WriteFile(filepath.Join(dir, "performance.svg"), []byte(chart(b.bars())), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(strings.Join(parts, "")), 0o644)
}

// table is a table in Markdown: a line of column names, then rows.
type table struct{ text strings.Builder }

func newTable(columns ...string) *table {
	var t table
	t.row(columns...)
	t.row(slices.Repeat([]string{"---"}, len(columns))...)
	return &t
}

func (t *table) row(cells ...string) { t.text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

func (t *table) String() string { return t.text.String() }

// of returns the rounds of one subject.
func of(rounds []round, s *subject) (own []round) {
	for _, r := range rounds {
		if r.subject == s {
			own = append(own, r)
		}
	}
	return own
}

// each returns one figure of every round.
func each[R, T any](rounds []R, figure func(R) T) (all []T) {
	for _, r := range rounds {
		all = append(all, figure(r))
	}
	return all
}

func perSecond(r round) float64 { return r.perSecond }

// ratio is the median over all rounds of how fast s was beside base in the same round; 0 without a base.
func ratio(rounds []round, s, base *subject) float64 {
	own, beside := of(rounds, s), of(rounds, base)
	var all []float64
	for i := range min(len(own), len(beside)) {
		all = append(all, own[i].perSecond/beside[i].perSecond)
	}
	return median(all)
}

// ranked returns the subject of a framework with a rank, nil without one.
func ranked(rounds []round, framework string, want rank) *subject {
	return find(each(rounds, func(r round) *subject { return r.subject }), framework, want)
}

// find is ranked among subjects.
func find(subjects []*subject, framework string, want rank) *subject {
	for _, s := range subjects {
		if want != none && s.framework == framework && s.rank == want {
			return s
		}
	}
	return nil
}

// ordered returns the subjects of rounds in the order of the report.
func (b *bench) ordered(rounds []round) (all []*subject) {
	for _, s := range b.subjects {
		if len(of(rounds, s)) > 0 {
			all = append(all, s)
		}
	}
	return all
}

func (b *bench) loadTables() string {
	if b.results.loads == nil {
		return ""
	}
	text := fmt.Sprintf(loadsText, connections, answerBytes)
	for _, w := range workloads {
		rounds := b.results.loads[w.name]
		t := newTable("framework", "subject", "requests/s", "of the bare handler", "of two raw script calls", "p50", "p99",
			"CPU, process", "CPU, server", "beside this library")
		for _, s := range b.ordered(rounds) {
			t.row(loadRow(rounds, s)...)
		}
		text += fmt.Sprintf("\n### %s%s\n\n%s", strings.ToUpper(w.name[:1]), w.name[1:], t)
	}
	return text + b.costTables()
}

func loadRow(rounds []round, s *subject) []string {
	own := of(rounds, s)
	return []string{
		s.framework, s.name,
		fmt.Sprintf("%.0f", median(each(own, perSecond))),
		times(ratio(rounds, s, ranked(rounds, s.framework, bare))),
		times(ratio(rounds, s, ranked(rounds, s.framework, yardstick))),
		micros(median(each(own, func(r round) time.Duration { return r.p50 }))),
		micros(median(each(own, func(r round) time.Duration { return r.p99 }))),
		number(median(each(own, func(r round) float64 { return r.cpu }))),
		number(median(each(own, func(r round) float64 { return r.serverCPU }))),
		remark(rounds, s),
	}
}

// remark says how a rival does beside this library, and why where it is faster.
func remark(rounds []round, s *subject) string {
	beside := ratio(rounds, s, ranked(rounds, s.framework, s.beside))
	switch {
	case beside == 0:
		return ""
	case beside > 1:
		return fmt.Sprintf("**faster, %s**: %s", times(beside), s.reason)
	}
	return times(beside)
}

// bars are what the plot shows: the share of the bare handler's speed.
func (b *bench) bars() (all []bar) {
	for _, s := range b.subjects {
		if s.rank == bare {
			continue
		}
		one := bar{label: s.framework + ": " + s.name, own: s.rank == onRedis || s.rank == onMemory}
		for _, w := range workloads[:2] {
			rounds := b.results.loads[w.name]
			one.values = append(one.values, ratio(rounds, s, ranked(rounds, s.framework, bare)))
		}
		all = append(all, one)
	}
	return all
}

func (b *bench) crowdTable() string {
	if b.results.crowds == nil {
		return ""
	}
	t := newTable("framework", "subject", "until all have their 201", "first half of them", "handler runs for a key", "most", "409 answers")
	for _, s := range b.ordered(b.results.crowds) {
		own := of(b.results.crowds, s)
		runs := each(own, func(r round) int64 { return r.runs })
		t.row(s.framework, s.name,
			micros(median(each(own, func(r round) time.Duration { return r.whole }))),
			micros(median(each(own, func(r round) time.Duration { return r.p50 }))),
			fmt.Sprint(median(runs)), fmt.Sprint(slices.Max(runs)),
			fmt.Sprint(median(each(own, func(r round) int { return r.conflicts }))))
	}
	return fmt.Sprintf(crowdsText, crowdSize, crowdWork, crowdRest) + t.String()
}

func (r *results) allocationTable() string {
	if r.allocations == nil {
		return ""
	}
	t := newTable("framework", "bare handler", "a new key adds", "budget", "bytes", "a replay, whole", "bytes")
	for _, a := range r.allocations {
		t.row(a.framework.name, number(a.bare.allocs), "**"+number(a.fresh.allocs-a.bare.allocs)+"**", number(a.framework.budget),
			fmt.Sprintf("%.0f", a.fresh.bytes-a.bare.bytes), number(a.replay.allocs), fmt.Sprintf("%.0f", a.replay.bytes))
	}
	return allocationsText + t.String()
}

func (r *results) scriptTables() string {
	if r.scripts == nil {
		return ""
	}
	t := newTable("answer", "layout", "begin, new", "complete", "replay", "begin, busy", "complete, busy", "replay, busy")
	for _, s := range r.scripts {
		t.row(append([]string{kib(s.size), s.layout}, append(s.alone.cells(), s.busy.cells()...)...)...)
	}
	costs := newTable("what a script does", "µs", "µs, busy")
	for _, c := range r.blocks {
		costs.row(c.name, fmt.Sprintf("%.2f", median(c.alone)), fmt.Sprintf("%.2f", median(c.busy)))
	}
	return fmt.Sprintf(scriptsText, pipelined) + t.String() + r.scriptVerdict() + blocksText + costs.String()
}

func (t *verbTimes) cells() []string {
	return []string{number(median(t.begin)), number(median(t.complete)), number(median(t.replay))}
}

func (r *results) clientTables() string {
	if r.clients == nil {
		return ""
	}
	t := newTable("goroutines", "client", "pairs/s", "p50", "p99", "CPU, process", "CPU, server")
	for _, c := range r.clients {
		t.row(fmt.Sprint(c.goroutines), c.name,
			fmt.Sprintf("%.0f", median(each(c.rounds, func(p pairs) float64 { return p.perSecond }))),
			micros(median(each(c.rounds, func(p pairs) time.Duration { return p.p50 }))),
			micros(median(each(c.rounds, func(p pairs) time.Duration { return p.p99 }))),
			number(median(each(c.rounds, func(p pairs) float64 { return p.cpu }))),
			number(median(each(c.rounds, func(p pairs) float64 { return p.serverCPU }))))
	}
	return clientsText + t.String() + fmt.Sprintf(batchesText, handful, pairsAim, pairCPUAim) + r.batchTable()
}

// What pairs in batches should have of those of redisstore alone, where many goroutines make them.
const (
	pairsAim   = 1.6
	pairCPUAim = 0.45
)

// batchTable says what batches are worth, and what else can be had, by medians of ratios to what was measured in the same round.
func (r *results) batchTable() string {
	t := newTable("goroutines", "client", "beside", "pairs/s", "p50", "CPU, process", "CPU, server")
	for _, n := range concurrencies {
		for _, both := range [][2]string{{batchedWay, plainWay}, {batchedWay, rawWay}, {gatheredWay, plainWay}, {handWay, plainWay}} {
			batches, beside := r.client(n, both[0]), r.client(n, both[1])
			if batches == nil || beside == nil {
				continue
			}
			t.row(fmt.Sprint(n), both[0], both[1],
				times(batches.of(beside, func(p pairs) float64 { return p.perSecond })),
				times(batches.of(beside, func(p pairs) float64 { return p.p50.Seconds() })),
				times(batches.of(beside, func(p pairs) float64 { return p.cpu })),
				times(batches.of(beside, func(p pairs) float64 { return p.serverCPU })))
		}
	}
	return t.String()
}

// client returns what was found for so many goroutines with a client, nil for nothing.
func (r *results) client(goroutines int, name string) *clientSpeed {
	for i, c := range r.clients {
		if c.goroutines == goroutines && c.name == name {
			return &r.clients[i]
		}
	}
	return nil
}

// of is a figure beside that of another client in the same rounds.
func (c *clientSpeed) of(beside *clientSpeed, figure func(pairs) float64) float64 {
	var all []float64
	for i := range min(len(c.rounds), len(beside.rounds)) {
		all = append(all, figure(c.rounds[i])/figure(beside.rounds[i]))
	}
	return median(all)
}

func (r *results) memoryTable() string {
	if r.weights == nil {
		return ""
	}
	t := newTable("answer", "layout", "running", "completed", "records", "running, of many", "completed, of many")
	for _, w := range r.weights {
		t.row(kib(w.size), w.layout, fmt.Sprint(w.running), fmt.Sprint(w.completed), fmt.Sprint(w.records),
			fmt.Sprintf("%.0f", w.runningAll), fmt.Sprintf("%.0f", w.completeds))
	}
	return memoryText + t.String()
}

func (r *results) hotTable() string {
	if r.hottest == nil {
		return ""
	}
	said := map[string]bool{}
	t := newTable("share", "line", "in", "what it is, and what was done about it")
	for _, h := range r.hottest {
		text := lineText(h.function)
		if said[text] {
			text = "as above"
		}
		t.row(h.share, h.line, "`"+h.function+"`", text)
		said[text] = text != "—"
	}
	return hotText + t.String()
}

// times is a ratio, as a factor.
func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f×", ratio)
}

func number(f float64) string { return fmt.Sprintf("%.1f", f) }

func micros(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

func kib(size int) string {
	if size < 1<<10 {
		return fmt.Sprintf("%d B", size)
	}
	return fmt.Sprintf("%d KiB", size>>10)
}
