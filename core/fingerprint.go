package core

import (
	"encoding/binary"
	"mime"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/internal/canonical"
	"github.com/go-idem/idem/core/internal/digest"
	"github.com/go-idem/idem/core/internal/sfv"
)

// FingerprintConfig configures what makes two requests the same, besides method and path, which always count.
//
// Each record names the algorithm of its fingerprint, so changing these options does not turn retries into 422. A request is
// compared by the record's algorithm if Previous names it, or if the algorithm tells apart whatever this config tells apart.
// Otherwise a request that is certainly another one is refused with 422, and the rest with 503 record-unreadable: nothing is
// run or replayed (FPR-18). The same holds for two engines that share keys.
type FingerprintConfig struct {
	// JSON compares bodies with a JSON Content-Type by their content: white space, the order of members, and the spelling of
	// strings and numbers do not count (RFC 8785, except that numbers are compared exactly; FPR-06, FPR-07). A body that is not
	// plain JSON is compared by its bytes (FPR-09). Set it if clients encode each retry anew. Default false: bytes count.
	JSON bool

	// Multipart compares multipart/form-data by its parts: the boundary does not count (FPR-12). On Fiber that holds without
	// this option, too, unless Fiber is configured not to parse forms. Default false: bytes count.
	Multipart bool

	// SortQuery compares the query by names and values: the order of parameters and their escaping do not count (FPR-05).
	// Default false: the text of the query counts.
	SortQuery bool

	// Headers are names of header fields that count too, such as Accept, the tenant's field, or Host (FPR-13, FPR-19). Fields of
	// the connection and of the body's framing are rejected by New, since some frameworks hide them. Default none.
	Headers []string

	// Func replaces all of the above: two requests with one method and path are the same if Func returns the same bytes. Func
	// must be safe for concurrent use and must not keep the body. A form that was parsed before has other bytes than were sent:
	// see Request.Body. Default nil.
	Func func(req *Request, body []byte) []byte

	// Version distinguishes one Func from the next: change it whenever Func changes what it compares. Default 0.
	Version byte

	// Off compares nothing but method and path: a client that sends another body or query under a used key gets the first
	// response (FPR-17). Default false: such a request is refused with 422.
	Off bool

	// Previous is the config before the last change. Set it for Keep.Retention after a change of Func or Headers, or after a
	// change to a config that tells more requests apart; without it retries of live keys get 503. Default nil.
	Previous *FingerprintConfig
}

// clone returns a copy that shares nothing with f. Its header names are sorted, unique and in lower case.
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

// validate checks a FingerprintConfig that is the field named in, such as "Fingerprint.", of Config.
func (p *FingerprintConfig) validate(f *configErrors, in string) {
	hasParts := p.JSON || p.Multipart || p.SortQuery || len(p.Headers) > 0
	f.require(!p.Off || !hasParts && p.Func == nil, in+"Off",
		"goes with no other field: Fingerprint.JSON, Multipart, SortQuery, Headers and Func compare requests, and Off "+
			"compares none")
	f.require(p.Func == nil || !hasParts, in+"Func", "replaces Fingerprint.JSON, Multipart, SortQuery and Headers: leave them out")
	f.require(p.Version == 0 || p.Func != nil, in+"Version",
		"%d: tells one Fingerprint.Func from the next, and there is none", p.Version)
	for _, name := range p.Headers {
		f.require(sfv.IsToken(name), in+"Headers", "%q is not a header name", name)
		f.require(!framingHeaders[strings.ToLower(name)], in+"Headers",
			"%q belongs to the connection or to the framing of the body, which some frameworks hide", name)
	}
	if p.Previous != nil {
		f.require(p.Previous.Previous == nil, in+"Previous", "has a Previous of its own; one is remembered")
		p.Previous.validate(f, in+"Previous.")
	}
}

// framingHeaders has header fields, in lower case, that some servers remove from a request or set themselves, so that they cannot
// be compared on every framework (FPR-19).
var framingHeaders = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
}

// plainHasher hashes without a secret. It is for values that say nothing about a key, and for child keys.
var plainHasher = digest.New(nil)

// algorithm identifies how a fingerprint was made. It is the first two bytes of the fingerprint.
type algorithm [2]byte

// The bits of an algorithm's first byte. The second is the Version of a Func, or a byte of the hash of Headers.
const (
	algorithmJSON      = 1 << 0
	algorithmMultipart = 1 << 1
	algorithmSortQuery = 1 << 2
	algorithmHeaders   = 1 << 3 // the second byte is from a hash of their names
	algorithmFunc      = 1 << 4
	algorithmOff       = 1 << 5
	algorithmBase      = 1 << 6 // always set; alone it stands for method, path, query and body as they are
	algorithmRoute     = 1 << 7 // the six bytes after the algorithm are a digest of method and path alone: see routeDigest
)

// algorithm returns the algorithm of the fingerprints that f makes.
func (f *FingerprintConfig) algorithm() algorithm {
	a := algorithm{algorithmBase, f.Version}
	for i, on := range []bool{f.JSON, f.Multipart, f.SortQuery, len(f.Headers) > 0, f.Func != nil, f.Off} {
		if on {
			a[0] |= 1 << i
		}
	}
	if len(f.Headers) > 0 {
		names := plainHasher.Sum(nil, f.Headers...)
		a[1] = names[0]
	}
	if a[0]&(algorithmHeaders|algorithmFunc|algorithmOff) != 0 {
		a[0] |= algorithmRoute
	}
	return a
}

// hasRoute reports whether fingerprints by a contain a digest of method and path alone. An engine that cannot compute the rest of
// such a fingerprint can still compare that part. Off and Func are combined with no other option.
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

// comparison is the result of comparing a record with a request whose fingerprint differs from the record's.
type comparison int

const (
	otherRequest comparison = iota // the record belongs to another request
	sameRequest                    // the record belongs to this request, by the record's algorithm, which f trusts
	cannotTell                     // f cannot compute the record's algorithm, or that takes requests for the same that f tells apart
)

// compare returns whether a record belongs to a request although its fingerprint is not the one that f makes of the request.
// After sameRequest, the caller uses the record's fingerprint. An algorithm that is weaker than f never decides that two requests
// are the same, unless Previous names it (FPR-18).
func (f *FingerprintConfig) compare(h digest.Hasher, record [32]byte, req *Request, body []byte) comparison {
	a := algorithm(record[:2])
	config, isTrusted := f.configFor(a)
	switch {
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

// configFor returns a config that makes fingerprints by a, or nil if a does not determine one. isTrusted reports whether two
// requests that are the same for that config are the same for f too.
func (f *FingerprintConfig) configFor(a algorithm) (config *FingerprintConfig, isTrusted bool) {
	for _, own := range []*FingerprintConfig{f.Previous, f} {
		if own != nil && own.makes(a) {
			return own, true
		}
	}
	alone := &FingerprintConfig{
		JSON: a[0]&algorithmJSON != 0, Multipart: a[0]&algorithmMultipart != 0, SortQuery: a[0]&algorithmSortQuery != 0,
		Off: a[0]&algorithmOff != 0, // but neither Headers nor Func, which a does not determine
	}
	if alone.algorithm() != a {
		return nil, false
	}
	return alone, !alone.isWeakerThan(f)
}

// makes reports whether f makes fingerprints by a. Records of older versions with the same headers count too, although their
// fingerprints have no digest of the route.
func (f *FingerprintConfig) makes(a algorithm) bool {
	own := f.algorithm()
	return own == a || len(f.Headers) > 0 && own == algorithm{a[0] | algorithmRoute, a[1]}
}

// isWeakerThan reports whether some requests may be the same for f and different for other. It expects that f has neither
// Headers nor Func. Requests with equal bytes of method, path, query and body are the same for every config without Headers
// and Func.
func (f *FingerprintConfig) isWeakerThan(other *FingerprintConfig) bool {
	if other.Off {
		return false
	}
	return f.Off || other.Func != nil || len(other.Headers) > 0 ||
		f.JSON && !other.JSON || f.Multipart && !other.Multipart || f.SortQuery && !other.SortQuery
}

// of returns the fingerprint of a request: the algorithm, the digest of the route if the algorithm has one, and the rest of the
// digest of the whole.
func (f *FingerprintConfig) of(h digest.Hasher, a algorithm, req *Request, body []byte) [32]byte {
	sum := f.digest(h, a, req, body)
	copy(sum[:], a[:])
	if a.hasRoute() {
		route := routeDigest(h, req)
		copy(sum[len(a):], route[:])
	}
	return sum
}

// routePart returns the part of a fingerprint that is the digest of the route. It expects an algorithm with hasRoute.
func routePart(fingerprint [32]byte) (part [6]byte) {
	copy(part[:], fingerprint[len(algorithm{}):])
	return part
}

// routeDigest returns a short digest of the method and path of a request.
func routeDigest(h digest.Hasher, req *Request) [6]byte {
	sum := h.Sum(nil, "idem route 1", req.Method, req.Path)
	return [6]byte(sum[:6])
}

// digest returns the digest of all parts of a request that f compares.
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
		values := req.Header(name)
		parts = append(parts, name, string(binary.AppendUvarint(nil, uint64(len(values)))))
		parts = append(parts, values...)
	}
	return h.Sum(body, parts...)
}

// query returns the form in which a query is compared, and the name of that form.
func (f *FingerprintConfig) query(raw string) (form, query string) {
	if f.SortQuery {
		if sorted, ok := canonical.Query(raw); ok {
			return "sorted", sorted
		}
	}
	return "raw", raw
}

// body returns the form in which a body is compared, and the name of that form.
func (f *FingerprintConfig) body(req *Request, body []byte) (form string, compared []byte) {
	contentType := ""
	if values := req.Header("Content-Type"); len(values) == 1 {
		contentType = values[0]
	}
	media, _, _ := mime.ParseMediaType(contentType)
	isJSON := media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
	if f.JSON && isJSON {
		if canonical, ok := canonical.JSON(body); ok {
			return "json", canonical
		}
	}
	if f.Multipart { // canonical.Multipart accepts multipart/form-data only
		if canonical, ok := canonical.Multipart(contentType, body); ok {
			return "multipart", canonical
		}
	}
	return "raw", body
}
