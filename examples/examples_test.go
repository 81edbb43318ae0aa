package examples_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

var (
	frameworks = []string{"http", "gin", "echo", "fiber"}
	modules    = []string{"echov5", "fiberv3"} // services that are modules of their own
	services   = slices.Concat(frameworks, modules)
	stores     = []store{{"memory", noRedis}, {"redis", redisURL}}
)

// store is where an example keeps its records; url is its REDIS_URL.
type store struct {
	name string
	url  func(testing.TB) string
}

func noRedis(testing.TB) string { return "" }

func redisURL(tb testing.TB) string { return "redis://" + redistest.Shared(tb).Addr + "/0" }

// binaries is the directory that the examples are built into.
type binaries string

func TestExamples(t *testing.T) {
	b := build(t)
	for _, framework := range services {
		for _, store := range stores {
			t.Run(framework+"/"+store.name, func(t *testing.T) {
				s := b.start(t, framework, store.url(t))
				t.Run("a POST without a key is refused", s.refusesNoKey)
				t.Run("a POST with a key that can be guessed is refused", s.refusesGuessableKeys)
				t.Run("nobody is served who is not authenticated", s.refusesStrangers)
				t.Run("the keys and payments of one user are not those of another", s.separatesUsers)
				t.Run("bad JSON is answered with a clear error", s.explainsBadJSON)
				t.Run("a second POST gets the first one's answer and makes no payment", s.replays)
				t.Run("SIGTERM ends it with exit code 0", s.endsOnSIGTERM)
			})
		}
		t.Run(framework+"/the page for operators is served on request", func(t *testing.T) {
			assert.GreaterOrEqual(t, b.start(t, framework, "").page(t, "").status, http.StatusUnauthorized)
			b.start(t, framework, "", "-page").showsPage(t)
		})
		t.Run(framework+"/an invalid REDIS_URL ends it with a clear message", func(t *testing.T) {
			out, code := b.run(t, framework, "REDIS_URL=http://:secret@127.0.0.1")
			assert.Equal(t, 1, code)
			assert.Contains(t, out, "REDIS_URL is not a URL such as redis://")
			assert.NotContains(t, out, "secret")
		})
	}
	t.Run("a service replays what another framework kept", b.replayOthers)
	t.Run("race", b.race)
	t.Run("the commands of the README do what it says, word for word", b.readme)
}

func (b binaries) replayOthers(t *testing.T) {
	gin, echo := b.start(t, "gin", redisURL(t)), b.start(t, "echo", redisURL(t))
	for _, c := range []struct {
		name          string
		first, second *service
	}{
		{"echo replays gin", gin, echo},
		{"gin replays echo", echo, gin},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := newKey()
			first, second := c.first.post(t, key, euros), c.second.post(t, key, euros)
			requireReplay(t, first, second)
			assert.Contains(t, c.first.get(t), first.id(t))
			assert.NotContains(t, c.second.get(t), first.id(t))
		})
	}
}

// engineRow is what race prints of the engine: handler runs, most for a key, 201, replays, 409, errors, most ids for a
// key.
var engineRow = regexp.MustCompile(`(?m)^c: this engine +(\d+) +(\d+) +\d+ +\d+ +\d+ +\d+ +(\d+)$`)

func (b binaries) race(t *testing.T) {
	for _, store := range []store{{"miniredis", noRedis}, {"redis", redisURL}} {
		t.Run("the engine runs the handler once per key on "+store.name, func(t *testing.T) {
			t.Parallel()
			out, code := b.run(t, "race", "REDIS_URL="+store.url(t))
			assert.Zero(t, code, out)
			rows := engineRow.FindAllStringSubmatch(out, -1)
			require.Len(t, rows, 2, out)
			assert.Equal(t, []string{"50", "1", "1"}, rows[0][1:], out)
			assert.Equal(t, []string{"1", "1", "1"}, rows[1][1:], out)
			assert.Regexp(t, `(?m)^c: this engine +2 .* 201 .* true$`, out)
		})
	}
}

const (
	euros   = `{"amount": 100, "currency": "EUR"}`
	dollars = `{"amount": 100, "currency": "USD"}`
	marker  = "Idempotent-Replayed"
)

func (s *service) refusesNoKey(t *testing.T) {
	r := s.post(t, "", euros)
	assert.Equal(t, http.StatusBadRequest, r.status)
	assert.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	assert.Contains(t, r.body, `"code":"key-missing"`)
	assert.JSONEq(t, `[]`, s.get(t))
}

func (s *service) refusesGuessableKeys(t *testing.T) {
	for _, key := range []string{"order-17", "1", rand.Text()} {
		r := s.post(t, key, euros)
		assert.Equal(t, http.StatusBadRequest, r.status)
		assert.Contains(t, r.body, `"code":"key-refused"`)
	}
	assert.JSONEq(t, `[]`, s.get(t))
}

func (s *service) refusesStrangers(t *testing.T) {
	for _, token := range []string{"", "nobody"} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			r := s.send(t, token, method, newKey(), euros)
			assert.Equal(t, http.StatusUnauthorized, r.status)
			assert.JSONEq(t, `{"error": "send Authorization: Bearer alice-token"}`, r.body)
		}
	}
}

func (s *service) separatesUsers(t *testing.T) {
	key := newKey()
	first := s.send(t, "bob-token", http.MethodPost, key, dollars)
	second := s.send(t, "bob-token", http.MethodPost, key, dollars)
	assert.Equal(t, []int{http.StatusCreated, http.StatusCreated}, []int{first.status, second.status}, first.body)
	assert.Equal(t, first.body, second.body)
	assert.JSONEq(t, `[]`, s.get(t), "Bob's payments are not Alice's")
	assert.Equal(t, http.StatusBadRequest, s.post(t, key, "{}").status, "nor are his keys hers: hers is new, and has another request")
}

func (s *service) explainsBadJSON(t *testing.T) {
	for _, body := range []string{``, `{`, `{"amount": "100"}`, `{"amount": -1, "currency": "EUR"}`, `[]`} {
		r := s.post(t, newKey(), body)
		assert.Equal(t, http.StatusBadRequest, r.status, body)
		assert.JSONEq(t, `{"error": "send a payment in JSON, such as {\"amount\": 100, \"currency\": \"EUR\"}"}`, r.body)
	}
	assert.JSONEq(t, `[]`, s.get(t))
}

func (s *service) replays(t *testing.T) {
	key := newKey()
	first := s.post(t, key, euros)
	requireReplay(t, first, s.post(t, key, euros))
	mismatch := s.post(t, key, dollars)
	assert.Equal(t, http.StatusUnprocessableEntity, mismatch.status, mismatch.body)
	assert.JSONEq(t, "["+first.body+"]", s.get(t))
}

// requireReplay checks that first made a payment and that second repeats its answer.
func requireReplay(t *testing.T, first, second reply) {
	t.Helper()
	require.Equal(t, http.StatusCreated, first.status, first.body)
	assert.JSONEq(t, `{"id": "`+first.id(t)+`", "amount": 100, "currency": "EUR"}`, first.body)
	assert.Equal(t, "/payments/"+first.id(t), first.header.Get("Location"))
	assert.Empty(t, first.header.Values(marker))
	assert.Equal(t, []string{"true"}, second.header.Values(marker))
	assert.Equal(t, first.status, second.status)
	assert.Equal(t, first.body, second.body)
	assert.Equal(t, first.header.Values("Location"), second.header.Values("Location"))
	assert.Equal(t, first.header.Values("Content-Type"), second.header.Values("Content-Type"))
}

// page gets a page for operators, or sends it a form.
func (s *service) page(t *testing.T, path string, form ...string) reply {
	t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+"/idem/"+path, strings.NewReader(strings.Join(form, "&")))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(t, r)
}

func (s *service) showsPage(t *testing.T) {
	key := newKey()
	require.Equal(t, http.StatusCreated, s.post(t, key, euros).status)
	home := s.page(t, "")
	assert.Equal(t, http.StatusOK, home.status)
	assert.Contains(t, home.body, "kept 1<", "the monitor hears of the run")
	assert.Equal(t, http.StatusOK, s.page(t, "style.css").status)
	assert.Contains(t, s.page(t, "record", "scope=alice", "key="+key).body, "the outcome is stored")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/idem/", nil)
	require.NoError(t, err)
	r.Host = "hostile.example"
	assert.Equal(t, http.StatusForbidden, send(t, r).status, "a hostile name server has sent a browser here")
}

func (s *service) endsOnSIGTERM(t *testing.T) {
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.ended:
		assert.Zero(t, s.cmd.ProcessState.ExitCode(), s.log.String())
	case <-time.After(5 * time.Second):
		t.Errorf("it still runs:\n%s", s.log.String())
	}
}

func build(t *testing.T) binaries {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test builds the examples and runs them")
	}
	dir := t.TempDir()
	for _, module := range append([]string{"."}, modules...) {
		out, err := exec.Command("go", "build", "-C", module, "-o", dir+string(filepath.Separator), "./...").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return binaries(dir)
}

func (b binaries) path(name string) string { return filepath.Join(string(b), name) }

// run runs an example to its end.
func (b binaries) run(t *testing.T, name string, env ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path(name))
	cmd.Env = append(os.Environ(), env...)
	written, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, err)
	return string(written), cmd.ProcessState.ExitCode()
}

// service is an example that runs.
type service struct {
	cmd   *exec.Cmd
	url   string
	log   *output
	ended chan struct{}
}

var listening = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// start starts a service on a free port, and waits until it says that it listens.
func (b binaries) start(t *testing.T, name, redisURL string, args ...string) *service {
	t.Helper()
	s := &service{cmd: exec.Command(b.path(name), args...), log: &output{}, ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "ADDR=127.0.0.1:0", "REDIS_URL="+redisURL)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	require.NoError(t, tied.Start(s.cmd, syscall.SIGKILL))
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); <-s.ended })
	require.Eventually(t, func() bool {
		s.url = listening.FindString(s.log.String())
		return s.url != ""
	}, 20*time.Second, 5*time.Millisecond, "it does not listen")
	inMemory := strings.Contains(s.log.String(), "records live in this process's memory")
	assert.Equal(t, redisURL == "", inMemory, s.log.String())
	return s
}

// output is what a process has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// reply is an answer as a client sees it.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) id(t *testing.T) string {
	t.Helper()
	var payment struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(r.body), &payment), r.body)
	require.NotEmpty(t, payment.ID)
	return payment.ID
}

func (s *service) post(t *testing.T, key, body string) reply {
	t.Helper()
	return s.send(t, "alice-token", http.MethodPost, key, body)
}

func (s *service) send(t *testing.T, token, method, key, body string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+"/payments", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return send(t, r)
}

// newKey is a UUID.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// get returns the payments that were really made for Alice.
func (s *service) get(t *testing.T) string {
	t.Helper()
	list := s.send(t, "alice-token", http.MethodGet, "", "")
	require.Equal(t, http.StatusOK, list.status, list.body)
	return list.body
}

var client = &http.Client{Timeout: 20 * time.Second}

func send(t *testing.T, r *http.Request) reply {
	t.Helper()
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return reply{answer.StatusCode, answer.Header, string(body)}
}
