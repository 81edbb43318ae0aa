package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// release returns arguments that release alice's key.
func release(key string, more ...string) []string {
	return append([]string{"release", "alice", key, "--who", "ann", "--reason", "ticket 1"}, more...)
}

func TestReleaseFreesTheKeyOfARunThatFailedOrVanished(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		h := makeUnknown(t, url)
		assert.Equal(t, badUsage, call(t, url, nil, release("K")...).code, "nobody can be asked")
		assert.Equal(t, changed, call(t, url, nil, release("K", "--yes", "--fence", "7")...).code)
		assert.Contains(t, send(h, "alice", "K", "").Body.String(), "outcome-unknown")
		got := call(t, url, nil, release("K", "--yes")...)
		assert.Equal(t, 0, got.code)
		assert.Contains(t, got.stderr, `"act":"release","who":"ann","why":"ticket 1"`)
		assert.Equal(t, "very private", send(h, "alice", "K", "").Body.String())
		kept := call(t, url, nil, release("K", "--yes")...)
		assert.Equal(t, finding, kept.code)
		assert.Contains(t, kept.stderr, "there is nothing to release; nothing was changed: the record is completed")
		assert.NotContains(t, kept.stderr, "ticket 1", "what is not tried is not audited")
		send(h, "alice", "L", "fail")
		assert.JSONEq(t, `{"released": true}`, withoutRecord(call(t, url, nil, release("L", "--yes", "--json")...).stdout))
		assert.Contains(t, call(t, url, nil, release("L", "--yes")...).stderr, "no record has this scope and key")
	})
}

// withoutRecord returns the JSON of an act without the name of its record.
func withoutRecord(json string) string {
	_, rest, _ := strings.Cut(json, ",")
	return "{" + rest
}

func TestReleaseLeavesARunInProgress(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	released, running, ended := make(chan bool), make(chan bool), make(chan bool)
	h := handler(mustConnect(t, url), func() { running <- true; <-released })
	go func() { send(h, "alice", "K", "hang"); ended <- true }()
	<-running
	got := call(t, url, nil, release("K", "--yes")...)
	assert.Equal(t, finding, got.code)
	assert.Contains(t, got.stderr, "nothing was changed: the record is in-progress")
	released <- true
	<-ended
	assert.Equal(t, 0, call(t, url, nil, "show", "alice", "K").code)
}
