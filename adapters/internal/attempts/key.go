package attempts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// keyEscaper escapes the text of a structured-field String.
var keyEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// FormatKey returns the header value of a key: a structured-field String (RFC 9651, section 4.1.6), or the bare text. Its errors
// do not quote the key, because keys do not belong in logs.
func FormatKey(key string, bare bool) (string, error) {
	if strings.Trim(key, " ") == "" {
		return "", errors.New("is empty")
	}
	if i := Unprintable(key); i >= 0 {
		return "", fmt.Errorf("has the byte 0x%02X at %d; a key is printable ASCII", key[i], i)
	}
	if i := strings.IndexAny(key, ` ",;`); bare && i >= 0 {
		return "", fmt.Errorf("has %q at %d, which needs quotes around the key; choose another key, or leave Transport.Bare unset",
			key[i], i)
	}
	if bare {
		return key, nil
	}
	return `"` + keyEscaper.Replace(key) + `"`, nil
}

// Unprintable returns the index of the first byte that is not printable ASCII, or -1. A structured-field String has no other
// bytes.
func Unprintable(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return i
		}
	}
	return -1
}

// NewKey returns a UUIDv7 (RFC 9562). Servers may demand a UUID, and may read from it when the request was first sent.
func NewKey() string {
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

// SentKey returns the value that a caller has put into the header field name, and whether there is one. An invalid value is an
// error: a new key in its place could do the operation twice.
func SentKey(name string, values []string) (value string, isGiven bool, err error) {
	switch {
	case len(values) > 1:
		return "", false, fmt.Errorf("idem: not sent: the request has %d %s lines; a key has one", len(values), name)
	case len(values) == 1 && strings.Trim(values[0], " \t") == "":
		return "", false, fmt.Errorf("idem: not sent: the request's %s line is empty; leave it away to get a new key", name)
	case len(values) == 1:
		if i := Unprintable(strings.ReplaceAll(values[0], "\t", " ")); i >= 0 {
			return "", false, fmt.Errorf("idem: not sent: the request's %s line has the byte 0x%02X at %d; a key is printable ASCII",
				name, values[0][i], i)
		}
		return values[0], true, nil
	}
	return "", false, nil
}

// IsToken reports whether s is a valid name of a header field (RFC 9110, section 5.6.2).
func IsToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}
