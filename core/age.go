package core

import (
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

const firstSentHeader = "Repeatability-First-Sent"

// age returns the code of what is wrong with the time that a request was first sent at, "" when nothing is.
func (e *Engine) age(req *Request, key string) string {
	limit := e.cfg.Key.MaxAge
	if limit <= 0 {
		return ""
	}
	tell := e.cfg.Key.SentAt
	if tell == nil {
		tell = sentAt
	}
	sent, ok := tell(req, key)
	age := time.Since(sent)
	switch {
	case !ok || age < -limit: // a clock that is so far ahead would outlive every record
		return codeFirstSentUnknown
	case age >= limit: // its outcome may end at this very moment
		return codeRequestTooOld
	}
	return ""
}

// sentAt is the default of KeyConfig.SentAt.
func sentAt(req *Request, key string) (time.Time, bool) {
	lines := req.Header(firstSentHeader)
	if len(lines) > 0 {
		sent, err := http.ParseTime(lines[0])
		return sent, err == nil && len(lines) == 1
	}
	return uuidTime(key)
}

// uuidTime is the time in a version 7 UUID: milliseconds since 1970 in its first 48 bits (RFC 9562, section 5.7).
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
