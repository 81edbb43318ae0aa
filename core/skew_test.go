package core_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// SKW-01: what a deploy that changes an option means for keys that live.

var update = flag.Bool("update", false, "write docs/deploys.md anew")

const deploysFile = "../docs/deploys.md"

// deploys are changes besides those that options returns, or instead of these: they show more of what an option may do to a live
// key, or how to change it safely. Each name begins with the field.
var deploys = map[string]func(*core.Config){
	"Scope":                                  func(c *core.Config) { c.Scope = otherScope },
	"Secret, the old one in PreviousSecrets": secrets(oneSecret, ""),
	"Key.PerRoute, with PerRouteChanged":     func(c *core.Config) { c.Key.PerRoute, c.Key.PerRouteChanged = true, true },
	"Key.Header, the old one in Aliases":     renamedHeader,
	"Key.Aliases, clients use one":           func(c *core.Config) { c.Key.Aliases = []string{"X-Alias"} },
	"Key.SentAt":                             func(c *core.Config) { c.Key.MaxAge, c.Key.SentAt = time.Minute, sentNow },
	"Key.Methods, without the one":           func(c *core.Config) { c.Key.Methods = []string{"PUT"} },
	"Key.Accept, another form": func(c *core.Config) {
		c.Key.Accept = func(key string) (string, bool) { return strings.ToLower(key), true }
	},
	"Key.MinLength, longer than the key":  func(c *core.Config) { c.Key.MinLength = 100 },
	"Key.MaxLength, shorter than the key": func(c *core.Config) { c.Key.MaxLength = 2 },
	"Key.MaxAge":                          func(c *core.Config) { c.Key.MaxAge = time.Minute },
	"Fingerprint.Headers, with Previous": func(c *core.Config) {
		c.Fingerprint = core.FingerprintConfig{Headers: []string{"Accept"}, Previous: &core.FingerprintConfig{}}
	},
	"Fingerprint.Func, with Previous": func(c *core.Config) {
		c.Fingerprint = core.FingerprintConfig{Func: v1, Previous: &core.FingerprintConfig{}}
	},
	"Keep.Codecs, one that seals":               func(c *core.Config) { c.Keep.Codecs = []driver.Codec{marking{}} },
	"Keep.MaxBody, less than the body":          func(c *core.Config) { c.Keep.MaxBody, c.Keep.Blobs, c.Keep.BlobsFrom = 1, nil, 0 },
	"Keep.OmitBody, of every response":          func(c *core.Config) { c.Keep.OmitBody = func(*core.Response) bool { return true } },
	"Keep.OmittedStatus, and a blob is lost":    func(c *core.Config) { c.Keep.OmittedStatus, c.Keep.Blobs, c.Keep.BlobsFrom = 413, nil, 0 },
	"Keep.OnReplay, which refuses every caller": func(c *core.Config) { c.Keep.OnReplay = sendsNothing },
	"Keep.Blobs, the first of two deploys":      hardlyBlobs,
	"Keep.Blobs, none":                          func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = nil, 0 },
	"Keep.LateRetry, none":                      func(c *core.Config) { c.Keep.LateRetry = 0 },
	"Lease.OnUnknown, none":                     func(c *core.Config) { c.Lease.OnUnknown = nil },
	"Limits.RequestBody, less than the body":    func(c *core.Config) { c.Limits.RequestBody = 1 },
	"Limits.Quota, which refuses every caller":  func(c *core.Config) { c.Limits.Quota = refusesAll },
}

func otherScope(context.Context, *core.Request) string { return "other" }

func renamedHeader(c *core.Config) {
	c.Key.Header, c.Key.Aliases = "X-Key", []string{"Idempotency-Key"}
}

// hardlyBlobs lets a process read blobs, and store none but of the longest bodies.
func hardlyBlobs(c *core.Config) {
	if c.Keep.Blobs == nil {
		c.Keep.Blobs = sharedShelf
	}
	c.Keep.BlobsFrom = 1<<20 - 1
}

func sendsNothing(context.Context, *core.Request, *core.Response) (*core.Response, error) {
	return nil, nil
}

func refusesAll(context.Context, string, *core.Request) bool { return false }

// marking is a codec that reads nothing but what it made.
type marking struct{}

func (marking) Encode(_ [32]byte, outcome []byte) []byte { return append([]byte{0xFF}, outcome...) }

func (marking) Decode(_ [32]byte, kept []byte) ([]byte, error) {
	if kept[0] != 0xFF {
		return nil, driver.ErrUnreadable
	}
	return kept[1:], nil
}

// skewed is a request in which every option finds something. Its key is in the header field of this name.
func skewed(keyHeader string) core.Request {
	return changed(query("b=2&a=1"), body(`{"b": 1, "a": 2}`, nil), func(r *core.Request) {
		lines("Content-Type", "application/json", "Accept", "text/csv")(r)
		others := r.Header
		r.Header = func(name string) []string {
			if name == keyHeader {
				return []string{"Key"}
			}
			if name == "Idempotency-Key" {
				return nil
			}
			return others(name)
		}
	})
}

// created is the response of a run in which every option finds something.
func created(context.Context) (*core.Response, error) {
	header := []core.Field{line("Content-Type", "text/plain"), line("X-A", "a"), line("Set-Cookie", "a=b")}
	return &core.Response{Status: 201, Header: header, Body: []byte(strings.Repeat("created ", 200))}, nil
}

// newProcess is the fixture of a process of its own: of processes on one store, none knows the memory of another.
func newProcess(t *testing.T, store driver.Store, changes ...func(*core.Config)) *fixture {
	f := newFixture(t, func(c *core.Config) {
		c.Store = store
		for _, change := range changes {
			change(c)
		}
		c.Store = storetest.NewFaulty(c.Store)
	})
	f.store = f.Config().Store.(*storetest.Faulty)
	return f
}

// skew is two processes, of which the first has left a record that the second one meets.
type skew struct {
	first, second *fixture
	request       core.Request
	child         [2]string // the child key of each run
}

// leave sends the request to the first process, which runs h.
func (s *skew) leave(h handler) {
	result, err := s.first.do(ctx, s.request, func(ctx context.Context) (*core.Response, error) {
		s.child[0] = core.ChildKey(ctx, "charge")
		return h(ctx)
	})
	require.NoError(s.first.tb, err)
	require.Empty(s.first.tb, result.Problem)
}

// meet sends the request to the second process and says what becomes of it.
func (s *skew) meet() string { return s.meetWith(created) }

func (s *skew) meetWith(h handler) string {
	verdict, _ := s.second.judge(s.request, func(ctx context.Context) (*core.Response, error) {
		s.child[1] = core.ChildKey(ctx, "charge")
		return h(ctx)
	})
	return verdict
}

// judge sends a request and says in words what becomes of it.
func (f *fixture) judge(r core.Request, h handler) (verdict string, result core.Result) {
	var run core.Run
	result, err := f.do(ctx, r, func(ctx context.Context) (*core.Response, error) {
		run = f.seen(ctx)
		return h(ctx)
	})
	switch {
	case err != nil:
		verdict = "runs again, and the step returns an error"
	case result.Bypassed:
		verdict = "runs without a key"
	case result.Problem != "":
		verdict = fmt.Sprint(result.Response.Status, " `", result.Problem, "`")
	case result.Replayed:
		verdict = replayed(result.Response)
	case run.Unprotected:
		verdict = "runs unprotected"
	case run.Takeover:
		verdict = "takes over"
	case run.Attempt > 1:
		verdict = "runs again"
	default:
		verdict = "runs as new"
	}
	return verdict, result
}

// What a replay may lack.
const (
	withoutBody = " without body"
	otherStatus = " and with another status"
	otherFields = " with other header fields"
)

// replayed says in what a replay differs from what a run with the default options leaves.
func replayed(r *core.Response) string {
	text := "replay"
	if len(values(r, "Idempotent-Body")) > 0 {
		text += withoutBody
		if r.Status != 201 {
			text += otherStatus
		}
	}
	if !slices.Equal(fieldsOf(r), []string{"Content-Length", "Content-Type", "Idempotent-Replayed", "X-A"}) {
		text += otherFields
	}
	return text
}

// fieldsOf returns the names of the header fields of a response, but for that which says that the body is omitted.
func fieldsOf(r *core.Response) (names []string) {
	for _, field := range slices.Concat(r.Header, r.Added) {
		if field.Name != "Idempotent-Body" {
			names = append(names, field.Name)
		}
	}
	slices.Sort(names)
	return names
}

// skewState is a state of the record at the time when the second process meets it.
type skewState struct {
	name     string
	happened string
	both     func(*core.Config) // what both processes have set
	meet     func(*skew) string
	isSecond func(verdict string) bool // says whether the verdict of meet is a second run that no process wants
}

// runs reports whether a verdict is that the handler ran.
func runs(verdict string) bool { return strings.Contains(verdict, "runs") || verdict == "takes over" }

func never(string) bool { return false }

func nothing(*core.Config) {}

var skewStates = []skewState{
	{"absent", "the key is new", nothing, (*skew).meet, never},
	{"in progress", "the handler runs", nothing, func(s *skew) string {
		running := s.first.hold(ctx, s.request, created)
		defer running.finish()
		return s.meet()
	}, runs},
	{"lease over", "the process died while the handler ran", nothing, (*skew).meetVanished, func(verdict string) bool {
		return runs(verdict) && verdict != "takes over"
	}},
	{"unknown", "the same, with `Lease.OnUnknown`", onUnknown(core.RefuseUnknown), (*skew).meetVanished, runs},
	{"failed", "the handler returned 503", nothing, func(s *skew) string {
		s.leave(answers(503, "failed", line("Content-Type", "text/plain"), line("X-A", "a")))
		return s.meet()
	}, never},
	{"released", "the handler returned 401", nothing, func(s *skew) string {
		s.leave(answers(401, "who?", line("Content-Type", "text/plain"), line("X-A", "a")))
		return s.meet()
	}, never},
	{"failed after a step", "the handler did a step and returned 503", nothing, (*skew).meetStep, func(verdict string) bool {
		return strings.Contains(verdict, "repeats the step")
	}},
	{"stored", "the handler returned 201", nothing, func(s *skew) string {
		s.leave(created)
		return s.meet()
	}, runs},
	{"stored in a blob", "the same, with `Keep.Blobs`", blobs, func(s *skew) string {
		s.leave(created)
		return s.meet()
	}, runs},
	{"pending", "the same, but the store has not responded to the process yet", blobs, func(s *skew) string {
		s.first.store.Inject("complete", storetest.Before, 10)
		s.leave(created)
		before := s.meet()
		s.first.close()
		if after := s.meet(); after != before {
			return before + ", then " + after
		}
		return before
	}, runs},
	{"expired", "the retention is over, with `Keep.LateRetry`", retriesLate, func(s *skew) string {
		s.leave(created)
		time.Sleep(retention + time.Second/2)
		return s.meet()
	}, never},
	{"store unavailable", "the handler returned 201, and then the store does not respond", nothing, func(s *skew) string {
		s.leave(created)
		s.second.store.Inject("begin", storetest.Before, always)
		return s.meet()
	}, runs},
	{"message done", "the message was handled", nothing, (*skew).redeliver, runs},
}

func retriesLate(c *core.Config) { c.Keep.LateRetry = retention }

// blobs puts the body of created into a blob.
func blobs(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = newShelf(), 1000 }

func (s *skew) meetVanished() string {
	s.leave(func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown)
		return created(ctx)
	})
	time.Sleep(2 * lease)
	return s.meet()
}

func (s *skew) meetStep() string {
	steps := 0
	step := func(ctx context.Context) error {
		_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { steps++; return steps, nil })
		return err
	}
	s.leave(func(ctx context.Context) (*core.Response, error) {
		require.NoError(s.first.tb, step(ctx))
		return &core.Response{Status: 503, Header: []core.Field{line("Content-Type", "text/plain"), line("X-A", "a")}}, nil
	})
	verdict := s.meetWith(func(ctx context.Context) (*core.Response, error) {
		if err := step(ctx); err != nil {
			return nil, err
		}
		return created(ctx)
	})
	if steps == 2 {
		return verdict + ", repeats the step"
	}
	return verdict
}

func (s *skew) redeliver() string {
	s.first.consume(message, func(ctx context.Context) (receipt, error) { return receipt{7}, nil })
	d := s.second.consume(message, func(context.Context) (receipt, error) { return receipt{8}, nil })
	switch {
	case d.Verdict == consumer.Done:
		return "runs as new"
	case d.Verdict == consumer.Duplicate && d.Result != receipt{7}:
		return "duplicate, without its result"
	}
	return string(d.Verdict)
}

// skewBetween returns what the second process makes of each state that the first has left, and whether child keys are the same.
// The verdicts are empty if the first process refuses the request, or does not guard it.
func skewBetween(t *testing.T, keyHeader string, before, after func(*core.Config)) (verdicts []string, sameChildren bool) {
	if result := newProcess(t, memstore.New(), before).send(skewed(keyHeader), created); result.Bypassed || result.Problem != "" {
		return make([]string, len(skewStates)), true
	}
	sameChildren = true
	for _, state := range skewStates {
		verdict := ""
		synctest.Test(t, func(t *testing.T) {
			s := newSkew(t, state.both, before, after)
			s.request = skewed(keyHeader)
			verdict = state.meet(s)
			sameChildren = sameChildren && (s.child[0] == "" || s.child[1] == "" || s.child[0] == s.child[1])
			s.first.close()
			s.second.close()
		})
		if state.isSecond(verdict) {
			verdict = "**" + verdict + "**"
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts, sameChildren
}

// newSkew returns two processes on one store. What both sets has the same value in them, such as one blob store.
func newSkew(t *testing.T, both, before, after func(*core.Config)) *skew {
	var values core.Config
	both(&values)
	share := func(c *core.Config) {
		c.Keep.Blobs, c.Keep.BlobsFrom = values.Keep.Blobs, values.Keep.BlobsFrom
		c.Keep.LateRetry, c.Lease.OnUnknown = values.Keep.LateRetry, values.Lease.OnUnknown
	}
	sharedShelf.clear()
	store := memstore.New()
	return &skew{first: newProcess(t, store, share, before), second: newProcess(t, store, share, after)}
}

// deploy is one change, with what it does to live keys in both directions.
type deploy struct {
	name         string
	set, unset   []string // by state
	sameChildren bool
}

// field returns the name of the field that the deploy changes.
func (d *deploy) field() string {
	field, _, _ := strings.Cut(d.name, ",")
	return field
}

// allDeploys tries the change of every option, and those in deploys.
func allDeploys(t *testing.T) (all []deploy) {
	changes := map[string]func(*core.Config){}
	for _, o := range options(t) {
		changes[o.name] = o.change
	}
	for name, change := range deploys {
		changes[name] = change
	}
	for name, change := range changes {
		keyHeader := "Idempotency-Key"
		if name == "Key.Aliases, clients use one" {
			keyHeader = "X-Alias"
		}
		set, sameSet := skewBetween(t, keyHeader, nothing, change)
		unset, sameUnset := skewBetween(t, keyHeader, change, nothing)
		all = append(all, deploy{name, set, unset, sameSet && sameUnset})
	}
	slices.SortFunc(all, func(a, b deploy) int { return cmp.Compare(a.name, b.name) })
	return all
}

// rows returns the rows of the table: one for each verdict other than the usual one, with its states.
func (d *deploy) rows(usual []string) (rows []string) {
	set, unset := differences(d.set, usual), differences(d.unset, usual)
	for _, row := range set {
		if slices.Contains(unset, row) {
			rows = append(rows, "| "+d.name+" | both | "+row)
			continue
		}
		rows = append(rows, "| "+d.name+" | set | "+row)
	}
	for _, row := range unset {
		if !slices.Contains(set, row) {
			rows = append(rows, "| "+d.name+" | unset | "+row)
		}
	}
	return rows
}

// differences returns the states whose verdict is another than usual, by verdict, as the last two columns of rows.
func differences(verdicts, usual []string) (columns []string) {
	states := map[string][]string{}
	for i, verdict := range verdicts {
		if verdict != usual[i] && verdict != "" {
			states[verdict] = append(states[verdict], skewStates[i].name)
		}
	}
	for verdict, names := range states {
		where := strings.Join(names, ", ")
		if len(names) == len(skewStates)-1 && !slices.Contains(names, "message done") {
			where = "any"
		}
		columns = append(columns, where+" | "+verdict+" |\n")
	}
	slices.Sort(columns)
	return columns
}

// deploysPage is what docs/deploys.md says.
func deploysPage(all []deploy, usual []string) string {
	var page, harmless strings.Builder
	page.WriteString(deploysHead)
	for i, state := range skewStates {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", state.name, state.happened, usual[i])
	}
	page.WriteString(deploysTable)
	var names, otherChildren []string
	for _, d := range all {
		rows := d.rows(usual)
		page.WriteString(strings.Join(rows, ""))
		if len(rows) == 0 {
			names = append(names, "`"+d.name+"`")
		}
		if !d.sameChildren {
			otherChildren = append(otherChildren, "`"+d.name+"`")
		}
	}
	for line := range slices.Chunk(names, 5) {
		harmless.WriteString(strings.Join(line, ", ") + ",\n")
	}
	return page.String() + "\nA change of any of these changes nothing for live keys:\n" +
		strings.TrimSuffix(harmless.String(), ",\n") + ".\n\n" +
		"Child keys change with " + strings.Join(otherChildren, " and ") + ", and with nothing else.\n"
}

const deploysHead = `# Deploys that change options

A deploy changes one option while keys are alive. This page says what a retry then gets from a process with one value, if a
process with the other value has left the record. It holds while the deploy rolls out, too, when processes of both kinds run.

Without a change, a retry gets this:

| state of the record | what has happened | a retry gets |
| --- | --- | --- |
`

const deploysTable = `
## Changing a secret

A secret changes in three deploys:

1. List the new secret in ` + "`PreviousSecrets`" + `.
2. Make it ` + "`Secret`" + `, and list the old one in ` + "`PreviousSecrets`" + `.
3. Remove the old one when every process has had step 2 for twice ` + "`Keep.Retention`" + `.

Processes of neighbouring steps never run a key twice, if the store is a ` + "`driver.Inspector`" + `, as all stores here are: a
process then looks for the other name without a claim, so it leaves nothing there if it dies. If a process dies between its claim
and that look, or runs the handler without protection, while a request with another body has an unknown outcome under the other
name, both requests can be refused until the retention ends, or until an operator forgets that claim. Step 2 without step 1 replays
what was stored before, but does not see runs of older processes in the meantime.

` + "`Key.PerRoute`" + ` changes in the same way: set ` + "`Key.PerRouteChanged`" + `, change ` + "`Key.PerRoute`" + `, and unset
` + "`Key.PerRouteChanged`" + ` after twice ` + "`Keep.Retention`" + `.

` + "`Keep.Blobs`" + ` is set in two deploys, because a process without it replays such responses without their body: first with a
` + "`Keep.BlobsFrom`" + ` of ` + "`Keep.MaxBody`" + `-1, which puts hardly any body into a blob, and then with a lower one.

## Changing the store

` + "`Store`" + ` changes in three deploys, with a store of [core/movestore](../core/movestore) that asks the old and the new one:
[operations.md](operations.md#the-records-must-move-to-another-store) has them step by step. The table below says what happens without
it.

## Adding a codec

A codec in ` + "`Keep.Codecs`" + ` is added in two deploys, because a process without it refuses what it wrote with 503 ` + "`record-unreadable`" + `:

1. The codec only reads: ` + "`seal.New(keys, seal.OpenOnly())`" + `, or ` + "`compress.Zstd(compress.Threshold(math.MaxInt))`" + `.
2. It writes: ` + "`seal.New(keys, seal.AcceptPlain())`" + `, or ` + "`compress.Zstd()`" + `.

` + "`seal.AcceptPlain`" + ` is removed when every process has had step 2 for ` + "`Keep.Retention`" + `. To remove a codec, let it only read for
` + "`Keep.Retention`" + ` first.

## The table

The table has what differs from the first one. A test makes both: ` + "`go test ./core -run TestTheTableOfDeploys -update`" + `
writes them anew.

- *set*: a process with the default has left the record, and a process with the changed option gets the retry. *unset*: the
  other way round. In states that the first table gives with an option, both processes have that option, and a change of it
  replaces its value. A change that is not listed has no effect on live keys, or the first process refuses the request or does
  not guard it, and leaves no record.
- **Bold** is a run, or the second time of a step, that must not be: the earlier run still lives, its outcome is stored or will
  be, ` + "`Lease.OnUnknown`" + ` was to decide about it, or the new run is not told of a takeover. Wait until live keys have
  expired (` + "`Keep.Retention`" + `), send the traffic through one version at a time, or do not change the option. The
  documentation of each such field says so in capitals.
- *503* ` + "`record-unreadable`" + ` means that the retry is refused and does not run, until the record has expired,
  ` + "`Fingerprint.Previous`" + ` names the earlier comparison, or ` + "`Keep.Codecs`" + ` can read the outcome.
- *runs as new*: the run is not told about the earlier one: its attempt is 1, and it is no takeover. *runs without a key*: the
  process finds no key, or does not guard the method, so the handler runs without protection.
- *any* does not include the message.
- *child keys* derive from scope, key, method, path and step alone. If a key runs again with the same child keys, they keep its
  effects from happening twice.

| option | change | state of the record | a retry gets |
| --- | --- | --- | --- |
`

func TestTheTableOfDeploysIsWhatHappens(t *testing.T) {
	usual, _ := skewBetween(t, "Idempotency-Key", nothing, nothing)
	all := allDeploys(t)
	page := deploysPage(all, usual)
	if *update {
		require.NoError(t, os.WriteFile(deploysFile, []byte(page), 0o644))
	}
	documented, err := os.ReadFile(deploysFile)
	require.NoError(t, err)
	assert.Equal(t, page, string(documented), "docs/deploys.md is stale: run this test with -update, and read what has changed")

	runTwice := map[string]bool{}
	for _, d := range all {
		isOfKey := d.name == "Scope" || d.name == "Key.Accept, another form"
		assert.Equal(t, isOfKey, !d.sameChildren, "%s: child keys follow scope and key, and no option", d.name)
		if strings.Contains(strings.Join(append(d.set, d.unset...), ""), "**") {
			runTwice[d.field()] = true
		}
	}
	assert.Equal(t, fieldsThatMayRunAKeyTwice(t), runTwice, "the fields whose documentation says RUN A KEY TWICE, and those that do")
}

// fieldsThatMayRunAKeyTwice returns the fields of Config whose documentation says in capitals that a change of them may do so.
func fieldsThatMayRunAKeyTwice(t *testing.T) map[string]bool {
	structs := map[string]*ast.StructType{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && file.Name.Name == "core" {
				structs[spec.Name.Name], _ = spec.Type.(*ast.StructType)
			}
			return true
		})
	}
	found := map[string]bool{}
	visit := func(prefix string, of *ast.StructType) {
		for _, field := range of.Fields.List {
			text := strings.Join(strings.Fields(field.Doc.Text()), " ")
			for _, name := range field.Names {
				if strings.Contains(text, "RUN A KEY TWICE") {
					found[prefix+name.Name] = true
				}
			}
		}
	}
	visit("", structs["Config"])
	for _, field := range structs["Config"].Fields.List {
		if group, ok := field.Type.(*ast.Ident); ok && structs[group.Name] != nil {
			visit(field.Names[0].Name+".", structs[group.Name])
		}
	}
	return found
}
