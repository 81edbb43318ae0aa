package core

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// uuid7 is a UUID whose version says that it begins with a time.
var uuid7 = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

// FuzzSentAt reads the time that a request was first sent at, of its lines or else of its key, and holds it to a limit.
func FuzzSentAt(f *testing.F) {
	f.Fuzz(func(t *testing.T, lines, key string, limit int64) {
		req := &Request{Header: func(string) []string { return strings.Split(lines, "\n")[1:] }}
		sent, ok := defaultSentAt(req, key)
		switch n := strings.Count(lines, "\n"); {
		case n > 1:
			assert.False(t, ok, "of two times one may be wrong")
		case n == 1 && ok:
			again, err := http.ParseTime(sent.UTC().Format(http.TimeFormat))
			assert.NoError(t, err)
			assert.True(t, again.Equal(sent.Truncate(time.Second)), "%q gives %v", lines, sent)
		case n == 0:
			assert.Equal(t, uuid7.MatchString(key), ok, "%q", key)
		}
		if n := strings.Count(lines, "\n"); n == 0 && ok {
			ms, err := strconv.ParseInt(key[:8]+key[9:13], 16, 64)
			assert.NoError(t, err)
			assert.Equal(t, ms, sent.UnixMilli(), "%q", key)
		}
		checkAge(t, req, key, time.Duration(limit), sent, ok)
	})
}

// checkAge compares times where the engine compares ages.
func checkAge(t *testing.T, req *Request, key string, limit time.Duration, sent time.Time, ok bool) {
	t.Helper()
	want := func(now time.Time) string {
		switch {
		case limit <= 0:
			return ""
		case !ok || sent.After(now.Add(limit)):
			return codeFirstSentUnknown
		case !sent.After(now.Add(-limit)):
			return codeRequestTooOld
		}
		return ""
	}
	before := want(time.Now())
	got := (&KeyConfig{MaxAge: limit}).checkAge(req, key)
	if after := want(time.Now()); before == after {
		assert.Equal(t, want(time.Now()), got, "%v, %v", sent, limit)
	}
}
