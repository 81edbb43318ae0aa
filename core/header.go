package core

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/internal/sfv"
)

// neverKept are the header lines of an answer that HTTP forbids to repeat: hop-by-hop (RPL-12), of proxies (RPL-14),
// framing and time (RPL-11, RPL-13).
var neverKept = map[string]bool{
	"connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"proxy-connection": true, "proxy-authenticate": true, "proxy-authentication-info": true, "proxy-authorization": true,
	"content-length": true, "date": true,
}

// notKept are the lines that belong to one exchange all the same: credentials (RPL-15), and the connection's own
// bookkeeping (RPL-16).
var notKept = map[string]bool{
	"age": true, "alt-svc": true, "set-cookie": true, "authorization": true, "www-authenticate": true,
	"authentication-info": true, "x-request-id": true, "traceparent": true, "tracestate": true, "server-timing": true,
}

// notKeptFamilies are the beginnings of more such names.
var notKeptFamilies = []string{"ratelimit", "x-ratelimit"}

// headerRules says of names, in lower case, whether their lines are kept. Of others their beginnings tell.
type headerRules map[string]bool

func newHeaderRules(keep *KeepConfig) headerRules {
	h := headerRules{}
	for name := range notKept {
		h[name] = false
	}
	for _, name := range keep.AllowHeaders {
		h[strings.ToLower(name)] = true
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(neverKept)), keep.DenyHeaders, []string{keep.Marker}) {
		h[strings.ToLower(name)] = false
	}
	return h
}

// keeps tells whether the lines named name, in lower case, are kept.
func (h headerRules) keeps(name []byte) bool {
	if keeps, ok := h[string(name)]; ok {
		return keeps
	}
	return !slices.ContainsFunc(notKeptFamilies, func(family string) bool {
		return len(name) >= len(family) && string(name[:len(family)]) == family
	})
}

// appendKept appends the lines that a replay sends again: not those that Connection names, either. Like net/http when it
// sends them, it drops names that are none and puts spaces for line breaks.
func (h headerRules) appendKept(kept []Field, r *Response) []Field {
	var hops []string
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, "Connection") {
			hops = append(hops, strings.FieldsFunc(strings.ToLower(f.Value), isListSeparator)...)
		}
	}
	for _, f := range r.Header {
		var buf [64]byte
		name := lower(buf[:0], f.Name)
		if h.keeps(name) && !isOneOf(hops, name) && sfv.IsToken(f.Name) {
			kept = append(kept, Field{f.Name, withoutBreaks(f.Value)})
		}
	}
	return kept
}

// lower appends name in lower case.
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

// removals returns the names whose lines a replay takes away again.
func (h headerRules) removals(r *Response) (kept []string) {
	for _, name := range r.Removed {
		if sfv.IsToken(name) && h.keeps(lower(nil, name)) {
			kept = append(kept, name)
		}
	}
	return kept
}

// restrict takes away from a kept response what these rules do not keep: it may have been kept under others.
func (h headerRules) restrict(r *Response) {
	var buf [64]byte
	r.Header = slices.DeleteFunc(r.Header, func(f Field) bool { return !h.keeps(lower(buf[:0], f.Name)) })
	r.Removed = slices.DeleteFunc(r.Removed, func(name string) bool { return !h.keeps(lower(buf[:0], name)) })
}

func isListSeparator(c rune) bool { return c == ',' || c == ' ' || c == '\t' }

func withoutBreaks(value string) string {
	if strings.ContainsAny(value, "\r\n\x00") {
		return lineBreaks.Replace(value)
	}
	return value
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")
