package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core/internal/sfv"
)

// KeyConfig configures which requests are guarded, and which keys are accepted.
type KeyConfig struct {
	// Header is the name of the header field that carries the key. Changing it MAY RUN A KEY TWICE, unless Aliases has the
	// earlier name (SKW-01). Default "Idempotency-Key".
	Header string

	// Aliases are other header fields that may carry the key; two different keys in one request are refused (KEY-20). Set it
	// while clients move from one name to another. Removing a name that clients still use MAY RUN A KEY TWICE (SKW-01). Default
	// none.
	Aliases []string

	// Strict accepts only a quoted structured-field String, as the draft specifies it, and refuses bare keys with 400 (KEY-07,
	// KEY-09). Default false: both forms are accepted and are one key.
	Strict bool

	// Accept receives each well-formed key and returns the form to use, or false to refuse the request with 400 before the
	// store is called (KEY-18). UUIDKey is ready-made. Accept must be safe for concurrent use. A change that gives live keys
	// another form MAY RUN A KEY TWICE (SKW-01). Default: every key is accepted.
	Accept func(key string) (string, bool)

	// PerRoute makes one key on two routes two keys (FPR-03). Changing it MAY RUN A KEY TWICE, unless PerRouteChanged is set
	// (SKW-01). Default false: the second use is a mismatch.
	PerRoute bool

	// PerRouteChanged says that live keys were used under the other value of PerRoute, or that other processes have it. A
	// record under either name is then found, which costs one more store call for each new key. Change PerRoute in three
	// deployments: set PerRouteChanged; change PerRoute; unset PerRouteChanged after twice Keep.Retention. Neighbouring
	// deployments never run a key twice. While it is set, a key of another route may be refused with 422, as without PerRoute
	// (SKW-01). Default false.
	PerRouteChanged bool

	// Required refuses a guarded request without a key with 400. Default false: such a request runs without protection (KEY-02).
	Required bool

	// Methods are the guarded methods; requests with another one pass as if there were no engine. Safe methods, such as GET
	// and QUERY, cannot be guarded (MTH-01). Removing a method MAY RUN A KEY TWICE (SKW-01). Default POST and PATCH.
	Methods []string

	// MinLength and MaxLength bound the length of a key in bytes, without quotes. Raise MinLength if clients might choose keys
	// that collide. Defaults 1 and 255.
	MinLength, MaxLength int

	// MaxAge refuses a request with 412 if it was first sent this long ago or longer, and with 400 if it does not say when it
	// was. It is at most Keep.Retention, so that no retry comes so late that it runs again (TTL-07). The time comes from the
	// client: leave room between MaxAge and Keep.Retention for clocks that are ahead. Default 0: requests of any age run.
	MaxAge time.Duration

	// SentAt returns when a request was first sent, for MaxAge, or false if the request does not say so in a valid form. SentAt
	// must be safe for concurrent use. Default: the HTTP date of the Repeatability-First-Sent header field, or else the time in
	// a UUIDv7 key (RFC 9562).
	SentAt func(req *Request, key string) (time.Time, bool)
}

// withDefaults returns a copy that shares nothing with k, in which every unset field has its default.
func (k KeyConfig) withDefaults() KeyConfig {
	k.Header = cmp.Or(k.Header, "Idempotency-Key")
	k.Methods = slices.Clone(k.Methods)
	if k.Methods == nil {
		k.Methods = []string{"POST", "PATCH"}
	}
	k.Aliases = slices.Clone(k.Aliases)
	k.MinLength = cmp.Or(k.MinLength, 1)
	k.MaxLength = cmp.Or(k.MaxLength, 255)
	return k
}

// validate checks the names and bounds of a KeyConfig.
func (k *KeyConfig) validate(f *configErrors) {
	f.require(sfv.IsToken(k.Header) && !isReserved(k.Header), "Key.Header",
		"%q is not a header name that a client can choose", k.Header)
	for _, alias := range k.Aliases {
		f.require(sfv.IsToken(alias) && !isReserved(alias) && !strings.EqualFold(alias, k.Header), "Key.Aliases",
			"%q must be a header name other than Key.Header", alias)
	}
	f.require(len(k.Methods) > 0, "Key.Methods", "is empty: nothing would be protected; leave it nil for POST and PATCH")
	for _, m := range k.Methods {
		f.require(sfv.IsToken(m) && m == strings.ToUpper(m), "Key.Methods", "%q is not a method; methods are upper-case", m)
		f.require(!slices.Contains(safeMethods, m), "Key.Methods", "%s is safe to repeat and cannot be guarded", m)
	}
	f.require(k.SentAt == nil || k.MaxAge > 0, "Key.SentAt", "is for Key.MaxAge, which is not set")
	f.require(k.MinLength > 0, "Key.MinLength", "%d: must be positive", k.MinLength)
	f.require(k.MaxLength >= k.MinLength, "Key.MaxLength", "%d is less than Key.MinLength %d", k.MaxLength, k.MinLength)
}

// firstSentHeader is the header field of the Repeatable Requests specification (OASIS) that says when a request was first sent.
const firstSentHeader = "Repeatability-First-Sent"

// reservedHeaders has header fields that requests and responses use for other purposes, so that neither a key nor the marker can
// be in them.
var reservedHeaders = []string{
	"Host", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Cookie", "Set-Cookie",
	"Authorization", "Date", "Retry-After", "Link", "Location", bodyHeader, unprotectedHeader, firstSentHeader,
}

// isReserved reports whether name, in any case, is in reservedHeaders.
func isReserved(name string) bool {
	return slices.ContainsFunc(reservedHeaders, func(r string) bool { return strings.EqualFold(r, name) })
}

// safeMethods has the methods that IANA's registry of HTTP methods lists as safe: RFC 9110, RFC 9113, RFC 3253, RFC 4918,
// RFC 5323 and, with QUERY, RFC 10008.
var safeMethods = []string{"GET", "HEAD", "OPTIONS", "TRACE", "PRI", "PROPFIND", "QUERY", "REPORT", "SEARCH"}

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
