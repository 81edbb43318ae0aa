package core

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The names of records and the fingerprints in them outlive the process that made them: services that replace each other
// share a store. If these values change, so must the number in the digest's first part.
func TestDigestsAreStable(t *testing.T) {
	key := plainHashing.record("tenant", "K")
	assert.Equal(t, "920295b3e559ce7d031f046013f2ee3a87fe53cab934a9e7297328cedb9b26fb", hex.EncodeToString(key[:]))

	print := fingerprintOf(&Request{Method: "POST", Path: "/orders", RawQuery: "a=1"}, []byte(`{"n":1}`))
	assert.Equal(t, "400057c236a71aa12c98898c5d1e6f3e090590aa9916a1546bd5377eab0db1ca", hex.EncodeToString(print[:]))
}

func TestSeparatorsInsideScopeAndKeyDoNotMoveTheBorder(t *testing.T) {
	for _, c := range []struct{ scope, key, otherScope, otherKey string }{
		{"a:b", "c", "a", "b:c"},
		{"a", "bc", "ab", "c"},
		{"a\x00", "b", "a", "\x00b"},
		{"ab", "", "", "ab"},
		{"a", "b", "b", "a"},
		{"a\x00\x00\x00\x00\x00\x00\x00\x01b", "", "a", "b"},
	} {
		assert.NotEqual(t, plainHashing.record(c.scope, c.key), plainHashing.record(c.otherScope, c.otherKey), "%q", c)
	}
	assert.NotEqual(t, plainHashing.record("POST", "/"), fingerprintOf(&Request{Method: "POST", Path: "/"}, nil),
		"a record's name must not be a fingerprint")
}

func TestEveryFieldOfARequestIsPartOfItsFingerprint(t *testing.T) {
	base := func() (Request, string) { return Request{Method: "POST", Path: "/orders", RawQuery: "a=1&b=2"}, "body" }
	request, body := base()
	want := fingerprintOf(&request, []byte(body))
	for name, change := range map[string]func(r *Request, body *string){
		"FPR-01 body":                 func(_ *Request, body *string) { *body = "bodx" },
		"FPR-01 no body":              func(_ *Request, body *string) { *body = "" },
		"FPR-03 path":                 func(r *Request, _ *string) { r.Path = "/orders/2" },
		"FPR-04 method":               func(r *Request, _ *string) { r.Method = "PATCH" },
		"FPR-05 query":                func(r *Request, _ *string) { r.RawQuery = "a=2&b=2" },
		"FPR-05 order of the query":   func(r *Request, _ *string) { r.RawQuery = "b=2&a=1" },
		"no query":                    func(r *Request, _ *string) { r.RawQuery = "" },
		"path that swallows a query":  func(r *Request, _ *string) { r.Path, r.RawQuery = "/orders?a=1&b=2", "" },
		"query that swallows a body":  func(r *Request, body *string) { r.RawQuery, *body = r.RawQuery+"body", "" },
		"method that swallows a path": func(r *Request, _ *string) { r.Method, r.Path = "POST/orders", "" },
	} {
		t.Run(name, func(t *testing.T) {
			r, body := base()
			change(&r, &body)
			assert.NotEqual(t, want, fingerprintOf(&r, []byte(body)))
		})
	}
}

// FPR-13.
func TestHeadersAndScopeAreNoPartOfAFingerprint(t *testing.T) {
	plain := Request{Method: "POST", Path: "/orders"}
	dressed := plain
	dressed.Header = func(string) []string { return []string{"other"} }
	dressed.Scope = func() string { return "other" }
	assert.Equal(t, fingerprintOf(&plain, nil), fingerprintOf(&dressed, nil))
}

func FuzzDigest(f *testing.F) {
	f.Add("abc", []byte{1}, []byte{2})
	f.Add("a:b:c", []byte{3, 1}, []byte{1, 3})
	f.Add("", []byte{0}, []byte{0, 0})
	f.Add("\x00\x00\x00\x00\x00\x00\x00\x01a", []byte{0, 1}, []byte{9})
	f.Fuzz(func(t *testing.T, text string, cuts, otherCuts []byte) {
		list, other := split(text, cuts), split(text, otherCuts)
		assert.Equal(t, slices.Equal(list, other), digestOf(list) == digestOf(other), "%q and %q", list, other)
	})
}

// split cuts text into a part of each given length, as far as it goes, and what is left.
func split(text string, lengths []byte) (parts []string) {
	for _, n := range lengths {
		n := min(int(n), len(text))
		parts, text = append(parts, text[:n]), text[n:]
	}
	return append(parts, text)
}

// fingerprintOf is what engines make by default.
func fingerprintOf(req *Request, body []byte) [32]byte {
	var f FingerprintConfig
	return f.of(plainHashing, f.algorithm(), req, body)
}

// digestOf takes the last of parts for the body.
func digestOf(parts []string) [32]byte {
	last := len(parts) - 1
	return plainHashing.digest([]byte(parts[last]), parts[:last]...)
}
