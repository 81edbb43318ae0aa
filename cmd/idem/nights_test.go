package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

// nightKey is the key of a customer in docs/operations.md.
const nightKey = "8e03978e-40d5-43dd-bc93-6894a57f9324"

// night is a section of docs/operations.md that a test follows.
type night struct {
	t      *testing.T
	server *redistest.Server // nil on PostgreSQL
	url    string
	dir    string   // in which the commands run
	env    []string // beside IDEM_STORE
	blocks []string // the commands of the section, block by block
	onPage []string // what the section says that the page shows
	page   string   // the URL of the page
}

// nights are the sections, by their headings.
var nights = map[string]func(*night){
	"A customer says: my payment hangs with 409":      (*night).hangs,
	"An outcome is unknown":                           (*night).unknown,
	"A customer has corrected a request and gets 422": (*night).corrected,
	"A run fails halfway, again and again":            (*night).halfway,
	"A message is dead":                               (*night).dead,
	"Every request gets 503":                          (*night).refused,
	"The memory of Redis fills up":                    (*night).full,
	"After a deploy all keys are new":                 (*night).deployed,
	"A customer wants to be erased":                   (*night).erased,
	"A key must be usable again":                      (*night).usable,
	"The records must move to another store":          (*night).moved,
}

func TestEachNightGoesAsItIsWritten(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	sections := strings.Split(string(page), "\n## ")
	sections = slices.DeleteFunc(sections, func(text string) bool { return strings.HasPrefix(text, "Alerts\n") }) // no night
	require.Len(t, sections[1:], len(nights))
	for _, text := range sections[1:] {
		heading, text, _ := strings.Cut(text, "\n")
		assert.Contains(t, sections[0], "["+heading+"]", "the list has it")
		assert.Contains(t, text, "**For the money:**", heading)
		follow := nights[heading]
		require.NotNil(t, follow, heading)
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes")
			(&night{t: t, server: server, url: "redis://" + server.Addr}).play(text, follow)
		})
		if strings.Contains(text, "On the page:") {
			t.Run(heading+" (PostgreSQL)", func(t *testing.T) {
				t.Parallel()
				(&night{t: t, url: pgserver.Database(t)}).play(text, follow)
			})
		}
	}
}

// The blocks of commands of a section, its sentences about the page, and the words in them that the page shows.
var (
	commandBlock  = regexp.MustCompile("(?s)```sh\n(.*?)```")
	pageSentences = regexp.MustCompile(`(?s)On the page: (.*?)\n\n`)
	pageWords     = regexp.MustCompile(`\*([^*]+)\*`)
)

// play follows a section to its end.
func (n *night) play(text string, follow func(*night)) {
	n.dir = n.t.TempDir()
	for _, block := range commandBlock.FindAllStringSubmatch(text, -1) {
		n.blocks = append(n.blocks, block[1])
	}
	require.NotEmpty(n.t, n.blocks)
	for _, sentences := range pageSentences.FindAllString(text, -1) {
		n.page = startPage(n.t, n.url, "--actor-header", "X-Operator", "--no-codecs")
		for _, words := range pageWords.FindAllStringSubmatch(sentences, -1) {
			n.onPage = append(n.onPage, strings.ReplaceAll(words[1], "\n", " "))
		}
	}
	follow(n)
	assert.Empty(n.t, n.blocks, "all blocks are followed")
	assert.Empty(n.t, n.onPage, "the page shows all that the section says")
}

// open sends a form to the page, as somebody, and returns what it shows.
func (n *night) open(path string, form url.Values) string {
	n.t.Helper()
	status, text := submit(n.t, n.page, path, "alice@example.com", form)
	require.Equal(n.t, http.StatusOK, status, text)
	home, err := http.Get(n.page)
	require.NoError(n.t, err)
	defer home.Body.Close()
	start, err := io.ReadAll(home.Body)
	require.NoError(n.t, err)
	n.onPage = slices.DeleteFunc(n.onPage, func(words string) bool { return strings.Contains(string(start)+text, words) })
	return text
}

// act does an act on the page, as the section says.
func (n *night) act(key, act string) {
	n.t.Helper()
	form := url.Values{"scope": {"alice"}, "key": {key}, "act": {act}}
	n.open("record", form)
	form = formOf(n.open("confirm", form))
	form.Set("why", "ticket 4711")
	assert.Contains(n.t, n.open("act", form), "Done: ")
}

// run runs the next block as it is written, and returns what it prints, and the exit code of its last command. replace has
// pairs of what only this run knows.
func (n *night) run(replace ...string) (printed string, code int) {
	n.t.Helper()
	require.NotEmpty(n.t, n.blocks)
	block := strings.NewReplacer(replace...).Replace(n.blocks[0])
	n.blocks = n.blocks[1:]
	return n.execute(block)
}

// execute runs commands, of which idem is this program.
func (n *night) execute(block string) (printed string, code int) {
	n.t.Helper()
	bin := n.t.TempDir()
	script := "#!/bin/sh\n" + isCommand + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	require.NoError(n.t, os.WriteFile(filepath.Join(bin, "idem"), []byte(script), 0o700))
	cmd := exec.Command("sh", "-c", block)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), append(n.env, "IDEM_STORE="+n.url, "PATH="+bin+":"+os.Getenv("PATH"))...)
	out, err := cmd.CombinedOutput()
	n.t.Logf("%s%s%v", block, out, err)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), failed.ExitCode()
	}
	require.NoError(n.t, err)
	return string(out), 0
}

// must runs the next block, which succeeds and prints this.
func (n *night) must(want string, replace ...string) {
	n.t.Helper()
	printed, code := n.run(replace...)
	assert.Equal(n.t, 0, code)
	assert.Contains(n.t, printed, want)
}

// handler returns the guarded handler of the service.
func (n *night) handler(changes ...func(*core.Config)) http.Handler {
	return handler(mustConnect(n.t, n.url), nil, changes...)
}

func (n *night) hangs() {
	released, running, ended := make(chan bool), make(chan bool), make(chan bool)
	h := handler(mustConnect(n.t, n.url), func() { running <- true; <-released })
	go func() { send(h, "alice", nightKey, "hang"); ended <- true }()
	<-running
	refusal := send(h, "alice", nightKey, "")
	require.Equal(n.t, http.StatusConflict, refusal.Code)
	var problem core.Problem
	require.NoError(n.t, json.Unmarshal(refusal.Body.Bytes(), &problem))
	n.must("in-progress: a process runs the handler")
	n.must("in-progress: a process runs the handler", regexp.MustCompile(`urn:idem:\S+`).FindString(n.blocks[0]), problem.Instance)
	n.open("record", url.Values{"scope": {"alice"}, "key": {nightKey}})
	released <- true
	<-ended
	assert.Equal(n.t, "true", send(h, "alice", nightKey, "").Header().Get("Idempotent-Replayed"), "it was charged once")
}

func (n *night) unknown() {
	h := makeKeyUnknown(n.t, n.url, nightKey)
	n.must("unknown")
	n.must("the same request gets 201")
	replay := send(h, "alice", nightKey, "")
	assert.Equal(n.t, http.StatusCreated, replay.Code)
	assert.Equal(n.t, `{"payment": "pay_7"}`, replay.Body.String())
	assert.Equal(n.t, "application/json", replay.Header().Get("Content-Type"))
	const second, third = nightKey + "-2", nightKey + "-3"
	makeKeyUnknown(n.t, n.url, second)
	n.must("it did not happen, and the next request runs", nightKey, second)
	assert.Equal(n.t, "very private", send(h, "alice", second, "").Body.String())
	makeKeyUnknown(n.t, n.url, third)
	assert.Contains(n.t, n.open("unknown", nil), `href="record?name=`)
	n.act(third, "not-done")
	assert.Equal(n.t, "very private", send(h, "alice", third, "").Body.String())
}

func (n *night) corrected() {
	h := n.handler()
	send(h, "alice", nightKey, "fail")
	other := func() int {
		w, r := httptest.NewRecorder(), request("alice", nightKey, "")
		r.URL.Path, r.RequestURI = "/payments", "/payments" // another request under the key
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(n.t, http.StatusUnprocessableEntity, other())
	n.must("released: the next request is new")
	assert.Equal(n.t, http.StatusOK, other())
	const second = nightKey + "-2"
	send(h, "alice", second, "fail")
	n.act(second, "release")
}

func (n *night) halfway() {
	failAfter(n.t, n.url, nightKey, nil, "charge")
	n.must(`"charge"`)
}

func (n *night) dead() {
	engine, err := core.New(core.Config{Store: mustConnect(n.t, n.url), Scope: core.ScopeByAdapter})
	require.NoError(n.t, err)
	c, err := consumer.New(engine, consumer.Config{MaxAttempts: 1})
	require.NoError(n.t, err)
	m := consumer.Message{Group: "billing", ID: "4711", Payload: []byte("{}")}
	takeover := false
	deliver := func(failure error) consumer.Verdict {
		return consumer.Consume(n.t.Context(), c, m, func(ctx context.Context) (string, error) {
			run, _ := core.FromContext(ctx)
			takeover = run.Takeover
			return "", failure
		}).Verdict
	}
	deliver(errors.New("no bank"))
	require.Equal(n.t, consumer.Dead, deliver(nil))
	n.must("resolved: it did not happen")
	assert.Equal(n.t, consumer.Done, deliver(nil))
	assert.True(n.t, takeover)
}

func (n *night) refused() {
	client := n.server.Client(n.t)
	block := n.blocks[0]
	n.server.Config(n.t, "maxmemory", "1mb")
	client.Set(n.t.Context(), "data", strings.Repeat("x", 1<<20), 0)
	printed, code := n.execute(strings.Replace(block, "idem doctor", "idem doctor --sample 0s", 1))
	assert.Equal(n.t, finding, code)
	assert.Regexp(n.t, "scripts is .*OOM", printed)
	n.server.Pause()
	defer n.server.Resume()
	printed, code = n.run()
	assert.Equal(n.t, storeFailed, code)
	assert.Contains(n.t, printed, "the store does not respond")
}

func (n *night) full() {
	send(n.handler(), "alice", nightKey, "")
	n.server.Config(n.t, "maxmemory", "1gb")
	ctx, stop := context.WithCancel(n.t.Context())
	client, ended := n.server.Client(n.t), make(chan bool)
	go func() { // one write a sample is a growth, and all writes of minutes do not reach the limit
		defer close(ended)
		next := time.NewTicker(10 * time.Millisecond)
		defer next.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			client.Set(ctx, "data"+strconv.Itoa(i), strings.Repeat("x", 65<<10), 0)
			select {
			case <-next.C:
			case <-ctx.Done():
			}
		}
	}()
	printed, code := n.run()
	stop()
	<-ended
	assert.Equal(n.t, finding, code)
	assert.Regexp(n.t, `(?m)^completed +1 `, printed)
	assert.Contains(n.t, printed, "and then every claim is refused")
}

func (n *night) deployed() {
	earlier, secret := "0123456789abcdef", "fedcba9876543210"
	send(n.handler(func(c *core.Config) { c.Secret = []byte(earlier) }), "alice", nightKey, "")
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir, "earlier-secret"), []byte(earlier+"\n"), 0o600))
	n.env = []string{"IDEM_SECRET=" + secret}
	printed, code := n.run()
	assert.Equal(n.t, finding, code)
	assert.Contains(n.t, printed, "no record has this scope and key")
	assert.Contains(n.t, printed, "another secret")
	n.must("completed: the outcome is stored")
	repaired := n.handler(func(c *core.Config) { c.Secret, c.PreviousSecrets = []byte(secret), [][]byte{[]byte(earlier)} })
	assert.Equal(n.t, "true", send(repaired, "alice", nightKey, "").Header().Get("Idempotent-Replayed"))
}

func (n *night) erased() {
	h := n.handler()
	for _, caller := range []string{"alice", "bob"} {
		send(h, caller, nightKey, "")
	}
	n.must("1 records are forgotten")
	assert.Equal(n.t, "true", send(h, "bob", nightKey, "").Header().Get("Idempotent-Replayed"))
	assert.Empty(n.t, send(h, "alice", nightKey, "").Header().Get("Idempotent-Replayed"), "a retry runs again")
}

func (n *night) usable() {
	h := n.handler()
	send(h, "alice", nightKey, "")
	n.must("forgotten: the next request is new")
	assert.Empty(n.t, send(h, "alice", nightKey, "").Header().Get("Idempotent-Replayed"), "it happens again")
}
