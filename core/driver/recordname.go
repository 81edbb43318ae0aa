package driver

import "encoding/base64"

// ScopeBytes is how many bytes at the start of a record's name depend on the scope alone. All records of one scope have them in
// common, and records of two scopes have them in common only by a coincidence of hashes, one in 2^64. The other 24 bytes depend on
// the scope, the key, and the route if keys are per route.
const ScopeBytes = 8

// RecordNameLength is the length of the text form of a record's name in bytes.
const RecordNameLength = 11 + 1 + 32

// AppendRecordName appends the text form of a record's name to b: the part of the scope and the part of the key, each in base64url
// without padding, with a dot in between. Logs, hooks and the keys of Redis have names in this form.
func AppendRecordName(b []byte, name [32]byte) []byte {
	b = base64.RawURLEncoding.AppendEncode(b, name[:ScopeBytes])
	return base64.RawURLEncoding.AppendEncode(append(b, '.'), name[ScopeBytes:])
}

// ParseRecordName returns the name in a text that AppendRecordName has made. It returns false for any other text.
func ParseRecordName(text string) (name [32]byte, ok bool) {
	if len(text) != RecordNameLength || text[11] != '.' {
		return name, false
	}
	strict := base64.RawURLEncoding.Strict()
	scope, scopeErr := strict.Decode(name[:ScopeBytes], []byte(text[:11]))
	key, keyErr := strict.Decode(name[ScopeBytes:], []byte(text[12:]))
	isWhole := scope+key == len(name) // line breaks are ignored, and stand for no byte
	return name, isWhole && scopeErr == nil && keyErr == nil
}
