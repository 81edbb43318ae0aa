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

// scriptAims are how many µs a verb should take the server at most, with an answer of 512 bytes.
var scriptAims = []struct {
	verb string
	most float64
	cost func(*verbTimes) []float64
}{
	{"begin of a new key", 11.5, func(t *verbTimes) []float64 { return t.begin }},
	{"complete", 13.5, func(t *verbTimes) []float64 { return t.complete }},
	{"replay", 8, func(t *verbTimes) []float64 { return t.replay }},
}

// explain holds the verbs to their aims.
func (t *scriptTime) explain() string {
	var all []string
	for _, aim := range scriptAims {
		alone, busy := median(aim.cost(&t.alone)), median(aim.cost(&t.busy))
		all = append(all, fmt.Sprintf("a %s should take at most %.1f µs, and takes %.1f on a busy server (%s) and %.1f on one that was asleep (%s)",
			aim.verb, aim.most, busy, keptOrNot(busy, aim.most), alone, keptOrNot(alone, aim.most)))
	}
	return fmt.Sprintf("\nWith %s %s.\n", kib(t.size), strings.Join(all, ";\n"))
}

func keptOrNot(figure, most float64) string {
	if figure <= most {
		return "kept"
	}
	return "not kept"
}
