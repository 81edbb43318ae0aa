package core

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/sfv"
)

// configErrors collects the bad fields of a config.
type configErrors []error

// require adds an error for the field unless ok.
func (f *configErrors) require(ok bool, field, format string, args ...any) {
	if !ok {
		*f = append(*f, &ConfigError{field, fmt.Sprintf(format, args...)})
	}
}

// requireDuration requires that d is from least to 100 years.
func (f *configErrors) requireDuration(d, least time.Duration, field string) {
	f.require(d >= least && d <= maxDuration, field, "%v: must be at least %v and at most 100 years", d, least)
}

// Upper bounds of options.
const (
	maxDuration = 100 * 365 * 24 * time.Hour
	maxLease    = maxDuration / 100
)

// requireSecret requires that the secret is fit for an HMAC, or empty.
func (f *configErrors) requireSecret(secret []byte, field string) {
	f.require(len(secret) == 0 || len(secret) >= 16, field, "%d bytes: must have at least 16, or none", len(secret))
	isSet := slices.ContainsFunc(secret, func(b byte) bool { return b != 0 })
	f.require(len(secret) == 0 || isSet, field,
		"has nothing but zeros: it was allocated, and not filled; read it from a secret store, or make one with "+
			"crypto/rand")
}

// isNil reports whether v is nil, or an interface that holds a nil pointer or the like, whose methods would panic at the first
// request.
func isNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return value.IsNil()
	}
	return false
}

// validate returns an error that joins a ConfigError for every bad field. It expects a config with defaults.
func (c Config) validate() error {
	var f configErrors
	f.require(!isNil(c.Store), "Store",
		"is required; memstore.New() needs no server, redisstore.New(client) shares records between processes")
	f.require(c.Scope != nil, "Scope",
		"is required: say who a key belongs to, or core.SingleTenant if every caller may share one set of keys")
	f.requireSecret(c.Secret, "Secret")
	for i, previous := range c.PreviousSecrets {
		f.requireSecret(previous, "PreviousSecrets")
		isSame := func(s []byte) bool { return bytes.Equal(s, previous) }
		f.require(!isSame(c.Secret) && !slices.ContainsFunc(c.PreviousSecrets[:i], isSame), "PreviousSecrets",
			"number %d is Secret, or is there twice", i+1)
	}
	c.Key.validate(&f)
	c.Fingerprint.validate(&f, "Fingerprint.")
	c.validateTimes(&f)
	c.validateWait(&f)
	c.Keep.validate(&f)
	for _, name := range append([]string{c.Key.Header}, c.Key.Aliases...) {
		f.require(!sfv.IsToken(name) || !strings.EqualFold(name, c.Keep.Marker), "Keep.Marker",
			"%q must be a header name other than Key.Header and Key.Aliases", name)
	}
	f.require(c.Limits.RequestBody > 0 && c.Limits.RequestBody < math.MaxInt64, "Limits.RequestBody",
		"%d: must be positive, and a limit", c.Limits.RequestBody)
	f.require(c.Limits.StoreTimeout >= time.Millisecond && c.Limits.StoreTimeout <= c.Lease.Duration/2, "Limits.StoreTimeout",
		"%v: must be at least 1ms, since no store answers sooner, and at most half of Lease.Duration %v, or one slow "+
			"call could outlast the lease", c.Limits.StoreTimeout, c.Lease.Duration)
	f.require((c.Marshal == nil) == (c.Unmarshal == nil), "Marshal", "goes together with Unmarshal: one is set and the other is not")
	c.Problems.validate(&f)
	return errors.Join(f...)
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

// framingHeaders has header fields, in lower case, that some servers remove from a request or set themselves, so that they cannot
// be compared on every framework (FPR-19).
var framingHeaders = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
}

// safeMethods has the methods that IANA's registry of HTTP methods lists as safe: RFC 9110, RFC 9113, RFC 3253, RFC 4918,
// RFC 5323 and, with QUERY, RFC 10008.
var safeMethods = []string{"GET", "HEAD", "OPTIONS", "TRACE", "PRI", "PROPFIND", "QUERY", "REPORT", "SEARCH"}

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

// validateTimes checks the durations that depend on each other.
func (c *Config) validateTimes(f *configErrors) {
	lease, retention := c.Lease.Duration, c.Keep.Retention
	f.require(lease >= 10*time.Millisecond && lease <= maxLease, "Lease.Duration",
		"%v: must be at least 10ms and at most 1 year: it is how long a retry waits for a process that died", lease)
	f.require(c.Lease.MaxRun == 0 || c.Lease.MaxRun > lease && c.Lease.MaxRun <= maxDuration, "Lease.MaxRun",
		"%v: must be longer than Lease.Duration %v and at most 100 years, or 0 for no limit", c.Lease.MaxRun, lease)
	f.require(retention > lease && retention <= maxDuration, "Keep.Retention",
		"%v: must be longer than Lease.Duration %v, or a record ends before its run, and at most 100 years", retention, lease)
	f.requireDuration(c.Keep.LateRetry, 0, "Keep.LateRetry")
	f.requireDuration(c.Key.MaxAge, 0, "Key.MaxAge")
	f.require(c.Key.MaxAge <= max(retention, 0), "Key.MaxAge",
		"%v: must be at most Keep.Retention %v, or a retry within it finds no outcome and runs", c.Key.MaxAge, retention)
}

// validateWait checks WaitConfig, which is in use if its Timeout is set.
func (c *Config) validateWait(f *configErrors) {
	w := &c.Wait
	if w.Timeout <= 0 {
		f.require(w.MaxPerKey == 0 && w.Max == 0, "Wait.Timeout",
			"is not set, but Wait.MaxPerKey or Wait.Max is: no request waits without it")
		return
	}
	_, notifies := c.Store.(driver.Notifier)
	f.require(notifies || c.Store == nil, "Wait.Timeout",
		"%v: Store %T is no driver.Notifier, so nothing would notify waiting requests", w.Timeout, c.Store)
	f.requireDuration(w.Timeout, time.Millisecond, "Wait.Timeout")
	f.require(w.MaxPerKey > 0, "Wait.MaxPerKey", "%d: must be positive", w.MaxPerKey)
	f.require(w.Max >= w.MaxPerKey, "Wait.Max", "%d is less than Wait.MaxPerKey %d", w.Max, w.MaxPerKey)
}

// validate checks a KeepConfig, except Retention and LateRetry, which validateTimes checks.
func (k *KeepConfig) validate(f *configErrors) {
	f.require(k.MaxBody > 0, "Keep.MaxBody", "%d: must be positive", k.MaxBody)
	f.require(sfv.IsToken(k.Marker) && !isReserved(k.Marker), "Keep.Marker",
		"%q is not a header name that nothing else uses", k.Marker)
	f.require(!k.NoMarker || !k.MarkAll && !k.ExposeMarker, "Keep.NoMarker",
		"goes with neither Keep.MarkAll nor Keep.ExposeMarker: there is no marker to send or expose")
	for _, name := range k.AllowHeaders {
		f.require(sfv.IsToken(name), "Keep.AllowHeaders", "%q is not a header name", name)
		f.require(!neverKept[strings.ToLower(name)] && !strings.EqualFold(name, k.Marker), "Keep.AllowHeaders",
			"%q belongs to one exchange, or is Keep.Marker, and cannot be repeated", name)
		denied := slices.ContainsFunc(k.DenyHeaders, func(d string) bool { return strings.EqualFold(d, name) })
		f.require(!denied, "Keep.AllowHeaders", "%q is in Keep.DenyHeaders, too", name)
	}
	for _, name := range k.DenyHeaders {
		f.require(sfv.IsToken(name), "Keep.DenyHeaders", "%q is not a header name", name)
	}
	f.require(!slices.ContainsFunc(k.Codecs, func(c driver.Codec) bool { return isNil(c) }), "Keep.Codecs",
		"has a codec that is nil")
	f.require(k.Blobs == nil || !isNil(k.Blobs), "Keep.Blobs", "is a nil %T: leave it out, or make one", k.Blobs)
	f.require(k.Blobs != nil || k.BlobsFrom == 0, "Keep.BlobsFrom", "%d: is for Keep.Blobs, which is not set", k.BlobsFrom)
	f.require(k.Blobs == nil || k.BlobsFrom > 0 && k.BlobsFrom < k.MaxBody, "Keep.BlobsFrom",
		"%d: must be positive and less than Keep.MaxBody %d, over which nothing is kept", k.BlobsFrom, k.MaxBody)
}

// validate checks that problems have valid types, statuses and codes.
func (p *ProblemConfig) validate(f *configErrors) {
	base, err := url.Parse(p.BaseURL)
	f.require(err == nil && base.IsAbs(), "Problems.BaseURL", "%q is not an absolute URL", p.BaseURL)
	f.require(strings.Trim(p.BaseURL, uriCharacters) == "", "Problems.BaseURL",
		"%q: write what is not a URI character with %%, or it would end a Link", p.BaseURL)
	f.require(p.Render == nil || !p.Link, "Problems.Link", "is for the default answer, which Problems.Render replaces")
	for _, code := range slices.Sorted(maps.Keys(p.Status)) {
		_, known := problems[code]
		f.require(known, "Problems.Status",
			"there is no code %q; the codes are %s", code, strings.Join(slices.Sorted(maps.Keys(problems)), ", "))
		f.require(validStatus(p.Status[code]), "Problems.Status", "%s: %d is not a 4xx or 5xx status", code, p.Status[code])
	}
}

// uriCharacters has the characters that a URI may contain (RFC 3986, section 2).
const uriCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%"
