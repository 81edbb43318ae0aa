package core

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/go-idem/idem/core/internal/recordname"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The names of records and the fingerprints in them outlive the process that made them: services that replace each other
// share a store. If these values change, so must the number in the digest's first part.
func TestDigestsAreStable(t *testing.T) {
	key := recordname.Naming{Hasher: plainHasher}.OfRequest("tenant", "K", "POST", "/orders")
	assert.Equal(t, "372c429a899db21bb5398467a58d5c908fb84bf16764ceb04a39679ca1cdb6f2", hex.EncodeToString(key[:]))

	print := fingerprintOf(&Request{Method: "POST", Path: "/orders", RawQuery: "a=1"}, []byte(`{"n":1}`))
	assert.Equal(t, "400057c236a71aa12c98898c5d1e6f3e090590aa9916a1546bd5377eab0db1ca", hex.EncodeToString(print[:]))
}

// Services that replace each other tell by the first two bytes of a fingerprint how it was made.
func TestAlgorithmsAreStable(t *testing.T) {
	own := func(_ *Request, body []byte) []byte { return body }
	for name, c := range map[string]struct {
		config FingerprintConfig
		want   string
	}{
		"raw":                {FingerprintConfig{}, "400057c236a71aa12c98898c5d1e6f3e090590aa9916a1546bd5377eab0db1ca"},
		"FPR-06 JSON":        {FingerprintConfig{JSON: true}, "4100d4648a35a1e6e6886a69714cbe33c7c53e3226f5d3938bbfc11d2c1f7ac2"},
		"FPR-12 multipart":   {FingerprintConfig{Multipart: true}, "4200813bec3a0a89e3745737c5d0b96dbe0c3986e0443276331811adf57a5510"},
		"FPR-05 query":       {FingerprintConfig{SortQuery: true}, "4400e0a0ec94b9d6e0103138f75960bf073f8cf5998a9bf4238227dca0a104af"},
		"FPR-13 headers":     {FingerprintConfig{Headers: []string{"Accept", "X-Tenant"}}, "c80fc600a11e787a6a6fbf0ce1c0816e5dc14bc1fbf1c4373afd1c6430d24bef"},
		"headers in another": {FingerprintConfig{Headers: []string{"x-tenant", "ACCEPT", "accept"}}, "c80fc600a11e787a6a6fbf0ce1c0816e5dc14bc1fbf1c4373afd1c6430d24bef"},
		"other headers":      {FingerprintConfig{Headers: []string{"Accept"}}, "c89fc600a11e787a486b03dbee037004f724f4d8d0126f48bb69f562f7eee625"},
		"all of these":       {FingerprintConfig{JSON: true, Multipart: true, SortQuery: true, Headers: []string{"Accept"}}, "cf9fc600a11e787a319684588ccdae5fb07f3acbadad13d69e3af9e414f2de19"},
		"own":                {FingerprintConfig{Func: own}, "d000c600a11e787a28da41122d312f943521e769cc97e7f68f8b1ae074af4616"},
		"own, version 7":     {FingerprintConfig{Func: own, Version: 7}, "d007c600a11e787a28da41122d312f943521e769cc97e7f68f8b1ae074af4616"},
		"FPR-17 off":         {FingerprintConfig{Off: true}, "e000c600a11e787a8b27655fe2f7ce88c937f6fbaee4f277a84bd4cb7d88d011"},
	} {
		t.Run(name, func(t *testing.T) {
			config := c.config.clone()
			header := map[string][]string{"Content-Type": {"application/json"}, "accept": {"a", "b"}}
			request := Request{Method: "POST", Path: "/orders", RawQuery: "a=1", Header: func(name string) []string { return header[name] }}
			print := config.of(plainHasher, config.algorithm(), &request, []byte(`{"n":1}`))
			assert.Equal(t, c.want, hex.EncodeToString(print[:]))
		})
	}
}

// FPR-18: the records of versions before the part of the route.
func TestOlderRecordsAreComparedOrNotReplayed(t *testing.T) {
	accept, own := FingerprintConfig{Headers: []string{"Accept", "X-Tenant"}}, FingerprintConfig{Func: func(_ *Request, body []byte) []byte { return body }}
	for name, c := range map[string]struct {
		config FingerprintConfig
		record string
		want   comparison
	}{
		"headers":                {accept, "480ff9e8b22882c06a6fbf0ce1c0816e5dc14bc1fbf1c4373afd1c6430d24bef", sameRequest},
		"headers of another":     {accept, "480ff9e8b22882c06a6fbf0ce1c0816e5dc14bc1fbf1c4373afd1c6430d24bee", otherRequest},
		"headers, named before":  {FingerprintConfig{Previous: &accept}, "480ff9e8b22882c06a6fbf0ce1c0816e5dc14bc1fbf1c4373afd1c6430d24bef", sameRequest},
		"off, of any route":      {FingerprintConfig{Off: true}, "6000fa311a2626ab5913e1ace70a136eecee3c454f5b9d823ad4bb66c7402540", cannotTell},
		"own, of any route":      {own, "500098c87cba59b9dc30024e4748806df2941ee0ef839aa5cfa3c5cd6181d8c2", cannotTell},
		"off, in a stricter one": {FingerprintConfig{}, "6000fa311a2626ab5913e1ace70a136eecee3c454f5b9d823ad4bb66c7402540", cannotTell},
	} {
		t.Run(name, func(t *testing.T) {
			config := c.config.clone()
			header := map[string][]string{"accept": {"a", "b"}}
			request := Request{Method: "POST", Path: "/orders", RawQuery: "a=1", Header: func(name string) []string { return header[name] }}
			var record [32]byte
			_, err := hex.Decode(record[:], []byte(c.record))
			require.NoError(t, err)
			body := []byte(`{"n":1}`)
			got := config.compare(plainHasher, record, &request, body)
			assert.Equal(t, c.want, got)
		})
	}
}

// FPR-18: an algorithm has one byte for the names of the headers, which two lists of names may share.
func TestPreviousHeadersAreFoundAlsoIfTheirAlgorithmIsTheSame(t *testing.T) {
	previous, config := FingerprintConfig{Headers: []string{"accept"}}, FingerprintConfig{}
	for i := 0; config.algorithm() != previous.algorithm(); i++ {
		config.Headers = []string{fmt.Sprint("x-", i)}
	}
	config.Previous = &previous
	for value, want := range map[string]comparison{"a": sameRequest, "b": otherRequest} {
		request := Request{Method: "POST", Path: "/orders", Header: func(name string) []string { return []string{value} }}
		first := request
		first.Header = func(string) []string { return []string{"a"} }
		record := previous.of(plainHasher, previous.algorithm(), &first, nil)
		assert.Equal(t, want, config.compare(plainHasher, record, &request, nil), value)
	}
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
	return f.of(plainHasher, f.algorithm(), req, body)
}

// digestOf takes the last of parts for the body.
func digestOf(parts []string) [32]byte {
	last := len(parts) - 1
	return plainHasher.Sum([]byte(parts[last]), parts[:last]...)
}
