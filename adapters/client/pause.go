package idem

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// askedPause returns the pause that a response asks for, or 0. res may be nil.
func askedPause(res *http.Response) time.Duration {
	if res == nil {
		return 0
	}
	now, err := http.ParseTime(res.Header.Get("Date")) // A date in Retry-After is by the same clock.
	if err != nil {
		now = time.Now()
	}
	asked, err := retryAfter(res.Header.Get("Retry-After"), now)
	if err != nil {
		return 0
	}
	return asked
}

// maxRetryAfter is the largest Retry-After in seconds; larger values count as this one.
const maxRetryAfter = math.MaxInt32

// retryAfter parses a Retry-After value, which is a number of seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(value string, now time.Time) (time.Duration, error) {
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > maxRetryAfter {
			seconds = maxRetryAfter
		}
		return time.Duration(seconds) * time.Second, nil
	}
	date, err := http.ParseTime(value)
	return max(date.Sub(now), 0), err
}
