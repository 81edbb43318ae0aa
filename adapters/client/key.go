package idem

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-idem/idem/adapters/internal/attempts"
)

// callerKey returns the key that the caller has chosen, as the value of its header field, and whether there is one. An invalid
// key is an error: a new key in its place could do the operation twice.
func (t *Transport) callerKey(req *http.Request) (headerValue string, isGiven bool, err error) {
	var values []string
	for name, v := range req.Header {
		if strings.EqualFold(name, t.Header) {
			values = append(values, v...)
		}
	}
	if headerValue, isGiven, err = attempts.SentKey(t.Header, values); isGiven || err != nil {
		return headerValue, isGiven, err
	}
	key, ok := req.Context().Value(keyContextKey{}).(string)
	if !ok {
		return "", false, nil
	}
	if headerValue, err = attempts.FormatKey(key, t.Bare); err != nil {
		return "", false, fmt.Errorf("idem: not sent: the key that WithKey was given %w", err)
	}
	return headerValue, true, nil
}
