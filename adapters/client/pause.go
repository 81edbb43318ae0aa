package idem

import (
	"context"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// minPause is the shortest pause before another attempt.
const minPause = 10 * time.Millisecond

// pause returns the pause before an attempt. res is the response of the attempt before, or nil. The pause is longer than MaxPause
// only if the server asks for that.
func (t *Transport) pause(attempt int, res *http.Response) time.Duration {
	own := min(max(t.Pause(attempt), minPause), t.MaxPause)
	if res == nil {
		return own
	}
	now, err := http.ParseTime(res.Header.Get("Date")) // A date in Retry-After is by the same clock.
	if err != nil {
		now = time.Now()
	}
	named, err := retryAfter(res.Header.Get("Retry-After"), now)
	if err != nil {
		return own
	}
	return max(own, named)
}

// defaultPause is the default of Transport.Pause: exponential backoff with jitter.
func defaultPause(attempt int) time.Duration {
	longest := min(100*time.Millisecond<<min(attempt-2, 10), 10*time.Second)
	return longest - mathrand.N(longest/2)
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

// isBeforeDeadline reports whether ctx is still alive at this time, as far as its deadline says.
func isBeforeDeadline(ctx context.Context, at time.Time) bool {
	deadline, ok := ctx.Deadline()
	return !ok || at.Before(deadline)
}

// wait waits until this time and returns nil. If the caller gives up before, wait returns why.
func wait(req *http.Request, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return context.Cause(req.Context())
	//lint:ignore SA1019 An http.Client with a Timeout still sets it.
	case <-req.Cancel:
		return context.Canceled
	}
}
