package core

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"mime"
	"slices"
	"strings"
	"sync"
)

// hashing makes the hashes that reach a store. With a secret they are HMACs. Its states are used again and again.
type hashing struct{ states *sync.Pool }

func newHashing(secret []byte) hashing {
	return hashing{&sync.Pool{New: func() any {
		if len(secret) > 0 {
			return &hashState{Hash: hmac.New(sha256.New, secret)}
		}
		return &hashState{Hash: sha256.New()}
	}}}
}

type hashState struct {
	hash.Hash
	buf []byte
}

// record names the record of a key, and of a key on one route when the route is given.
func (h hashing) record(scope, key string, route ...string) [32]byte {
	s := h.begin()
	s.add("idem key 1")
	s.add(scope)
	s.add(key)
	for _, part := range route {
		s.add(part)
	}
	return h.end(s, nil)
}

// digest is SHA-256 over parts and body, each preceded by its length in 8 bytes: no two different lists give the same
// input, wherever a separator may stand in them.
func (h hashing) digest(body []byte, parts ...string) [32]byte {
	s := h.begin()
	for _, part := range parts {
		s.add(part)
	}
	return h.end(s, body)
}

func (h hashing) begin() *hashState {
	s := h.states.Get().(*hashState)
	s.Reset()
	s.buf = s.buf[:0]
	return s
}

func (s *hashState) add(part string) {
	s.buf = append(binary.BigEndian.AppendUint64(s.buf, uint64(len(part))), part...)
}

// end returns the digest and gives the state back.
func (h hashing) end(s *hashState, body []byte) (sum [32]byte) {
	s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(len(body)))
	s.Write(s.buf)
	s.Write(body)
	s.buf = s.Sum(s.buf[:0])
	copy(sum[:], s.buf)
	h.states.Put(s)
	return sum
}

// plainHashing is for what does not tell anything about a key.
var plainHashing = newHashing(nil)

// algorithm says how a fingerprint was made. It is its first two bytes.
type algorithm [2]byte

// The bits of an algorithm's first byte. The second is the Version of a Func, or a byte of the hash of Headers.
const (
	algorithmJSON      = 1 << 0
	algorithmMultipart = 1 << 1
	algorithmSortQuery = 1 << 2
	algorithmHeaders   = 1 << 3 // which ones, their hash tells in the second byte
	algorithmFunc      = 1 << 4
	algorithmOff       = 1 << 5
	algorithmBase      = 1 << 6 // nothing else: method, path, query and body as they are
)

// algorithm is f's.
func (f *FingerprintConfig) algorithm() algorithm {
	a := algorithm{algorithmBase, f.Version}
	for i, on := range []bool{f.JSON, f.Multipart, f.SortQuery, len(f.Headers) > 0, f.Func != nil, f.Off} {
		if on {
			a[0] |= 1 << i
		}
	}
	if len(f.Headers) > 0 {
		names := plainHashing.digest(nil, f.Headers...)
		a[1] = names[0]
	}
	return a
}

// understood returns a config that makes fingerprints by a, nil when the request alone does not tell it.
func (f *FingerprintConfig) understood(a algorithm) *FingerprintConfig {
	if f.Previous != nil && f.Previous.algorithm() == a {
		return f.Previous
	}
	alone := &FingerprintConfig{
		JSON: a[0]&algorithmJSON != 0, Multipart: a[0]&algorithmMultipart != 0, SortQuery: a[0]&algorithmSortQuery != 0,
		Off: a[0]&algorithmOff != 0, // not Headers and Func: what they are is not in the record
	}
	if alone.algorithm() != a {
		return nil
	}
	return alone
}

// clone returns a copy that shares nothing with f. Header names are put in one order and case.
func (f FingerprintConfig) clone() FingerprintConfig {
	f.Headers = slices.Clone(f.Headers)
	for i, name := range f.Headers {
		f.Headers[i] = strings.ToLower(name)
	}
	slices.Sort(f.Headers)
	f.Headers = slices.Compact(f.Headers)
	if f.Previous != nil {
		previous := f.Previous.clone()
		f.Previous = &previous
	}
	return f
}

// of is the fingerprint of a request: its algorithm, and 30 bytes of the digest.
func (f *FingerprintConfig) of(h hashing, a algorithm, req *Request, body []byte) [32]byte {
	sum := f.digest(h, a, req, body)
	copy(sum[:], a[:])
	return sum
}

func (f *FingerprintConfig) digest(h hashing, a algorithm, req *Request, body []byte) [32]byte {
	switch {
	case f.Off:
		return h.digest(nil, "idem any request 1")
	case f.Func != nil:
		return h.digest(f.Func(req, body), "idem own request 1")
	case a[0] == algorithmBase:
		return h.digest(body, "idem request 1", req.Method, req.Path, req.RawQuery)
	}
	queryForm, query := f.query(req.RawQuery)
	bodyForm, body := f.body(req, body)
	parts := []string{"idem request 2", req.Method, req.Path, queryForm, query, bodyForm}
	for _, name := range f.Headers {
		lines := req.Header(name)
		parts = append(parts, name, string(binary.AppendUvarint(nil, uint64(len(lines)))))
		parts = append(parts, lines...)
	}
	return h.digest(body, parts...)
}

// query returns what is compared of a query, and how.
func (f *FingerprintConfig) query(raw string) (form, query string) {
	if f.SortQuery {
		if sorted, ok := canonicalQuery(raw); ok {
			return "sorted", sorted
		}
	}
	return "raw", raw
}

// body returns what is compared of a body, and how.
func (f *FingerprintConfig) body(req *Request, body []byte) (form string, compared []byte) {
	line := ""
	if lines := req.Header("Content-Type"); len(lines) == 1 {
		line = lines[0]
	}
	media, _, _ := mime.ParseMediaType(line)
	isJSON := media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
	if f.JSON && isJSON {
		if canonical, ok := canonicalJSON(body); ok {
			return "json", canonical
		}
	}
	if f.Multipart && media == "multipart/form-data" {
		if canonical, ok := canonicalMultipart(line, body); ok {
			return "multipart", canonical
		}
	}
	return "raw", body
}
