package idem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
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
	switch {
	case len(values) > 1:
		return "", false, fmt.Errorf("idem: not sent: the request has %d %s lines; a key has one", len(values), t.Header)
	case len(values) == 1 && strings.Trim(values[0], " \t") == "":
		return "", false, fmt.Errorf("idem: not sent: the request's %s line is empty; leave it away to get a new key", t.Header)
	case len(values) == 1:
		if i := unprintable(strings.ReplaceAll(values[0], "\t", " ")); i >= 0 {
			return "", false, fmt.Errorf("idem: not sent: the request's %s line has the byte 0x%02X at %d; a key is printable ASCII",
				t.Header, values[0][i], i)
		}
		return values[0], true, nil
	}
	key, ok := req.Context().Value(keyContextKey{}).(string)
	if !ok {
		return "", false, nil
	}
	if headerValue, err = t.formatKey(key); err != nil {
		return "", false, fmt.Errorf("idem: not sent: the key that WithKey was given %w", err)
	}
	return headerValue, true, nil
}

// keyEscaper escapes the text of a structured-field String.
var keyEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// formatKey returns the header value of a key: a structured-field String (RFC 9651, section 4.1.6), or the bare text if Bare is
// set. Its errors do not quote the key, because keys do not belong in logs.
func (t *Transport) formatKey(key string) (string, error) {
	if strings.Trim(key, " ") == "" {
		return "", errors.New("is empty")
	}
	if i := unprintable(key); i >= 0 {
		return "", fmt.Errorf("has the byte 0x%02X at %d; a key is printable ASCII", key[i], i)
	}
	if i := strings.IndexAny(key, ` ",;`); t.Bare && i >= 0 {
		return "", fmt.Errorf("has %q at %d, which needs quotes around the key; choose another key, or leave Transport.Bare unset",
			key[i], i)
	}
	if t.Bare {
		return key, nil
	}
	return `"` + keyEscaper.Replace(key) + `"`, nil
}

// unprintable returns the index of the first byte that is not printable ASCII, or -1.
func unprintable(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return i
		}
	}
	return -1
}

// newKey returns a UUIDv7 (RFC 9562). Servers may demand a UUID, and may read from it when the request was first sent.
func newKey() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // crypto/rand never fails.
	now := time.Now().UnixMilli()
	for i := range 6 {
		u[i] = byte(now >> (40 - 8*i))
	}
	u[6] = u[6]&0x0F | 0x70
	u[8] = u[8]&0x3F | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// isToken reports whether s is a valid name of a header field (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}
