package core

import (
	"encoding/binary"
	"mime"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/internal/canonical"
	"github.com/go-idem/idem/core/internal/digest"
)

// plainHashing is for what does not tell anything about a key.
var plainHashing = digest.New(nil)

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
	algorithmRoute     = 1 << 7 // six bytes behind the algorithm are of method and path alone: who can not make the rest compares these
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
		names := plainHashing.Sum(nil, f.Headers...)
		a[1] = names[0]
	}
	if a[0]&(algorithmHeaders|algorithmFunc|algorithmOff) != 0 {
		a[0] |= algorithmRoute
	}
	return a
}

// hasRoute tells whether fingerprints by a have a part of their own for method and path. Off and Func go with nothing else.
func (a algorithm) hasRoute() bool {
	const parts = algorithmJSON | algorithmMultipart | algorithmSortQuery | algorithmHeaders
	switch rest := a[0] &^ (algorithmBase | algorithmRoute); {
	case a[0]&algorithmBase == 0 || a[0]&algorithmRoute == 0:
		return false
	case rest == algorithmFunc || rest == algorithmOff:
		return true
	default:
		return rest&algorithmHeaders != 0 && rest&^parts == 0
	}
}

// likeness is what the fingerprint of a record tells of a request whose own fingerprint is another.
type likeness int

const (
	otherRequest likeness = iota // the record belongs to another request
	sameRequest                  // the record belongs to this request: it was made by another algorithm, which may compare them
	cannotTell                   // the algorithm of the record is not known here, or it takes requests for the same that f tells apart
)

// compare tells whether a record belongs to the request that has own for its fingerprint. With sameRequest, the record's
// fingerprint is the one to use. No algorithm that is weaker than f decides that two requests are the same, unless Previous
// names it (FPR-18).
func (f *FingerprintConfig) compare(h digest.Hasher, own, record [32]byte, req *Request, body []byte) likeness {
	a := algorithm(record[:2])
	config, isTrusted := f.configFor(a)
	switch {
	case a == algorithm(own[:2]):
		return otherRequest
	case a.hasRoute() && routePart(record) != routeDigest(h, req):
		return otherRequest
	case config == nil:
		return cannotTell
	case config.of(h, a, req, body) != record:
		return otherRequest
	case !isTrusted:
		return cannotTell
	}
	return sameRequest
}

// configFor returns a config that makes fingerprints by a, nil when the request alone does not tell it, and whether two
// requests that it takes for the same are the same for f, too.
func (f *FingerprintConfig) configFor(a algorithm) (config *FingerprintConfig, isTrusted bool) {
	for _, own := range []*FingerprintConfig{f.Previous, f} {
		if own != nil && own.makes(a) {
			return own, true
		}
	}
	alone := &FingerprintConfig{
		JSON: a[0]&algorithmJSON != 0, Multipart: a[0]&algorithmMultipart != 0, SortQuery: a[0]&algorithmSortQuery != 0,
		Off: a[0]&algorithmOff != 0, // not Headers and Func: what they are is not in the record
	}
	if alone.algorithm() != a {
		return nil, false
	}
	return alone, !alone.isWeakerThan(f)
}

// makes tells whether a is f's algorithm, or the one of the same headers that older records have, without the part of the route.
func (f *FingerprintConfig) makes(a algorithm) bool {
	own := f.algorithm()
	return own == a || len(f.Headers) > 0 && own == algorithm{a[0] | algorithmRoute, a[1]}
}

// isWeakerThan tells whether f, which has neither Headers nor Func, may take requests for the same that other tells apart. The
// same bytes of method, path, query and body are the same request for every config without Headers and Func.
func (f *FingerprintConfig) isWeakerThan(other *FingerprintConfig) bool {
	if other.Off {
		return false
	}
	return f.Off || other.Func != nil || len(other.Headers) > 0 ||
		f.JSON && !other.JSON || f.Multipart && !other.Multipart || f.SortQuery && !other.SortQuery
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

// of is the fingerprint of a request: its algorithm, the part of the route if the algorithm has one, and the rest of the digest.
func (f *FingerprintConfig) of(h digest.Hasher, a algorithm, req *Request, body []byte) [32]byte {
	sum := f.digest(h, a, req, body)
	copy(sum[:], a[:])
	if a.hasRoute() {
		route := routeDigest(h, req)
		copy(sum[len(a):], route[:])
	}
	return sum
}

// routePart returns the part of a fingerprint that is of method and path alone.
func routePart(fingerprint [32]byte) (part [6]byte) {
	copy(part[:], fingerprint[len(algorithm{}):])
	return part
}

// routeDigest is the part of a fingerprint that is of method and path alone.
func routeDigest(h digest.Hasher, req *Request) [6]byte {
	sum := h.Sum(nil, "idem route 1", req.Method, req.Path)
	return [6]byte(sum[:6])
}

func (f *FingerprintConfig) digest(h digest.Hasher, a algorithm, req *Request, body []byte) [32]byte {
	switch {
	case f.Off:
		return h.Sum(nil, "idem any request 2", req.Method, req.Path)
	case f.Func != nil:
		return h.Sum(f.Func(req, body), "idem own request 2", req.Method, req.Path)
	case a[0] == algorithmBase:
		return h.Sum(body, "idem request 1", req.Method, req.Path, req.RawQuery)
	}
	queryForm, query := f.query(req.RawQuery)
	bodyForm, body := f.body(req, body)
	parts := []string{"idem request 2", req.Method, req.Path, queryForm, query, bodyForm}
	for _, name := range f.Headers {
		lines := req.Header(name)
		parts = append(parts, name, string(binary.AppendUvarint(nil, uint64(len(lines)))))
		parts = append(parts, lines...)
	}
	return h.Sum(body, parts...)
}

// query returns what is compared of a query, and how.
func (f *FingerprintConfig) query(raw string) (form, query string) {
	if f.SortQuery {
		if sorted, ok := canonical.Query(raw); ok {
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
		if canonical, ok := canonical.JSON(body); ok {
			return "json", canonical
		}
	}
	if f.Multipart && media == "multipart/form-data" {
		if canonical, ok := canonical.Multipart(line, body); ok {
			return "multipart", canonical
		}
	}
	return "raw", body
}
