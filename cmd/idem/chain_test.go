package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// service is a process with the handler of the tests.
type service struct {
	addr   string
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

// startService starts a process on a store.
func startService(t *testing.T, url string) *service {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), servesIn+"="+url)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
	s := &service{cmd: cmd, stdout: bufio.NewReader(stdout)}
	t.Cleanup(s.kill)
	s.addr = s.readLine(t)
	return s
}

// readLine returns the next line that the process prints.
func (s *service) readLine(t *testing.T) string {
	t.Helper()
	line, err := s.stdout.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// kill ends the process at once.
func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// send sends a request, and returns the status and the body, and whether it was replayed. The status is 0 if the process is gone.
func (s *service) send(caller, key, do string) (status int, body string, replayed bool) {
	r := request(caller, key, do)
	r.RequestURI, r.URL.Host = "", s.addr
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error(), false
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text), response.Header.Get("Idempotent-Replayed") == "true"
}

// vanished returns the store of a service of which a process was killed during the run of alice's key K, another process of the
// service, and the record, which ls has listed as unknown.
func vanished(t *testing.T, url string) (*service, record) {
	t.Helper()
	first, second := startService(t, url), startService(t, url)
	gone := make(chan int)
	go func() {
		status, _, _ := first.send("alice", "K", "hang")
		gone <- status
	}()
	require.Equal(t, "hangs", first.readLine(t))
	inProgress := call(t, url, nil, "ls", "--state", "in-progress", "--json")
	require.Equal(t, 0, inProgress.code)
	first.kill()
	require.Equal(t, 0, <-gone)
	var listed result
	redistest.Eventually(t, "an unknown outcome is listed", func() bool {
		listed = call(t, url, nil, "ls", "--state", "unknown,failed", "--older", "1ms", "--scope", "alice", "--json")
		return listed.code == 0
	})
	var seen record
	require.NoError(t, json.Unmarshal([]byte(listed.stdout), &seen), "one line")
	assert.Equal(t, "unknown", string(seen.State))
	assert.Negative(t, seen.LeaseSeconds)
	status, body, _ := second.send("alice", "K", "")
	assert.Equal(t, http.StatusConflict, status)
	assert.Contains(t, body, "outcome-unknown")
	return second, seen
}

// written returns a file with this text.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestAnOperatorSettlesTheRunOfAProcessThatWasKilled(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		second, seen := vanished(t, url)
		outcome := written(t, "HTTP/1.1 201 Created\r\nLocation: /refunds/7\r\nContent-Type: application/json\r\n\r\n{\"id\": 7}")
		log := filepath.Join(t.TempDir(), "audit")
		got := call(t, url, nil, "resolve", "alice", "K", "--outcome", outcome, "--no-codecs", "--who", "ann@example.com", "--reason", "ticket 4711",
			"--audit-file", log, "--fence", strconv.FormatInt(seen.Fence, 10))
		require.Equal(t, 0, got.code)
		assert.Contains(t, got.stdout, "the same request gets 201")
		assert.NotContains(t, got.stdout+got.stderr, `"id"`, "no body is shown")
		status, body, replayed := second.send("alice", "K", "")
		assert.Equal(t, http.StatusCreated, status)
		assert.Equal(t, `{"id": 7}`, body)
		assert.True(t, replayed)
		line, err := os.ReadFile(log)
		require.NoError(t, err)
		var act map[string]any
		require.NoError(t, json.Unmarshal(line, &act), "one line")
		delete(act, "time")
		scheme, path, _ := strings.Cut(url, "://")
		place := map[string]string{
			"redis": `prefix "idem:"`, "postgres": `schema "idem"`, "sqlite": "file " + strconv.Quote(path),
		}[scheme]
		assert.Equal(t, map[string]any{
			"act": "resolve", "who": "ann@example.com", "why": "ticket 4711", "place": place, "scope": "alice", "key": "K",
			"record": seen.Record, "state": "unknown", "fence": float64(seen.Fence), "happened": true, "status": 201.0, "length": 9.0,
		}, act)
		again := call(t, url, nil, "resolve", "alice", "K", "--not-done", "--who", "ann", "--reason", "ticket 4712")
		assert.Equal(t, finding, again.code)
		assert.Contains(t, again.stderr, "there is nothing to resolve; nothing was changed: the record is completed")
		assert.NotContains(t, again.stderr, "4712", "what is not tried is not audited")
	})
}

func TestAnOperatorSaysThatARunHasNotHappened(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	second, _ := vanished(t, url)
	got := call(t, url, nil, "resolve", "alice", "K", "--not-done", "--who", "ann", "--reason", "ticket 4711")
	require.Equal(t, 0, got.code)
	assert.Contains(t, got.stderr, `"happened":false`)
	status, body, replayed := second.send("alice", "K", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "very private", body)
	assert.False(t, replayed)
}
