package main

import (
	"fmt"
	"strings"
)

// bound is how much a form may take of what two keys with JSON take, from a size of answers on.
type bound struct {
	form  string
	from  int
	limit float64
}

var bounds = []bound{{plainForm, 0, 0.72}, {zstdForm, 1 << 10, 0.5}, {dictionaryForm, 1 << 10, 0.5}}

// explain says where the bound is kept, and what makes up the ratio where it is not.
func (b bound) explain(weights []formWeight) string {
	var kept, missed []string
	for _, w := range weights {
		switch {
		case w.form != b.form || w.size < b.from:
		case w.ratio() <= b.limit:
			kept = append(kept, fmt.Sprintf("%s (%s)", kib(w.size), times(w.ratio())))
		default:
			missed = append(missed, fmt.Sprintf("%s, which is %s: %s", kib(w.size), times(w.ratio()), w.makeup()))
		}
	}
	text := fmt.Sprintf("- **%s, at most %s**", b.form, times(b.limit))
	if len(kept) > 0 {
		text += ", kept at " + strings.Join(kept, ", ")
	}
	for _, m := range missed {
		text += ";\n  **not** at " + m
	}
	return text + ".\n"
}

// makeup takes the ratio apart.
func (w formWeight) makeup() string {
	of := func(bytes float64) string { return times(bytes / w.pair) }
	if w.outcome < w.packed { // the body is in it somewhere
		return fmt.Sprintf("%s are the outcome, %s the record's header, Redis's own and what jemalloc rounds up",
			of(w.outcome), of(w.completed-w.outcome))
	}
	body := float64(w.size)
	return fmt.Sprintf("%s are the body, %s header lines and the record's header, %s Redis's own and what jemalloc rounds up",
		of(body), of(w.outcome-body+headBytes), of(w.completed-w.outcome-headBytes))
}

// scriptAims are how many µs a verb should take the server at most, with an answer of 512 bytes, and what it can not do without.
var scriptAims = []struct {
	verb   string
	most   float64
	cost   func(*verbTimes) []float64
	blocks []string
}{
	{"begin of a new key", 11.5, func(t *verbTimes) []float64 { return t.begin }, []string{nothing, readHeader, readClock, writeClaim}},
	{"complete", 13.5, func(t *verbTimes) []float64 { return t.complete }, []string{nothing, readRecord, writeOutcome}},
	{"replay", 8, func(t *verbTimes) []float64 { return t.replay }, []string{nothing, readRecord}},
}

// scriptVerdict holds the verbs to their aims.
func (r *results) scriptVerdict() string {
	shortest := &r.scripts[0]
	t := newTable("verb, "+kib(shortest.size), "at most", "busy", "", "its calls alone", "asleep", "", "its calls alone")
	for _, aim := range scriptAims {
		busy, alone := median(aim.cost(&shortest.busy)), median(aim.cost(&shortest.alone))
		t.row(aim.verb, number(aim.most),
			number(busy), keptOrNot(busy, aim.most), number(r.sum(aim.blocks, func(b *block) []float64 { return b.busy })),
			number(alone), keptOrNot(alone, aim.most), number(r.sum(aim.blocks, func(b *block) []float64 { return b.alone })))
	}
	return verdictText + t.String()
}

func keptOrNot(figure, most float64) string {
	if figure <= most {
		return "kept"
	}
	return "**not kept**"
}
