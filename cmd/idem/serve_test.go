package main

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startPage starts idem serve as a process, and returns the URL of its page.
func startPage(t *testing.T, store string, args ...string) string {
	t.Helper()
	flags := append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
	return process(t, []string{isCommand + "=1", "IDEM_STORE=" + store}, flags...).readLine(t)
}

// submit sends a form to the page, as somebody, and returns what a browser shows.
func submit(t *testing.T, page, path, who string, form url.Values) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if who != "" {
		r.Header.Set("X-Operator", who)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// formOf returns the hidden fields of a page.
func formOf(text string) url.Values {
	form := url.Values{}
	for _, field := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).FindAllStringSubmatch(text, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	return form
}

func TestThePageSettlesThePaymentOfAProcessThatWasKilled(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, store string) {
		second, seen := vanished(t, store)
		log := filepath.Join(t.TempDir(), "audit")
		page := startPage(t, store, "--actor-header", "X-Operator", "--no-codecs", "--audit-file", log)
		_, text := submit(t, page, "unknown", "ann", nil)
		assert.Contains(t, text, seen.Record, "OPR-06: the page lists it")
		of := url.Values{"scope": {"alice"}, "key": {"K"}, "act": {"resolve"}}
		status, _ := submit(t, page, "confirm", "", of)
		assert.Equal(t, http.StatusForbidden, status, "OPR-06: nobody is named")
		_, text = submit(t, page, "confirm", "ann", of)
		form := formOf(text)
		form.Set("why", "ticket 4711")
		form.Set("response", "HTTP/1.1 201 Created\r\nLocation: /refunds/7\r\n\r\n{\"id\": 7}")
		status, text = submit(t, page, "act", "ann", form)
		require.Equal(t, http.StatusOK, status, text)
		status, body, replayed := second.send("alice", "K", "")
		assert.Equal(t, http.StatusCreated, status)
		assert.Equal(t, `{"id": 7}`, body)
		assert.True(t, replayed)
		line, err := os.ReadFile(log)
		require.NoError(t, err)
		var act audited
		require.NoError(t, json.Unmarshal(line, &act), "one line")
		assert.Equal(t, []string{"ann", "ticket 4711", "alice", "K"}, []string{act.Who, act.Why, act.Scope, act.Key})
		assert.Equal(t, seen.Fence, act.Fence)
		status, text = submit(t, page, "act", "ann", form)
		assert.Equal(t, http.StatusConflict, status, "it was settled: %s", text)
		again, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, line, again, "what is not tried is not audited")
	})
}

func TestServeRefusesToShowRecordsToOthers(t *testing.T) {
	t.Parallel()
	const store = "redis://127.0.0.1:1"
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "is not loopback"},
		{[]string{"--listen", ":0"}, "is not loopback"},
		{[]string{"--listen", "localhost.example:0"}, "is not loopback"},
		{[]string{"--listen", "8099"}, "must be an address"},
		{[]string{"--actor-header", "X-Operator"}, "how does the service store outcomes?"},
		{[]string{"--actor-header", "X-Operator", "--no-codecs", "--seal-key", "a=b"}, "how does the service store outcomes?"},
	} {
		got := call(t, store, nil, append([]string{"serve"}, test.args...)...)
		assert.Equal(t, badUsage, got.code, test.args)
		assert.Contains(t, got.stderr, test.says)
	}
	page := startPage(t, store)
	status, text := submit(t, page, "unknown", "ann", nil)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, text, "nothing was changed")
	assert.Contains(t, text, "read-only", "without --actor-header no field names anybody")
	assert.Empty(t, onlyValue(http.Header{"X-Operator": {"ann", "bob"}}, "X-Operator"), "a client has added its own")
}
