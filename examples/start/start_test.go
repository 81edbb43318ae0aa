package start_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// address is where the programs listen.
const address = "127.0.0.1:8080"

// path is what the commands of the page call, by program: most have the first.
var path = map[string]string{"": "/payments", "connect": "/grpc.testing.TestService/UnaryCall"}

// programs returns the directories of this module, each of which has a program.
func programs(t *testing.T) (names []string) {
	t.Helper()
	found, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	for _, file := range found {
		names = append(names, filepath.Dir(file))
	}
	require.Len(t, names, 8)
	return names
}

// read returns a file as text.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(file))
	require.NoError(t, err)
	return string(text)
}

// The page shows each program as it is, and no other.
func TestThePageShowsEachProgram(t *testing.T) {
	page := read(t, "../../docs/start.md")
	names := programs(t)
	assert.Len(t, regexp.MustCompile("(?m)^```go$").FindAllString(page, -1), len(names))
	for _, name := range names {
		assert.Contains(t, page, "```go\n"+read(t, name+"/main.go")+"```\n", name)
	}
}

// Each program, as it stands there, responds to a retry with the response to the first request.
func TestEachProgramReplays(t *testing.T) {
	for _, name := range programs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := freeAddress(t)
			program := exec.CommandContext(t.Context(), build(t, name, addr))
			if name == "grpc" { // it is its own client
				assert.Equal(t, "payment 1 replayed: []\npayment 1 replayed: [true]\n", firstLines(t, program, 2))
				return
			}
			require.NoError(t, program.Start())
			t.Cleanup(func() { _, _ = program.Process.Kill(), program.Wait() })
			first, body := pay(t, "http://"+addr, name)
			again, sameBody := pay(t, "http://"+addr, name)
			assert.Contains(t, body, "payment 1")
			assert.Equal(t, body, sameBody)
			assert.Equal(t, first.StatusCode, again.StatusCode)
			assert.Empty(t, first.Header.Get("Idempotent-Replayed"))
			assert.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		})
	}
}

// freeAddress returns an address where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// build builds a program with another address, and returns its file.
func build(t *testing.T, name, addr string) string {
	t.Helper()
	dir, source := t.TempDir(), read(t, name+"/main.go")
	require.Contains(t, source, address)
	changed := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(changed, []byte(strings.ReplaceAll(source, address, addr)), 0o600))
	original, err := filepath.Abs(name + "/main.go")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	binary := filepath.Join(dir, name)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./"+name).CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// firstLines starts a program and returns the first lines that it prints.
func firstLines(t *testing.T, program *exec.Cmd, n int) (text string) {
	t.Helper()
	out, err := program.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	t.Cleanup(func() { _, _ = program.Process.Kill(), program.Wait() })
	for strings.Count(text, "\n") < n {
		b := make([]byte, 1)
		_, err := io.ReadFull(out, b)
		require.NoError(t, err, text)
		text += string(b)
	}
	return text
}

// pay sends the request of the page's command, as soon as somebody listens.
func pay(t *testing.T, url, name string) (*http.Response, string) {
	t.Helper()
	to, ok := path[name]
	if !ok {
		to = path[""]
	}
	for tries := 0; ; tries++ {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+to, strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order-7")
		response, err := http.DefaultClient.Do(r)
		if err != nil && tries < 200 { // it does not listen yet
			time.Sleep(20 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response, string(body)
	}
}
