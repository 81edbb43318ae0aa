package core

import (
	"strings"

	"github.com/go-idem/idem/core/internal/sfv"
)

// read returns the key of a request, or the code of the problem with it. The header field and its aliases may carry the same
// key; two different keys are a problem (KEY-20).
func (k *KeyConfig) read(req *Request) (key, problem string) {
	problem = codeKeyMissing
	for i := range 1 + len(k.Aliases) {
		name := k.Header
		if i > 0 {
			name = k.Aliases[i-1]
		}
		found, wrong := k.parse(req.Header(name))
		switch {
		case wrong == codeKeyMissing:
		case wrong != "":
			return "", wrong
		case key != "" && key != found:
			return "", codeKeyRepeated
		default:
			key, problem = found, ""
		}
	}
	return key, problem
}

// parse returns the key in the values of one header field, or the code of the problem with them. A key is a structured-field
// String (RFC 9651, section 3.3.3), whose parameters are ignored, or the same text without quotes, as most deployed clients
// send it (KEY-05, KEY-06, KEY-10). Several values form a list, and a list is not a key (KEY-11).
func (k *KeyConfig) parse(values []string) (key, problem string) {
	if len(values) == 0 {
		return "", codeKeyMissing
	}
	if len(values) > 1 {
		return "", codeKeyRepeated
	}
	value := strings.Trim(values[0], " \t")
	key, ok := sfv.String(value)
	if !strings.HasPrefix(value, `"`) {
		key, ok = value, isBareKey(value) && (!k.Strict || value == "")
	}
	switch {
	case !ok:
		return "", codeKeyMalformed
	case strings.Trim(key, " ") == "":
		return "", codeKeyEmpty
	case len(key) < k.MinLength:
		return "", codeKeyTooShort
	case len(key) > k.MaxLength:
		return "", codeKeyTooLong
	}
	if k.Accept != nil {
		if key, ok = k.Accept(key); !ok || key == "" {
			return "", codeKeyRefused
		}
	}
	return key, ""
}

// UUIDKey is a KeyConfig.Accept that accepts UUIDs (RFC 9562) and nothing else. It returns them in lower case, so that the case
// of a UUID does not count (KEY-17, KEY-18).
func UUIDKey(key string) (string, bool) {
	if len(key) != 36 {
		return "", false
	}
	for i := range len(key) {
		isHyphen := i == 8 || i == 13 || i == 18 || i == 23
		if isHyphen != (key[i] == '-') || !isHyphen && strings.IndexByte("0123456789abcdefABCDEF", key[i]) < 0 {
			return "", false
		}
	}
	return strings.ToLower(key), true
}

// isBareKey reports whether s consists of visible ASCII characters that need no quotes. Quotes, commas and semicolons need
// them, because a structured-field parser, or a proxy that combines header fields, would read them differently.
func isBareKey(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F || c == '"' || c == ',' || c == ';' {
			return false
		}
	}
	return true
}
