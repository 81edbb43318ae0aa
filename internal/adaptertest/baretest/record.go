package baretest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the exact differences into testdata")

// kind says which two responses were compared.
type kind string

const (
	ofFirst  kind = "first"  // the bare route's response, and the guarded route's first one
	ofReplay kind = "replay" // the first response under a key, and its replay
	ofRerun  kind = "rerun"  // the first response under a key, and that of a second run
)

// record is the file that has the exact differences of one framework. A file has blocks: the kind of the comparison and the
// parts of the response that differ, each in a line, and then, indented, the comparisons that differ in these parts and no others.
type record struct {
	file     string
	handlers []string          // the names of all handlers, for which a file may have "*"
	want     map[string]string // the text of a block by its kind and comparison

	mu  sync.Mutex
	got map[string]string
}

// readRecord reads the file of one framework.
func readRecord(t *testing.T, f Framework) *record {
	t.Helper()
	r := &record{
		file: filepath.Join("testdata", "differences", f.Name+".txt"), handlers: f.Handlers,
		want: map[string]string{}, got: map[string]string{},
	}
	content, err := os.ReadFile(r.file)
	if *update && os.IsNotExist(err) {
		return r
	}
	require.NoError(t, err)
	for block := range strings.SplitSeq(strings.TrimSuffix(string(content), "\n"), "\n\n") {
		text, comparisons, ok := strings.Cut(block, "\n\t")
		require.True(t, ok, "%s: %s", r.file, block)
		of, _, _ := strings.Cut(text, "\n")
		for line := range strings.SplitSeq(comparisons, "\n\t") {
			where, handlers, _ := strings.Cut(line, ": ")
			named := strings.Split(handlers, "; ")
			if handlers == "*" {
				named = f.Handlers
			}
			for _, handler := range named {
				r.want[of+" "+where+"/"+handler] = text
			}
		}
	}
	return r
}

// check compares the differences of one comparison with the file, and asks for a reason for each of them.
func (r *record) check(t *testing.T, of kind, c comparison, a, b reply, parts []string) {
	t.Helper()
	key, text := string(of)+" "+c.String(), ""
	if len(parts) > 0 || of == ofRerun {
		text = strings.Join(append([]string{string(of)}, parts...), "\n")
		r.mu.Lock()
		r.got[key] = text
		r.mu.Unlock()
	}
	for _, part := range unexplained(of, c.String(), parts) {
		t.Errorf("%s differs without a reason among those of the module: %s", key, part)
	}
	if !*update && text != r.want[key] {
		t.Errorf("%s\n--- differs by\n%s\n--- should differ by\n%s\n--- one\n%s\n--- other\n%s", key, text, r.want[key], a, b)
	}
}

// finish checks after a whole run that each entry of the file was met, or writes the file.
func (r *record) finish(t *testing.T) {
	if *update && !t.Failed() {
		require.NoError(t, os.MkdirAll(filepath.Dir(r.file), 0o755))
		require.NoError(t, os.WriteFile(r.file, []byte(r.text()), 0o644))
		return
	}
	for key := range r.want {
		assert.Contains(t, r.got, key, "%s has an entry that no comparison met", r.file)
	}
}

// text returns what was met in the form of the file.
func (r *record) text() string {
	blocks := map[string]map[string][]string{} // by the text of the block, and by where the handlers ran
	for key, text := range r.got {
		_, name, _ := strings.Cut(key, " ")
		parts := strings.SplitN(name, "/", 5)
		place, handler := strings.Join(parts[:4], "/"), parts[4]
		if blocks[text] == nil {
			blocks[text] = map[string][]string{}
		}
		blocks[text][place] = append(blocks[text][place], handler)
	}
	var all []string
	for text, places := range blocks {
		for _, place := range slices.Sorted(maps.Keys(places)) {
			slices.Sort(places[place])
			handlers := strings.Join(places[place], "; ")
			if len(places[place]) == len(r.handlers) {
				handlers = "*"
			}
			text += fmt.Sprintf("\n\t%s: %s", place, handlers)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, "\n\n") + "\n"
}

// Reason says why some comparisons may differ, and in which parts of the response.
type Reason struct {
	of    kind
	where string // a regular expression for comparison.String
	parts string // a regular expression for the parts that differ; "" stands for a rerun, in which no part differs
	why   string

	name, part *regexp.Regexp // the expressions where and parts, compiled
	isUsed     atomic.Bool    // it has explained a difference
}

// AllParts is an expression for the parts of a response that comes in place of another, or of none.
const AllParts = `status|field .*|end|reused|body`

// First is a reason for differences of a guarded route's first response from the bare route's. where is a regular expression for
// the comparison: framework, chain, place, shape and handler with slashes between them. parts is one for the parts that differ.
func First(where, parts, why string) *Reason { return newReason(ofFirst, where, parts, why) }

// Replay is a reason for differences of a replay from the first response under its key.
func Replay(where, parts, why string) *Reason { return newReason(ofReplay, where, parts, why) }

// Rerun is a reason for a handler that runs again under its key, and gives the first response again.
func Rerun(where, why string) *Reason { return newReason(ofRerun, where, "", why) }

// newReason returns a reason with its expressions compiled.
func newReason(of kind, where, parts, why string) *Reason {
	return &Reason{of: of, where: where, parts: parts, why: why, name: whole(where), part: whole(parts)}
}

// whole returns an expression that matches a whole text.
func whole(expression string) *regexp.Regexp { return regexp.MustCompile("^(?:" + expression + ")$") }

// unexplained returns those parts of a delta for which there is no reason. Reruns need a reason although no part differs.
func unexplained(of kind, name string, parts []string) (left []string) {
	if of == ofRerun && !isExplained(of, name, "") {
		left = append(left, "the handler ran again")
	}
	for _, p := range parts {
		if !isExplained(of, name, partOf(p)) {
			left = append(left, p)
		}
	}
	return left
}

func isExplained(of kind, name, part string) (found bool) {
	for _, r := range reasons {
		if r.of == of && r.part.MatchString(part) && r.name.MatchString(name) {
			r.isUsed.Store(true)
			found = true
		}
	}
	return found
}

// wholeRuns counts the frameworks of which every comparison was made.
var wholeRuns atomic.Int64

// reasons has every reason of the module under test. Main sets it.
var reasons []*Reason

// Main runs the tests of a module that compares so many frameworks. After a run of everything it fails if one of the reasons
// explains nothing.
func Main(m *testing.M, frameworks int64, all []*Reason) {
	flag.Parse()
	reasons = all
	code := m.Run()
	if code == 0 && wholeRuns.Load() == frameworks {
		for _, r := range reasons {
			if !r.isUsed.Load() {
				fmt.Printf("a reason explains nothing: %s, %s, %s (%s)\n", r.of, r.where, r.parts, r.why)
				code = 1
			}
		}
	}
	os.Exit(code)
}
