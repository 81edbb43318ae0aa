package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// pay is a service of its own process without an engine. It appends the key of each payment to a file, prints a line, and may
// then hang. If an earlier run may have paid, it looks into the file first.
func pay(file string) {
	listener, err := net.Listen("tcp", os.Getenv(paysAt))
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key") + "\n"
		if r.Header.Get(proxy.TakeoverHeader) == "true" {
			if payments, _ := os.ReadFile(file); strings.Contains(string(payments), key) {
				_, _ = io.WriteString(w, "paid earlier")
				return
			}
		}
		payments, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(payments, key)
		_ = payments.Close()
		fmt.Println("paid")
		if os.Getenv(paysForever) != "" {
			select {}
		}
		_, _ = io.WriteString(w, "paid")
	})))
}

// process starts this program as another process, with more of the environment.
func process(t *testing.T, environment []string, args ...string) *service {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
	s := &service{cmd: cmd, stdout: bufio.NewReader(stdout)}
	t.Cleanup(s.kill)
	return s
}

// payments starts a service at an address that pays into a file, and may hang after the first payment.
func payments(t *testing.T, addr, file, forever string) *service {
	t.Helper()
	s := process(t, []string{paysInto + "=" + file, paysAt + "=" + addr, paysForever + "=" + forever})
	s.addr = s.readLine(t)
	return s
}

// guarded starts idem proxy in front of a service.
func guarded(t *testing.T, store string, upstream *service, args ...string) *service {
	t.Helper()
	flags := []string{"proxy", "--listen", "127.0.0.1:0", "--upstream", "http://" + upstream.addr, "--scope-header", "Caller"}
	s := process(t, []string{isCommand + "=1", "IDEM_STORE=" + store}, append(flags, args...)...)
	s.addr = strings.TrimPrefix(s.readLine(t), "--listen ")
	return s
}

func TestAServiceThatIsKilledMidPaymentPaysOnce(t *testing.T) {
	t.Parallel()
	newFile := func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "payments.db") }
	for name, test := range map[string]struct {
		after string
		store func(*testing.T) string
	}{
		"refuse": {"refuse", redisURL}, "refuse, in a file": {"refuse", newFile},
		"run": {"run", redisURL}, "run, in a file": {"run", newFile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, store, file := test.after, test.store(t), filepath.Join(t.TempDir(), "payments")
			first := payments(t, "127.0.0.1:0", file, "forever")
			guard := guarded(t, store, first, "--lease", lease.String(), "--after-unknown", after)
			cut := make(chan string)
			go func() {
				status, body, _ := guard.send("alice", "K", "")
				cut <- fmt.Sprint(status, body)
			}()
			require.Equal(t, "paid", first.readLine(t))
			first.kill()
			assert.Regexp(t, `^502.*upstream-cut`, <-cut)
			second := payments(t, first.addr, file, "")
			status, body, replayed := guard.send("alice", "K", "")
			assert.Equal(t, http.StatusConflict, status, "the outcome is not known")
			if after == "refuse" {
				redistest.Eventually(t, "the outcome counts as unknown", func() bool {
					_, body, _ := guard.send("alice", "K", "")
					return strings.Contains(body, "outcome-unknown")
				})
				outcome := written(t, "HTTP/1.1 200 OK\r\n\r\npaid, says the operator")
				got := call(t, store, nil, "resolve", "alice", "K", "--outcome", outcome, "--no-codecs", "--who", "ann", "--reason", "4711")
				require.Equal(t, 0, got.code)
				_, body, replayed = guard.send("alice", "K", "")
				assert.Equal(t, "paid, says the operator", body)
				assert.True(t, replayed)
			} else {
				redistest.Eventually(t, "a retry runs", func() bool {
					status, body, replayed = guard.send("alice", "K", "")
					return status == http.StatusOK
				})
				assert.Equal(t, "paid earlier", body)
				assert.False(t, replayed)
			}
			status, body, _ = guard.send("alice", "L", "")
			assert.Equal(t, "200 paid", fmt.Sprint(status, " ", body))
			require.Equal(t, "paid", second.readLine(t))
			paid, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, "K\nL\n", string(paid))
		})
	}
}

func TestAProxyEndsAfterItsRequests(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		_, _ = io.WriteString(w, "paid")
	})}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	store, upstream := redisURL(t), &service{addr: listener.Addr().String()}
	first := guarded(t, store, upstream, "--health-listen", "127.0.0.1:0")
	health := strings.TrimPrefix(first.readLine(t), "--health-listen ")
	assert.Equal(t, http.StatusOK, probe(t, health, "/live"))
	assert.Equal(t, http.StatusOK, probe(t, health, "/ready"))
	paid := make(chan string)
	go func() {
		status, body, _ := first.send("alice", "K", "")
		paid <- fmt.Sprint(status, " ", body)
	}()
	<-entered
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
	redistest.Eventually(t, "the proxy is not ready", func() bool {
		return probe(t, health, "/ready") == http.StatusServiceUnavailable
	})
	close(leave)
	assert.Equal(t, "200 paid", <-paid)
	require.NoError(t, first.cmd.Wait(), "the exit code is 0")
	_, body, replayed := guarded(t, store, upstream).send("alice", "K", "")
	assert.Equal(t, "paid", body)
	assert.True(t, replayed)
}

// probe returns the status of a probe.
func probe(t *testing.T, addr, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

func TestAProxyIsNotReadyWithoutItsStore(t *testing.T) {
	t.Parallel()
	first := guarded(t, "redis://127.0.0.1:1", &service{addr: "127.0.0.1:1"}, "--health-listen", "127.0.0.1:0")
	health := strings.TrimPrefix(first.readLine(t), "--health-listen ")
	assert.Equal(t, http.StatusServiceUnavailable, probe(t, health, "/ready"))
	assert.Equal(t, http.StatusOK, probe(t, health, "/live"))
	status, body, _ := first.send("", "K", "")
	assert.Equal(t, http.StatusUnauthorized, status, "an empty caller is none")
	assert.Contains(t, body, "scope-missing")
}

func TestAProxyIsReadyIfItsUserIsNotAllowedToSendPing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-ping"}
	require.NoError(t, server.Client(t).Do(t.Context(), rules...).Err())
	first := guarded(t, "redis://app:secret@"+server.Addr, &service{addr: "127.0.0.1:1"}, "--health-listen", "127.0.0.1:0")
	health := strings.TrimPrefix(first.readLine(t), "--health-listen ")
	assert.Equal(t, http.StatusOK, probe(t, health, "/ready"))
	server.Kill()
	assert.Equal(t, http.StatusServiceUnavailable, probe(t, health, "/ready"))
}

func TestBadFlagsOfAProxyAreNamed(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end() // what is accepted by mistake does not serve
	for want, args := range map[string][]string{
		"--upstream":          {"--scope-header", "Caller", "--upstream", "127.0.0.1:3000"},
		"--single-tenant":     {"--upstream", "http://a"},
		"remove one":          {"--upstream", "http://a", "--single-tenant", "--scope-header", "Caller"},
		"--after-unknown":     {"--upstream", "http://a", "--single-tenant", "--after-unknown", "pray"},
		"--upstream-timeout":  {"--upstream", "http://a", "--single-tenant", "--upstream-timeout", "0s"},
		"--shutdown-timeout":  {"--upstream", "http://a", "--single-tenant", "--shutdown-timeout", "-1s"},
		"--lease":             {"--upstream", "http://a", "--single-tenant", "--lease", "1ms"},
		"--retention":         {"--upstream", "http://a", "--single-tenant", "--retention", "1s"},
		"--wait":              {"--upstream", "http://a", "--single-tenant", "--wait", "1us"},
		"--max-body":          {"--upstream", "http://a", "--single-tenant", "--max-body", "-1"},
		"--max-response-body": {"--upstream", "http://a", "--single-tenant", "--max-response-body", "-1"},
		"--methods":           {"--upstream", "http://a", "--single-tenant", "--methods", "GET"},
		"--listen":            {"--upstream", "http://a", "--single-tenant", "--listen", "127.0.0.1:nowhere"},
		"--health-listen":     {"--upstream", "http://a", "--single-tenant", "--listen", "127.0.0.1:0", "--health-listen", "nowhere"},
		"--secret-file":       {"--upstream", "http://a", "--single-tenant", "--secret-file", written(t, "short")},
		"ScopeHeader":         {"--upstream", "http://a", "--scope-header", "Idempotency-Fence"},
		"Upstream":            {"--upstream", "http://a?b=c", "--single-tenant"},
	} {
		got := callWith(t, ended, &program{getenv: func(string) string { return "" }},
			append([]string{"--store", "redis://127.0.0.1:1", "proxy"}, args...)...)
		assert.Equal(t, badUsage, got.code, want)
		assert.Contains(t, got.stderr, want)
	}
}
