package core

import (
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// checkAge returns the code of the problem with the time at which a request was first sent, or "" if there is none.
func (k *KeyConfig) checkAge(req *Request, key string) string {
	if k.MaxAge <= 0 {
		return ""
	}
	sentAt := k.SentAt
	if sentAt == nil {
		sentAt = defaultSentAt
	}
	sent, ok := sentAt(req, key)
	age := time.Since(sent)
	switch {
	case !ok || age < -k.MaxAge: // with a clock that is so far ahead, the request could be retried after its record has expired
		return codeFirstSentUnknown
	case age >= k.MaxAge: // the outcome may expire at this very moment
		return codeRequestTooOld
	}
	return ""
}

// defaultSentAt is the default of KeyConfig.SentAt: it reads the header field, or else the time in the key.
func defaultSentAt(req *Request, key string) (time.Time, bool) {
	values := req.Header(firstSentHeader)
	if len(values) > 0 {
		sent, err := http.ParseTime(values[0])
		return sent, err == nil && len(values) == 1
	}
	return uuidTime(key)
}

// uuidTime returns the time in a version 7 UUID, whose first 48 bits are milliseconds since 1970 (RFC 9562, section 5.7). It
// returns false for any other key.
func uuidTime(key string) (time.Time, bool) {
	uuid, ok := UUIDKey(key)
	if !ok || uuid[14] != '7' {
		return time.Time{}, false
	}
	bits, _ := hex.DecodeString(strings.ReplaceAll(uuid[:13], "-", ""))
	var ms int64
	for _, b := range bits {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms), true
}
