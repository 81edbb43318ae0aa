package idem

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var digits = regexp.MustCompile(`^[0-9]{1,9}$`)

// FuzzRetryAfter: whatever a server asks for is no negative pause, and seconds are what they say.
func FuzzRetryAfter(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		pause, err := retryAfter(value, time.Now())
		date, noDate := http.ParseTime(value)
		switch {
		case digits.MatchString(value):
			seconds, _ := strconv.Atoi(value)
			assert.NoError(t, err)
			assert.Equal(t, time.Duration(seconds)*time.Second, pause)
		case noDate == nil:
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, pause, time.Duration(0), "%q", value)
			assert.LessOrEqual(t, pause-time.Minute, max(time.Until(date), 0), "%q", value)
		case err == nil:
			assert.Regexp(t, `^[+-]?[0-9]+$`, value)
			assert.GreaterOrEqual(t, pause, time.Duration(0), "%q", value)
			assert.LessOrEqual(t, pause, time.Second<<31, "%q", value)
		}
	})
}
