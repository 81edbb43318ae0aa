package examples_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// clientPrograms are the programs of docs/clients.md that another language runs: the command, what it needs, and what is added to
// the block.
var clientPrograms = map[string]struct{ command, needs, file, more string }{
	"sh": {"sh", "curl", "client.sh", ""},
	"js": {"node", "node", "client.mjs", "\nconst r = await send(process.env.URL, 'K', '{\"amount\": 100}')\nconsole.log(r.status)\nconsole.log(await r.text())\n"},
}

// attempt is what a service does with one attempt of an operation.
type attempt func(s *paymentService, w http.ResponseWriter, r *http.Request)

// serves pays behind an engine.
func serves(s *paymentService, w http.ResponseWriter, r *http.Request) { s.payments.ServeHTTP(w, r) }

// loses pays behind an engine, and the response is lost.
func loses(s *paymentService, _ http.ResponseWriter, r *http.Request) {
	s.payments.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// fails is a failure of the service itself.
func fails(_ *paymentService, w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// refuses returns what a client sees of an engine that refuses a request with this code.
func refuses(code, retryAfter string) attempt {
	return func(_ *paymentService, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"code":"` + code + `"}`))
	}
}

// paymentService does with each attempt what attempts say, and notes the keys.
type paymentService struct {
	payments http.Handler
	attempts []attempt

	mu   sync.Mutex
	keys []string
	runs int
}

func newPaymentService(t *testing.T, attempts []attempt) (s *paymentService, url string) {
	t.Helper()
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	s = &paymentService{attempts: attempts}
	s.payments = idem.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.runs++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "payment %d\n", s.runs)
	}))
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

// ServeHTTP implements http.Handler, for one attempt at a time.
func (s *paymentService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	if len(s.keys) > len(s.attempts) {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	s.attempts[len(s.keys)-1](s, w, r)
}

// operations have what a service does with the attempts of one operation, and the status that its client is left with.
var operations = map[string]struct {
	attempts []attempt
	status   string
}{
	"a lost response, and a run in progress": {[]attempt{loses, refuses("in-progress", "1"), serves}, "201"},
	"an outcome that is unknown":             {[]attempt{refuses("outcome-unknown", "")}, "409"},
	"a record that is lost":                  {[]attempt{refuses("record-lost", "")}, "409"},
	"a service that fails":                   {[]attempt{fails, serves}, "201"},
}

func TestTheProgramsOfTheClientsPageGetTheirOutcome(t *testing.T) {
	page := readFile(t, "../docs/clients.md")
	for language, program := range clientPrograms {
		block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(page)
		require.NotNil(t, block, language)
		for name, c := range operations {
			t.Run(language+"/"+name, func(t *testing.T) {
				t.Parallel()
				if _, err := exec.LookPath(program.needs); err != nil {
					t.Skip("no " + program.needs)
				}
				s, url := newPaymentService(t, c.attempts)
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, program.file), []byte(block[1]+program.more), 0o600))
				client := exec.Command(program.command, program.file)
				client.Dir, client.Env = dir, append(os.Environ(), "URL="+url)
				out, err := client.CombinedOutput()
				require.NoError(t, err, "%s", out)
				status, body, _ := strings.Cut(string(out), "\n")
				assert.Equal(t, c.status, status)
				assert.Equal(t, c.status == "201", strings.HasPrefix(body, "payment 1"), body)
				assert.Len(t, s.keys, len(c.attempts), "attempts")
				for _, key := range s.keys {
					assert.Equal(t, s.keys[0], key)
				}
			})
		}
	}
}
