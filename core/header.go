package core

import (
	"slices"
	"strings"

	"github.com/go-idem/idem/core/internal/sfv"
)

// neverKept has the header fields of a response that HTTP forbids to repeat, in lower case: hop-by-hop fields (RPL-12), proxy
// authentication (RPL-14), the date and the length (RPL-11, RPL-13).
var neverKept = map[string]bool{
	"connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"proxy-connection": true, "proxy-authenticate": true, "proxy-authentication-info": true, "proxy-authorization": true,
	"content-length": true, "date": true,
}

// notKept has header fields that belong to one exchange, but that KeepConfig.AllowHeaders may allow: credentials (RPL-15), and
// fields that describe the connection, the request or the time (RPL-16).
var notKept = map[string]bool{
	"age": true, "alt-svc": true, "set-cookie": true, "authorization": true, "www-authenticate": true,
	"authentication-info": true, "x-request-id": true, "traceparent": true, "tracestate": true, "server-timing": true,
}

// notKeptPrefixes has the prefixes of more such names.
var notKeptPrefixes = []string{"ratelimit", "x-ratelimit"}

// headerRules maps names of header fields, in lower case, to whether they are stored. A name that is not in the map is stored
// unless it has one of the prefixes in notKeptPrefixes.
type headerRules map[string]bool

// newHeaderRules returns rules that store the header fields named in AllowHeaders. DenyHeaders, the fields that only the engine
// sets, and neverKept override AllowHeaders.
func newHeaderRules(c *Config) headerRules {
	k := &c.Keep
	h := headerRules{}
	for name := range notKept {
		h[name] = false
	}
	for _, name := range k.AllowHeaders {
		h[strings.ToLower(name)] = true
	}
	for _, name := range k.DenyHeaders {
		h[strings.ToLower(name)] = false
	}
	for _, f := range c.engineFields() {
		h[strings.ToLower(f.name)] = false
	}
	for name := range neverKept {
		h[name] = false
	}
	return h
}

// keeps reports whether header fields with this name, which is in lower case, are stored.
func (h headerRules) keeps(name []byte) bool {
	if keeps, ok := h[string(name)]; ok {
		return keeps
	}
	return !slices.ContainsFunc(notKeptPrefixes, func(family string) bool {
		return len(name) >= len(family) && string(name[:len(family)]) == family
	})
}

// appendKept appends the header fields of r that a replay sends again. It leaves out those that Connection names. Like net/http
// when it sends a header, it drops fields with an invalid name, and replaces line breaks by spaces.
func (h headerRules) appendKept(kept []Field, r *Response) []Field {
	hops := hopNames(r.Header)
	for _, f := range r.Header {
		var buf [64]byte
		name := lower(buf[:0], f.Name)
		if h.keeps(name) && !isOneOf(hops, name) && sfv.IsToken(f.Name) {
			kept = append(kept, Field{f.Name, withoutBreaks(f.Value)})
		}
	}
	return kept
}

// hopNames returns the names, in lower case, of the fields that Connection names.
func hopNames(fields []Field) (hops []string) {
	for _, f := range fields {
		if strings.EqualFold(f.Name, "Connection") {
			hops = append(hops, strings.FieldsFunc(strings.ToLower(f.Value), isListSeparator)...)
		}
	}
	return hops
}

// lower appends name in lower case. Unlike strings.ToLower it allocates nothing if b has room.
func lower(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

func isOneOf(names []string, name []byte) bool {
	return slices.ContainsFunc(names, func(n string) bool { return n == string(name) })
}

// removals returns the names of the header fields that a replay removes again, because the handler removed them.
func (h headerRules) removals(r *Response) (kept []string) {
	for _, name := range r.Removed {
		if sfv.IsToken(name) && h.keeps(lower(nil, name)) {
			kept = append(kept, name)
		}
	}
	return kept
}

// restrict removes from a stored response what these rules do not store. The response may have been stored under other rules.
func (h headerRules) restrict(r *Response) {
	var buf [64]byte
	r.Header = slices.DeleteFunc(r.Header, func(f Field) bool { return !h.keeps(lower(buf[:0], f.Name)) })
	r.Removed = slices.DeleteFunc(r.Removed, func(name string) bool { return !h.keeps(lower(buf[:0], name)) })
}

func isListSeparator(c rune) bool { return c == ',' || c == ' ' || c == '\t' }

// withoutBreaks returns value with spaces in place of line breaks and NUL, so that no value can end its header field.
func withoutBreaks(value string) string {
	if strings.ContainsAny(value, "\r\n\x00") {
		return lineBreaks.Replace(value)
	}
	return value
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")
