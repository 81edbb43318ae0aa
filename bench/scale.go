package main

import (
	"fmt"
	"time"
)

// clusterTable also gives a node's own limit, by what one pair costs it.
func (r *results) clusterTable() string {
	if r.clusters == nil {
		return ""
	}
	t := newTable("nodes", "client", "pairs/s", "p50", "p99", "CPU, process", "CPU, servers", "in commands", "keys of a node",
		"pairs/s a node has room for")
	for _, c := range r.clusters {
		cost := c.median(func(r clusterRound) float64 { return r.serverCPU })
		t.row(fmt.Sprint(c.nodes), c.client,
			fmt.Sprintf("%.0f", c.median(func(r clusterRound) float64 { return r.perSecond })),
			micros(median(each(c.rounds, func(r clusterRound) time.Duration { return r.p50 }))),
			micros(median(each(c.rounds, func(r clusterRound) time.Duration { return r.p99 }))),
			number(c.median(func(r clusterRound) float64 { return r.cpu })), number(cost),
			number(c.median(func(r clusterRound) float64 { return r.commands })),
			fmt.Sprintf("%.1f %% to %.1f %%", 100*c.median(func(r clusterRound) float64 { return r.least }),
				100*c.median(func(r clusterRound) float64 { return r.most })),
			fmt.Sprintf("%.0f", 1e6/cost))
	}
	return fmt.Sprintf(clustersText, clusterLoad) + t.String() + capacityText
}

func (c clusterSpeed) median(figure func(clusterRound) float64) float64 {
	return median(each(c.rounds, figure))
}

func (r *results) liveTable() string {
	if r.live == nil {
		return ""
	}
	t := newTable("live keys", "begin, p50", "p99", "server µs", "complete, p50", "p99", "server µs",
		"replay, p50", "p99", "server µs")
	for _, l := range r.live {
		cells := []string{grouped(int64(l.keys))}
		for _, v := range []verbSpeed{l.begin, l.complete, l.replay} {
			cells = append(cells, micros(median(v.p50)), micros(median(v.p99)), number(median(v.usec)))
		}
		if l.leftOut != "" {
			cells = append(cells[:1], append([]string{l.leftOut}, make([]string, 8)...)...)
		}
		t.row(cells...)
	}
	return fmt.Sprintf(liveText, pipelined) + t.String() + r.liveRatios()
}

// liveRatios says what the fullest server takes of what the emptiest does.
func (r *results) liveRatios() string {
	var measured []liveSpeed
	for _, l := range r.live {
		if l.leftOut == "" {
			measured = append(measured, l)
		}
	}
	if len(measured) < 2 {
		return ""
	}
	first, last := measured[0], measured[len(measured)-1]
	ratios := func(v func(liveSpeed) verbSpeed) (server, client string) {
		few, many := v(first), v(last)
		return times(median(many.usec) / median(few.usec)), times(median(many.p50).Seconds() / median(few.p50).Seconds())
	}
	begin, beginWhole := ratios(func(l liveSpeed) verbSpeed { return l.begin })
	complete, completeWhole := ratios(func(l liveSpeed) verbSpeed { return l.complete })
	replay, replayWhole := ratios(func(l liveSpeed) verbSpeed { return l.replay })
	return fmt.Sprintf(liveRatiosText, grouped(int64(last.keys)), grouped(int64(first.keys)), begin, complete, replay,
		beginWhole, completeWhole, replayWhole)
}

func (r *results) formTable() string {
	if r.forms == nil {
		return ""
	}
	t := newTable("answer", "kept", "outcome", "of its plain form", "running", "completed",
		"of two keys with JSON", "without the lock", "body in base64")
	for _, w := range r.forms {
		t.row(kib(w.size), w.form, fmt.Sprintf("%.0f", w.outcome), times(w.outcome/w.packed), fmt.Sprintf("%.0f", w.running),
			fmt.Sprintf("%.0f", w.completed), times(w.ratio()), times(w.completed/w.result), times(w.completed/w.base64))
	}
	text := fmt.Sprintf(formsText, answersText, kib(dictionaryBytes)) + t.String() + boundsText
	for _, b := range bounds {
		text += b.explain(r.forms)
	}
	zstd, dictionary := r.formNamed(zstdForm, 512), r.formNamed(dictionaryForm, 512)
	return text + fmt.Sprintf(dictionaryText, kib(dictionaryBytes), times(dictionary.outcome/dictionary.packed),
		times(zstd.outcome/zstd.packed))
}

func (r *results) plannerTable() string {
	if r.planned == nil {
		return ""
	}
	f := r.filled
	t := newTable("load", "textbook: locks", "textbook: results", "what Redis takes for these two keys", "what this library takes")
	for _, p := range r.planned {
		t.row("`"+p.args+"`", size(p.locks), size(p.results), size(p.twoKeys), "**"+size(p.library)+"**")
	}
	return fmt.Sprintf(plannerText, grouped(f.records), grouped(f.measured), grouped(f.library), 100*f.difference(), f.args) +
		t.String()
}

// size is in powers of 1,000.
func size(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.2f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// grouped is 1,234,567.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
