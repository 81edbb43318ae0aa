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

const minPause = 10 * time.Millisecond

// pause is the wait before an attempt. It exceeds MaxPause when the server asks for that.
func (t *Transport) pause(attempt int, res *http.Response) time.Duration {
	own := min(max(t.Pause(attempt), minPause), t.MaxPause)
	if res == nil {
		return own
	}
	now, err := http.ParseTime(res.Header.Get("Date")) // a date in Retry-After is of the same clock
	if err != nil {
		now = time.Now()
	}
	named, err := retryAfter(res.Header.Get("Retry-After"), now)
	if err != nil {
		return own
	}
	return max(own, named)
}

// defaultPause is the default of Transport.Pause.
func defaultPause(attempt int) time.Duration {
	longest := min(100*time.Millisecond<<min(attempt-2, 10), 10*time.Second)
	return longest - mathrand.N(longest/2)
}

const maxRetryAfter = math.MaxInt32

// retryAfter reads seconds or a date: RFC 9110, section 10.2.3.
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

// isBeforeDeadline tells whether ctx leaves room for an attempt at a time.
func isBeforeDeadline(ctx context.Context, at time.Time) bool {
	deadline, ok := ctx.Deadline()
	return !ok || at.Before(deadline)
}

// wait returns nil at a time, or the reason why the caller gave up before it.
func wait(req *http.Request, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return context.Cause(req.Context())
	//lint:ignore SA1019 deprecated, and an http.Client with a Timeout still sets it
	case <-req.Cancel:
		return context.Canceled
	}
}
