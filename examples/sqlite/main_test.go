package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/tied"
)

func TestMain(m *testing.M) {
	if os.Getenv("SQLITE_EXAMPLE") != "" {
		main()
		return
	}
	m.Run()
}

// service is the command as a process of its own.
type service struct {
	*exec.Cmd
	url string
}

// start starts the command with a file.
func start(t *testing.T, path string) service {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SQLITE_EXAMPLE=1", "ADDR=127.0.0.1:0", "IDEM_DB="+path)
	logged, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	lines := bufio.NewScanner(logged)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, logged) }()
			return service{cmd, url}
		}
	}
	require.Fail(t, "the service has ended")
	return service{}
}

// pay sends a payment with a key. It returns the response and its body.
func (s service) pay(t *testing.T, key string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/payments", strings.NewReader(`{"amount": 100}`))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", key)
	return s.do(t, r)
}

// do sends a request. It returns the response and its body.
func (s service) do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response, string(body)
}

// count returns how many payments there are.
func (s service) count(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/payments", nil)
	require.NoError(t, err)
	_, body := s.do(t, r)
	return strings.TrimSpace(body)
}

func TestAPaymentIsMadeOnceAlsoAfterAKillAndWithTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "payments.db")
	first := start(t, path)
	response, body := first.pay(t, "order-7")
	assert.Equal(t, http.StatusCreated, response.StatusCode)
	assert.Equal(t, `{"id":1,"amount":100}`+"\n", body)
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()

	both := []service{start(t, path), start(t, path)}
	for _, s := range both {
		again, replayed := s.pay(t, "order-7")
		assert.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		assert.Equal(t, body, replayed)
		assert.Equal(t, "1", s.count(t))
	}
	_, body = both[1].pay(t, "order-8")
	assert.Equal(t, `{"id":2,"amount":100}`+"\n", body)
	_, replayed := both[0].pay(t, "order-8")
	assert.Equal(t, body, replayed)
	for _, s := range both {
		require.NoError(t, s.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, s.Wait())
	}
}

// A sample of what every adapter shows on every store.
func TestAdaptersOnSQLite(t *testing.T) {
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "payments.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	adaptertest.RunSample(t, store, adaptertest.HTTP)
}
