package model

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

var update = flag.Bool("update", false, "write docs/states.md anew from the model")

const statesFile = "../../docs/states.md"

// phases is what a record looks like from far away, in the order of the documentation.
var phases = []struct{ name, id string }{
	{"absent", "[*]"},
	{"STARTED, lease running", "running"},
	{"STARTED, lease over", "over"},
	{"COMPLETED", "COMPLETED"},
	{"FAILED", "FAILED"},
	{"FAILED, free", "free"},
}

func (s situation) phase() string {
	switch r := s.record; {
	case r.State == Absent:
		return "absent"
	case r.State == Started && r.LeaseEnd > epoch:
		return "STARTED, lease running"
	case r.State == Started:
		return "STARTED, lease over"
	case r.Free:
		return "FAILED, free"
	default:
		return string(r.State)
	}
}

// rows is who may send what to a record, in the order of the documentation.
var rows = []string{
	"begin, the same claim again", "begin, a claim that is noted", "begin, the same request", "begin, the same request, NoTakeover",
	"begin, the same request, NoTakeover, but TakeoverFence of this claim", "begin, another request",
	"extend, the last claim", "complete, the last claim", "complete, the last claim, another outcome", "fail, the last claim",
	"fail with NoEffects, the last claim",
	"fail with NotRun, the last claim", "fail without a fence, any other claim", "extend, complete or fail, any other claim",
}

// row is the line of the table that a move belongs to.
func (s situation) row(m move) string {
	call := m.call(s.witness.fence)
	r := s.record
	own := r.State != Absent && call.Claim.Owner == r.Owner
	switch {
	case m.verb == Begin:
		return s.beginRow(m, call.Claim, own)
	case !own && m.verb == Fail && call.Claim.Fence == 0:
		return "fail without a fence, any other claim"
	case !own || (call.Claim.Fence != 0 || m.verb != Fail) && call.Claim.Fence != r.Fence:
		return "extend, complete or fail, any other claim"
	case m.verb == Complete && r.State == Completed && m.outcome != r.Outcome:
		return "complete, the last claim, another outcome"
	case m.notRun:
		return "fail with NotRun, the last claim"
	case m.noEffects:
		return "fail with NoEffects, the last claim"
	}
	return string(m.verb) + ", the last claim"
}

// beginRow is the line of the table that a begin belongs to.
func (s situation) beginRow(m move, c driver.Claim, own bool) string {
	r := s.record
	switch {
	case own:
		return "begin, the same claim again"
	case isNoted(r.Noted, c.Owner):
		return "begin, a claim that is noted"
	case r.State != Absent && c.Fingerprint != r.Fingerprint:
		return "begin, another request"
	case m.noTakeover && m.takeoverFence == newest:
		return "begin, the same request, NoTakeover, but TakeoverFence of this claim"
	case m.noTakeover:
		return "begin, the same request, NoTakeover"
	}
	return "begin, the same request"
}

// atlas is the walk, seen from far away.
type atlas struct {
	cells map[[2]string][]string // asker and phase: answers
	edges map[[2]string][]string // phase and phase: labels
}

func draw() *atlas {
	a := &atlas{map[[2]string][]string{}, map[[2]string][]string{}}
	w := rightWalk()
	for _, p := range w.places {
		for _, m := range moves {
			next, _ := p.after(Step, m)
			a.add(p.situation, m, next)
		}
	}
	return a
}

func (a *atlas) add(from situation, m move, to situation) {
	edge := [2]string{from.phase(), to.phase()}
	if m.verb == "" {
		if edge[0] != edge[1] {
			label := "the lease ends"
			if edge[1] == "absent" {
				label = "the retention ends"
			}
			insert(a.edges, edge, label)
		}
		return
	}
	record, answer := Step(from.record, m.call(from.witness.fence), epoch)
	cell, changes := words(answer), record != from.record
	if noted := record.Noted != from.record.Noted && record.Owner == from.record.Owner && record.State == from.record.State; noted {
		cell += ", noted"
	} else if changes {
		insert(a.edges, edge, edgeLabel(m, edge))
	}
	if changes && edge[0] != edge[1] {
		cell += " → " + edge[1]
	}
	insert(a.cells, [2]string{from.row(m), edge[0]}, cell)
}

func edgeLabel(m move, edge [2]string) string {
	switch {
	case m.verb == Begin && edge[0] == "STARTED, lease over":
		return "begin, takeover, attempt + 1"
	case m.verb == Begin && edge[0] != "absent":
		return "begin, attempt + 1"
	case edge[0] == "absent" && m.verb == Fail:
		return "fail without a fence"
	case m.notRun:
		return "fail with NotRun, attempt - 1"
	case edge[1] == "FAILED, free":
		return "fail with NoEffects"
	}
	return string(m.verb)
}

func insert(m map[[2]string][]string, key [2]string, value string) {
	if !slices.Contains(m[key], value) {
		m[key] = append(m[key], value)
		slices.Sort(m[key])
	}
}

func words(a Answer) string {
	switch {
	case errors.Is(a.Err, driver.ErrGone):
		return "gone"
	case errors.Is(a.Err, driver.ErrLost):
		return "lost"
	case a.Entry.State == "":
		return "ok"
	}
	return string(a.Entry.State)
}

const statesIntro = `# States

A test generates this page from the model of the state machine ([internal/model](../internal/model/model.go)). The tests of the
model try all that can happen to one key with two owners of each of two requests: %d situations, and %d calls in each. Every call
may arrive at any time and any number of times, so lost responses, retries and late deliveries are among them. The memory store
and the scripts return the same. To write this page anew:

` + "```console\n$ go test ./internal/model -run TestTheDocumentedStatesAreTheModels -update\n```\n\n"

func (a *atlas) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, statesIntro, len(rightWalk().places), len(moves)-1)
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, p := range phases[1:] {
		if p.name != p.id {
			fmt.Fprintf(&b, "    state %q as %s\n", p.name, p.id)
		}
	}
	for _, from := range phases {
		for _, to := range phases {
			if labels := a.edges[[2]string{from.name, to.name}]; labels != nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", from.id, to.id, strings.Join(labels, " / "))
			}
		}
	}
	b.WriteString("```\n\nWhat a call returns in each state, and after an arrow the new state of the record. Without an arrow the state stays the same." +
		"\n\n| call |")
	for _, p := range phases {
		fmt.Fprintf(&b, " %s |", p.name)
	}
	b.WriteString("\n|" + strings.Repeat(" --- |", len(phases)+1) + "\n")
	for _, asker := range rows {
		fmt.Fprintf(&b, "| %s |", asker)
		for _, p := range phases {
			fmt.Fprintf(&b, " %s |", strings.Join(a.cells[[2]string{asker, p.name}], "; "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nA fail with NoEffects or NotRun leaves a FAILED record free for another request only if no earlier run of its request " +
		"vanished or failed without NoEffects.\n")
	b.WriteString("A fail without a fence withdraws a begin without a response. An absent record becomes FAILED and free, for one lease. " +
		"The record of another claim notes the owner that has withdrawn; a free record then lives for at least one more lease. A claim of a FAILED record notes the owner of that one, too. " +
		"A record notes the last 16 owners.\n")
	b.WriteString("An extend or complete without a fence is nobody's, so it is lost although the record is absent.\n")
	return b.String()
}

func TestTheDocumentedStatesAreTheModels(t *testing.T) {
	page := draw().page()
	if *update {
		require.NoError(t, os.WriteFile(statesFile, []byte(page), 0o644))
	}
	documented, err := os.ReadFile(statesFile)
	require.NoError(t, err)
	assert.Equal(t, page, string(documented), "docs/states.md is stale: run this test with -update")
}
