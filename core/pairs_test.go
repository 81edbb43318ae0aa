package core_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// SKW-02: every option beside every other, in one process and in two.

// pairProcess is one process with one or two options, and the calls of its hooks that its requests explain.
type pairProcess struct {
	*fixture
	cfg  core.Config
	want map[string]int
}

// pairConfig returns the config of processes with these options.
func pairConfig(store driver.Store, options ...option) core.Config {
	c := core.Config{Store: store, Scope: core.SingleTenant}
	c.Lease.Duration, c.Limits.StoreTimeout, c.Keep.Retention = lease, storeTimeout, retention
	for _, o := range options {
		o.change(&c)
	}
	return c
}

// newPairProcess returns a process without an engine, and hooks that it hears, unless the option is that there are none.
func newPairProcess(options ...option) (p *pairProcess, hooks core.Hooks) {
	f := &fixture{heard: &eventLog{}, runs: new(atomic.Int64)}
	if slices.ContainsFunc(options, func(o option) bool { return o.name == withoutHooks.name }) {
		return &pairProcess{fixture: f}, core.Hooks{}
	}
	return &pairProcess{fixture: f, want: map[string]int{}}, f.heard.hooks()
}

// startPairProcess returns a process with this config.
func startPairProcess(c core.Config, options ...option) (*pairProcess, error) {
	var err error
	p, hooks := newPairProcess(options...)
	c.Hooks = hooks
	if p.Engine, err = core.New(c); err != nil {
		return nil, err
	}
	p.cfg = p.Config()
	return p, nil
}

// derive returns another engine of the same process, by With.
func (p *pairProcess) derive(o option) *pairProcess {
	derived, hooks := newPairProcess(o)
	derived.Engine = p.With(func(c *core.Config) {
		o.change(c)
		c.Hooks = hooks
	})
	derived.tb, derived.cfg = p.tb, derived.Config()
	return derived
}

// patience is how long a request of p may take, besides its handler.
func (p *pairProcess) patience() time.Duration { return p.cfg.Wait.Timeout + p.cfg.Limits.StoreTimeout }

// explain notes that a request explains a call of a hook.
func (p *pairProcess) explain(hook string) {
	if p.want != nil {
		p.want[hook]++
	}
}

// pairKey is a key of the script, with what the test knows about its runs.
type pairKey struct {
	name    string
	request core.Request
	running int
	isOver  bool             // the last run has left its outcome unknown, and its lease is over
	stored  []*core.Response // the outcome; more than one only after a second run that an option allows
}

// key returns a key in whose request every option finds what it needs, such as the key under both names.
func (p *pairPlay) key(name string) *pairKey {
	key := strconv.Quote(name + " " + p.title)
	header := http.Header{"Accept": {"text/csv"}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}, "X-Key": {key}}
	r := request("", "{}")
	r.Header, r.RawQuery = header.Values, "b=2&a=1"
	return &pairKey{name: name, request: r}
}

// other returns another request with the key.
func (k *pairKey) other() *pairKey {
	k.request.Body = func(int64) ([]byte, error) { return []byte("[]"), nil }
	return k
}

// pairPlay is the script, played by two processes. The first leaves records, and the second meets them.
type pairPlay struct {
	t             *testing.T
	title         string
	options       [2]option
	first, second *pairProcess
	mayRunTwice   bool // the documentation of an option says so
	verdicts      []string
}

// check reports a failure of a key, unless ok.
func (p *pairPlay) check(ok bool, k *pairKey, format string, args ...any) {
	if !ok {
		p.t.Errorf("%s: key %q %s", p.title, k.name, fmt.Sprintf(format, args...))
	}
}

// send sends the request of k, and checks what must hold whatever the options are.
func (p *pairPlay) send(f *pairProcess, k *pairKey, h handler) {
	began := time.Now()
	verdict, result := f.judge(k.request, func(ctx context.Context) (*core.Response, error) { return p.run(ctx, f, k, h) })
	p.verdicts = append(p.verdicts, verdict)
	took := time.Since(began)
	p.check(took <= p.first.patience()+p.second.patience(), k, "took %v", took)
	switch result.Problem {
	case "":
		p.checkMarker(f, k, result)
	case "in-progress":
		f.explain("conflict")
	case "fingerprint-mismatch":
		f.explain("mismatch")
	case "outcome-unknown":
		f.explain("unknown")
	}
	if result.Replayed {
		f.explain("replay")
		p.checkReplay(f, k, result.Response)
	}
	if result.Err != nil { // of an unreadable record, or of a lost blob
		f.explain("store-error")
	}
}

// run runs a handler, and checks that it may run.
func (p *pairPlay) run(ctx context.Context, f *pairProcess, k *pairKey, h handler) (*core.Response, error) {
	run, _ := core.FromContext(ctx)
	p.check(!run.Unprotected, k, "runs unprotected")
	if !p.mayRunTwice {
		p.check(k.running == 0, k, "runs while it runs")
		p.check(len(k.stored) == 0, k, "runs although it has an outcome")
		p.check(run.Takeover == k.isOver, k, "is told of a takeover: %v", run.Takeover)
	}
	f.explain("begin")
	if run.Takeover {
		f.explain("takeover")
	}
	k.running++
	defer func() { k.running-- }()
	response, err := h(ctx)
	k.isOver = false
	switch run, _ = core.FromContext(ctx); {
	case err != nil:
		f.explain("failed")
	case run.Decision == core.LeaveUnknown:
		f.explain("unknown")
		k.isOver = true
	case f.cfg.Keep.Policy(response) != core.Keep:
		f.explain("failed")
	default:
		f.explain("kept")
		k.stored = append(k.stored, &core.Response{Status: response.Status, Body: response.Body})
	}
	return response, err
}

// checkReplay compares a replay with what the run of its key has returned.
func (p *pairPlay) checkReplay(f *pairProcess, k *pairKey, r *core.Response) {
	isOmitted := len(values(r, "Idempotent-Body")) > 0
	p.check(slices.ContainsFunc(k.stored, func(stored *core.Response) bool {
		status := stored.Status
		if isOmitted {
			status = cmp.Or(f.cfg.Keep.OmittedStatus, status)
		}
		return status == r.Status && (isOmitted && len(r.Body) == 0 || bytes.Equal(stored.Body, r.Body))
	}), k, "is replayed as %d %.20s", r.Status, r.Body)
	p.check(!isOmitted || p.has("Keep.MaxBody", "Keep.OmitBody", "Keep.Blobs", "Keep.BlobsFrom"), k, "is replayed without its body")
	p.check(value(r, "Content-Type") == "text/plain", k, "is replayed without its type")
	isDenied, isAllowed := f.cfg.Keep.DenyHeaders != nil, f.cfg.Keep.AllowHeaders != nil
	p.check(value(r, "X-A") == "a" || p.has("Keep.DenyHeaders"), k, "is replayed without X-A")
	p.check(value(r, "X-A") == "" || !isDenied, k, "is replayed with X-A")
	p.check(value(r, "Set-Cookie") == "" || isAllowed, k, "is replayed with its cookie")
}

// checkMarker checks that replays carry the marker, and first responses do not, as the options say.
func (p *pairPlay) checkMarker(f *pairProcess, k *pairKey, result core.Result) {
	if result.Response == nil { // the handler returned an error
		return
	}
	want := ""
	switch {
	case result.Replayed && !f.cfg.Keep.NoMarker:
		want = "true"
	case !result.Replayed && f.cfg.Keep.MarkAll:
		want = "false"
	}
	got := value(result.Response, f.cfg.Keep.Marker)
	p.check(got == want, k, "has the marker %q and not %q", got, want)
}

// has reports whether one of these options is played.
func (p *pairPlay) has(names ...string) bool {
	return slices.Contains(names, p.options[0].name) || slices.Contains(names, p.options[1].name)
}

// pairHandler is a handler in whose response every option finds something.
func pairHandler(status int, body string) handler {
	return answers(status, body, line("Content-Type", "text/plain"), line("X-A", "a"), line("Set-Cookie", "a=b"),
		line("Cache-Control", "no-store"))
}

var (
	makes   = pairHandler(201, "made")
	unmade  = pairHandler(201, "another")
	lengthy = pairHandler(201, strings.Repeat("long ", 600))
)

// play plays the script.
func (p *pairPlay) play() {
	p.conflict(p.key("conflict"))
	p.step(p.key("step"))
	p.vanish(p.key("vanished"))

	k := p.key("long")
	p.send(p.first, k, lengthy)
	p.send(p.second, k, unmade)

	k = p.key("failed")
	p.send(p.first, k, pairHandler(503, "failed"))
	p.send(p.second, k, makes)
	p.send(p.second, k.other(), unmade)

	k = p.key("released")
	p.send(p.first, k, pairHandler(401, "who?"))
	p.send(p.second, k.other(), makes)
}

// conflict sends a request to the second process while the first one runs, and again, and then another request.
func (p *pairPlay) conflict(k *pairKey) {
	p.send(p.first, k, func(ctx context.Context) (*core.Response, error) {
		p.send(p.second, k, unmade)
		return makes(ctx)
	})
	p.send(p.second, k, unmade)
	p.send(p.first, k, unmade)
	p.send(p.second, k.other(), unmade)
}

// step fails after a step in the first process, and goes on in the second.
func (p *pairPlay) step(k *pairKey) {
	steps := 0
	charges := func(status int) handler {
		return func(ctx context.Context) (*core.Response, error) {
			_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { steps++; return steps, nil })
			if err != nil {
				return nil, err
			}
			return pairHandler(status, "charged")(ctx)
		}
	}
	p.send(p.first, k, charges(503))
	p.send(p.second, k, charges(201))
	p.check(steps <= 1 || p.mayRunTwice, k, "does its step %d times", steps)
}

// vanish leaves the outcome of a run of the first process unknown, until its lease is over.
func (p *pairPlay) vanish(k *pairKey) {
	p.send(p.first, k, func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown)
		return pairHandler(504, "")(ctx)
	})
	p.send(p.second, k, unmade)
	time.Sleep(2 * lease)
	p.send(p.second, k, makes)
	p.send(p.first, k, unmade)
}

// checkHooks compares what the hooks of a process have heard with what its requests explain.
func (p *pairPlay) checkHooks(f *pairProcess) {
	for _, e := range f.heard.take() {
		f.want[e.hook]--
	}
	for hook, missing := range f.want {
		if missing != 0 {
			p.t.Errorf("%s: hook %s is called %d times too few", p.title, hook, missing)
		}
	}
	clear(f.want)
}

// pairOptions returns all options. The hooks are one option, since none of them knows of another: that there are none.
func pairOptions(t *testing.T) []option {
	all := slices.DeleteFunc(options(t), func(o option) bool { return strings.HasPrefix(o.name, "Hooks.") })
	return append(all, withoutHooks)
}

var (
	// sharedMemory is the option with which engines of one process share outcomes.
	sharedMemory = option{"Keep.LocalReplays", optionChanges["Keep.LocalReplays"]}
	// rotation makes an engine look for the records of one without it.
	rotation     = option{"a rotation", secrets(oneSecret, "")}
	noOption     = option{"nothing", nothing}
	withoutHooks = option{"no hooks", nothing} // newPairProcess knows it by its name
)

// pairStage has the processes with one option each, on one store.
type pairStage struct {
	t           *testing.T
	store       driver.Store
	usual       *pairPlay // without options
	processes   map[string]*pairProcess
	mayRunTwice map[string]bool
}

// process returns the process with this option alone.
func (s *pairStage) process(o option) *pairProcess {
	if s.processes[o.name] == nil {
		s.processes[o.name] = s.start(pairConfig(s.store, o), o, noOption)
	}
	return s.processes[o.name]
}

// start returns a process with this config that is on the stage. It returns nil if New refuses the options.
func (s *pairStage) start(cfg core.Config, x, y option) *pairProcess {
	p, err := startPairProcess(cfg, x, y)
	if err == nil {
		p.tb = s.t
		return p
	}
	var bad *core.ConfigError
	require.ErrorAs(s.t, err, &bad)
	group, _, _ := strings.Cut(bad.Field, ".") // Fingerprint.Version brings a Func
	assert.True(s.t, strings.HasPrefix(x.name, group) && strings.HasPrefix(y.name, group), "%s with %s: %v", x.name, y.name, err)
	return nil
}

// together plays the script with two processes that both have both options. It returns nil if New refuses them.
func (s *pairStage) together(x, y option) *pairPlay {
	cfg := pairConfig(s.store, x, y)
	first := s.start(cfg, x, y)
	if first == nil {
		return nil
	}
	play := pairPlay{title: x.name + " with " + y.name, options: [2]option{x, y}, first: first, second: s.start(cfg, x, y)}
	return s.play(&play)
}

// derived plays the script with two engines of one process: the first has x, and With adds y to the second. It returns nil if New
// refuses both options.
func (s *pairStage) derived(x, y option) *pairPlay {
	if s.start(pairConfig(s.store, x, y), x, y) == nil {
		return nil
	}
	first := s.start(pairConfig(s.store, x), x, noOption)
	return s.play(&pairPlay{
		title: x.name + " and then " + y.name, options: [2]option{x, y}, first: first, second: first.derive(y),
		mayRunTwice: s.mayRunTwice[y.name],
	})
}

// rotated plays the script with two processes that both have o, while a deploy changes the secret. It returns nil if New refuses
// that.
func (s *pairStage) rotated(o option) *pairPlay {
	cfg := pairConfig(s.store, o)
	first := s.start(cfg, o, noOption)
	rotation.change(&cfg)
	second := s.start(cfg, o, rotation)
	if second == nil {
		return nil
	}
	play := pairPlay{title: o.name + " during a rotation", options: [2]option{o, rotation}, first: first, second: second}
	return s.play(&play)
}

// apart plays the script with two processes that have one of the options each.
func (s *pairStage) apart(x, y option) *pairPlay {
	return s.play(&pairPlay{
		title: x.name + " against " + y.name, options: [2]option{x, y}, first: s.process(x), second: s.process(y),
		mayRunTwice: s.mayRunTwice[x.name] || s.mayRunTwice[y.name],
	})
}

// play plays the script. It panics if the script lasts for an hour of the time in the bubble.
func (s *pairStage) play(p *pairPlay) *pairPlay {
	p.t = s.t
	overdue := time.AfterFunc(time.Hour, func() { panic(p.title + ": a request does not end") })
	defer overdue.Stop()
	p.play()
	p.checkHooks(p.first)
	p.checkHooks(p.second)
	return p
}

// SKW-02. With SOAK set, each option of a pair is once that of the first process and once that of the second; otherwise they take
// turns from pair to pair.
func TestEveryOptionBesideEveryOther(t *testing.T) {
	mayRunTwice := fieldsThatMayRunAKeyTwice(t)
	all, isSoak := pairOptions(t), os.Getenv("SOAK") != ""
	synctest.Test(t, func(t *testing.T) {
		s := &pairStage{t: t, store: memstore.New(), processes: map[string]*pairProcess{}, mayRunTwice: mayRunTwice}
		s.usual = s.together(noOption, noOption)
		with, first, second := map[string]*pairPlay{}, map[string]*pairPlay{}, map[string]*pairPlay{}
		for _, o := range all {
			with[o.name], first[o.name], second[o.name] = s.together(o, noOption), s.apart(o, noOption), s.apart(noOption, o)
		}
		for i, x := range all {
			for j, y := range all[i+1:] {
				if p := s.together(x, y); p != nil {
					s.checkExplained(p, with[x.name], with[y.name])
				}
				if j%2 == 0 || isSoak {
					s.checkExplained(s.apart(x, y), first[x.name], second[y.name])
				}
				if j%2 == 1 || isSoak {
					s.checkExplained(s.apart(y, x), first[y.name], second[x.name])
				}
			}
			if p := s.derived(sharedMemory, x); p != nil {
				s.checkExplained(p, with[sharedMemory.name], second[x.name])
			}
			if p := s.rotated(x); p != nil {
				s.checkExplained(p, with[x.name], with[x.name])
			}
		}
		for _, p := range s.processes {
			p.close()
		}
	})
}

// interactions has the plays in which a request gets something else than checkExplained expects, and why.
var interactions = map[string]string{
	"Key.PerRoute against Key.PerRouteChanged":      "one process looks for the records of the other",
	"Key.PerRouteChanged against Key.PerRoute":      "one process looks for the records of the other",
	"Marshal against Unmarshal":                     "the change of either sets both",
	"Unmarshal against Marshal":                     "the change of either sets both",
	"Fingerprint.JSON against Fingerprint.Previous": "Previous names the comparison of the first process",
	"Fingerprint.JSON against Fingerprint.Off":      moreLenient,
	"Fingerprint.Multipart against Fingerprint.Off": moreLenient,
	"Fingerprint.SortQuery against Fingerprint.Off": moreLenient,
	"Fingerprint.Off with Keep.Policy":              "a failure is stored, and another request gets it, because nothing is compared",
	"Lease.OnUnknown against Fingerprint.Headers":   leftUnknown,
	"Lease.OnUnknown against Fingerprint.Func":      leftUnknown,
	"Lease.OnUnknown against Fingerprint.Version":   leftUnknown,
}

func init() {
	for _, renames := range []string{"Store", "Secret", "Key.PerRoute"} {
		for _, compares := range []string{"JSON", "Multipart", "SortQuery", "Headers", "Func", "Version", "Off"} {
			interactions["Fingerprint."+compares+" against "+renames] = ownRecord
		}
		for _, refuses := range []string{"Headers", "Func", "Version", "Off"} {
			interactions[renames+" against Fingerprint."+refuses] = ownRecord
		}
		interactions["Lease.OnUnknown against "+renames] = ownRecord
	}
}

const (
	ownRecord   = "each process has a record of its own, and judges by that"
	leftUnknown = "the second process does not take the record over, so that its outcome stays unknown for the first"
	moreLenient = "the second process compares less than the first, and so trusts its comparison"
)

// checkExplained checks that each request gets what it gets with one of the options alone. If only one of them changes what is
// usual, that one counts: no option may undo another.
func (s *pairStage) checkExplained(p, x, y *pairPlay) {
	isExplained := true
	for i := range max(len(p.verdicts), len(s.usual.verdicts)) {
		got, usual, withX, withY := p.verdict(i), s.usual.verdict(i), x.verdict(i), y.verdict(i)
		if got == withX && withX != usual || got == withY && withY != usual || got == withX && got == withY {
			continue
		}
		isExplained = false
		if interactions[p.title] == "" {
			s.t.Errorf("%s: request %d: %s; with each alone: %s, %s", p.title, i, got, withX, withY)
		}
	}
	if isExplained && interactions[p.title] != "" {
		s.t.Errorf("%s: is explained, and needs no place in interactions", p.title)
	}
}

// verdict returns the verdict of a request, without what a replay lacks, which checkReplay has judged.
func (p *pairPlay) verdict(i int) string {
	switch {
	case i >= len(p.verdicts):
		return "not sent"
	case strings.HasPrefix(p.verdicts[i], "replay"):
		return "replay"
	}
	return p.verdicts[i]
}
