package idem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// callerKey returns the key that the caller chose, as its header line carries it, and whether there is one. One that is there
// but bad is an error, never taken for none.
func (t *Transport) callerKey(req *http.Request) (line string, given bool, err error) {
	var lines []string
	for name, values := range req.Header {
		if strings.EqualFold(name, t.Header) {
			lines = append(lines, values...)
		}
	}
	switch {
	case len(lines) > 1:
		return "", false, fmt.Errorf("idem: not sent: the request has %d %s lines; a key has one", len(lines), t.Header)
	case len(lines) == 1 && strings.Trim(lines[0], " \t") == "":
		return "", false, fmt.Errorf("idem: not sent: the request's %s line is empty; leave it away to get a new key", t.Header)
	case len(lines) == 1:
		if i := unprintable(strings.ReplaceAll(lines[0], "\t", " ")); i >= 0 {
			return "", false, fmt.Errorf("idem: not sent: the request's %s line has the byte 0x%02X at %d; a key is printable ASCII", t.Header, lines[0][i], i)
		}
		return lines[0], true, nil
	}
	key, ok := req.Context().Value(keyContextKey{}).(string)
	if !ok {
		return "", false, nil
	}
	if line, err = t.formatKey(key); err != nil {
		return "", false, fmt.Errorf("idem: not sent: the key that WithKey was given %w", err)
	}
	return line, true, nil
}

var keyEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// formatKey returns the header line of a key: a structured-field String (RFC 9651, section 4.1.6), or the bare text. An error
// says what is wrong with the key, and does not quote it, since keys do not belong into logs.
func (t *Transport) formatKey(key string) (string, error) {
	if strings.Trim(key, " ") == "" {
		return "", errors.New("is empty")
	}
	if i := unprintable(key); i >= 0 {
		return "", fmt.Errorf("has the byte 0x%02X at %d; a key is printable ASCII", key[i], i)
	}
	if i := strings.IndexAny(key, ` ",;`); t.Bare && i >= 0 {
		return "", fmt.Errorf("has %q at %d, which needs quotes around the key; choose another key, or leave Transport.Bare unset", key[i], i)
	}
	if t.Bare {
		return key, nil
	}
	return `"` + keyEscaper.Replace(key) + `"`, nil
}

// unprintable returns where the first byte is that is no printable ASCII, or -1.
func unprintable(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return i
		}
	}
	return -1
}

// newKey is a UUIDv7 (RFC 9562): servers may ask for a UUID, and for the time at which a request was first sent.
func newKey() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	now := time.Now().UnixMilli()
	for i := range 6 {
		u[i] = byte(now >> (40 - 8*i))
	}
	u[6] = u[6]&0x0F | 0x70
	u[8] = u[8]&0x3F | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// isToken tells whether s can be the name of a header line (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}
