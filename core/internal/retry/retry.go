// Package retry sends calls to a store again until the store responds. It knows neither the engine nor the stores.
package retry

import "time"

// FirstPause is the pause after the first failure of a call. Each further failure doubles the pause.
const FirstPause = 20 * time.Millisecond

// longestPause bounds the pauses of Until.
const longestPause = 5 * time.Second

// Until calls send until send returns true or the deadline has passed, with growing pauses between the calls. It returns what
// the last call returned. It calls send at least once, and it may call send a last time shortly after the deadline.
func Until(deadline time.Time, send func() (done bool)) bool {
	for pause := FirstPause; ; pause = min(2*pause, longestPause) {
		if send() {
			return true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		time.Sleep(min(pause, left))
	}
}
