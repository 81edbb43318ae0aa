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

// faults collects what is wrong with a config.
type faults []error

func (f *faults) check(ok bool, field, format string, args ...any) {
	if !ok {
		*f = append(*f, &ConfigError{field, fmt.Sprintf(format, args...)})
	}
}

// duration checks one that must be there.
func (f *faults) duration(d, least time.Duration, field string) {
	f.check(d >= least && d <= longest, field, "%v: must be at least %v and at most 100 years", d, least)
}

const (
	longest      = 100 * 365 * 24 * time.Hour
	longestLease = longest / 100
	mostAttempts = 999_999 // six digits in a record
)

// secret checks the key of an HMAC, or that there is none.
func (f *faults) secret(secret []byte, field string) {
	f.check(len(secret) == 0 || len(secret) >= 16, field, "%d bytes: must have at least 16, or none", len(secret))
	isSet := slices.ContainsFunc(secret, func(b byte) bool { return b != 0 })
	f.check(len(secret) == 0 || isSet, field, "has nothing but zeros: it was allocated, and not filled; read it from a secret store, or make one with crypto/rand")
}

// isNil tells whether v holds nothing, or a nil pointer and the like, whose methods would panic at the first request.
func isNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return value.IsNil()
	}
	return false
}

// validate returns every bad field of a config with defaults, joined.
func (c Config) validate() error {
	var f faults
	f.check(!isNil(c.Store), "Store", "is required; memstore.New() needs no server, redisstore.New(client) shares records between processes")
	f.check(c.Scope != nil, "Scope", "is required: say who a key belongs to, or core.SingleTenant if every caller may share one set of keys")
	f.secret(c.Secret, "Secret")
	for i, previous := range c.PreviousSecrets {
		f.secret(previous, "PreviousSecrets")
		isNew := !bytes.Equal(previous, c.Secret) && !slices.ContainsFunc(c.PreviousSecrets[:i], func(s []byte) bool { return bytes.Equal(s, previous) })
		f.check(isNew, "PreviousSecrets", "number %d is Secret, or comes twice", i+1)
	}
	c.Key.validate(&f)
	c.Fingerprint.validate(&f, "Fingerprint.")
	c.validateTimes(&f)
	c.validateWait(&f)
	c.Keep.validate(&f)
	for _, name := range append([]string{c.Key.Header}, c.Key.Aliases...) {
		f.check(!sfv.IsToken(name) || !strings.EqualFold(name, c.Keep.Marker), "Keep.Marker", "%q must be a header name other than Key.Header and Key.Aliases", name)
	}
	f.check(c.Limits.RequestBody > 0 && c.Limits.RequestBody < math.MaxInt64, "Limits.RequestBody", "%d: must be positive, and a limit", c.Limits.RequestBody)
	f.check(c.Limits.StoreTimeout >= time.Millisecond && c.Limits.StoreTimeout <= c.Lease.Duration/2, "Limits.StoreTimeout",
		"%v: must be at least 1ms, since no store answers sooner, and at most half of Lease.Duration %v, or one slow call could outlast the lease", c.Limits.StoreTimeout, c.Lease.Duration)
	f.check(c.Messages.MaxAttempts >= 0 && c.Messages.MaxAttempts <= mostAttempts, "Messages.MaxAttempts",
		"%d: must be positive and at most %d, which is as far as stores count, or 0 for no limit", c.Messages.MaxAttempts, mostAttempts)
	f.duration(c.Messages.MaxUnreadable, time.Millisecond, "Messages.MaxUnreadable")
	f.check((c.Messages.Marshal == nil) == (c.Messages.Unmarshal == nil), "Messages.Marshal", "goes together with Messages.Unmarshal: one is set and the other is not")
	c.Problems.validate(&f)
	return errors.Join(f...)
}

func (k *KeyConfig) validate(f *faults) {
	f.check(sfv.IsToken(k.Header) && !isReserved(k.Header), "Key.Header", "%q is not a header name that a client can choose", k.Header)
	for _, alias := range k.Aliases {
		f.check(sfv.IsToken(alias) && !isReserved(alias) && !strings.EqualFold(alias, k.Header), "Key.Aliases",
			"%q must be a header name other than Key.Header", alias)
	}
	f.check(len(k.Methods) > 0, "Key.Methods", "is empty: nothing would be protected; leave it nil for POST and PATCH")
	for _, m := range k.Methods {
		f.check(sfv.IsToken(m) && m == strings.ToUpper(m), "Key.Methods", "%q is not a method; methods are upper-case", m)
		f.check(!slices.Contains(safeMethods, m), "Key.Methods", "%s is safe to repeat and cannot be guarded", m)
	}
	f.check(k.SentAt == nil || k.MaxAge > 0, "Key.SentAt", "is for Key.MaxAge, which is not set")
	f.check(k.MinLength > 0, "Key.MinLength", "%d: must be positive", k.MinLength)
	f.check(k.MaxLength >= k.MinLength, "Key.MaxLength", "%d is less than Key.MinLength %d", k.MaxLength, k.MinLength)
}

// reserved are header lines that requests and answers carry for purposes of their own.
var reserved = []string{
	"Host", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Cookie", "Set-Cookie",
	"Authorization", "Date", "Retry-After", "Link", "Location", bodyLine, unprotectedLine, firstSentLine,
}

func isReserved(name string) bool {
	return slices.ContainsFunc(reserved, func(r string) bool { return strings.EqualFold(r, name) })
}

// framing are header lines that some servers take out of a request, or make themselves (FPR-19).
var framing = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
}

// safeMethods are those that the registry of HTTP methods calls safe: RFC 9110, RFC 9113, RFC 3253, RFC 4918, RFC 5323 and, with
// QUERY, RFC 10008.
var safeMethods = []string{"GET", "HEAD", "OPTIONS", "TRACE", "PRI", "PROPFIND", "QUERY", "REPORT", "SEARCH"}

func (p *FingerprintConfig) validate(f *faults, in string) {
	part := p.JSON || p.Multipart || p.SortQuery || len(p.Headers) > 0
	f.check(!p.Off || !part && p.Func == nil, in+"Off", "goes with no other field: Fingerprint.JSON, Multipart, SortQuery, Headers and Func compare requests, and Off compares none")
	f.check(p.Func == nil || !part, in+"Func", "replaces Fingerprint.JSON, Multipart, SortQuery and Headers: leave them out")
	f.check(p.Version == 0 || p.Func != nil, in+"Version", "%d: tells one Fingerprint.Func from the next, and there is none", p.Version)
	for _, name := range p.Headers {
		f.check(sfv.IsToken(name), in+"Headers", "%q is not a header name", name)
		f.check(!framing[strings.ToLower(name)], in+"Headers", "%q belongs to the connection or to the framing of the body, which not every framework tells", name)
	}
	if p.Previous != nil {
		f.check(p.Previous.Previous == nil, in+"Previous", "has a Previous of its own; one is remembered")
		p.Previous.validate(f, in+"Previous.")
	}
}

// validateTimes checks durations against each other.
func (c *Config) validateTimes(f *faults) {
	lease, retention := c.Lease.Duration, c.Keep.Retention
	f.check(lease >= 10*time.Millisecond && lease <= longestLease, "Lease.Duration",
		"%v: must be at least 10ms and at most 1 year: it is how long a retry waits for a process that died", lease)
	f.check(c.Lease.MaxRun == 0 || c.Lease.MaxRun > lease && c.Lease.MaxRun <= longest, "Lease.MaxRun",
		"%v: must be longer than Lease.Duration %v and at most 100 years, or 0 for no limit", c.Lease.MaxRun, lease)
	f.check(retention > lease && retention <= longest, "Keep.Retention",
		"%v: must be longer than Lease.Duration %v, or a record ends before its run, and at most 100 years", retention, lease)
	f.duration(c.Keep.LateRetry, 0, "Keep.LateRetry")
	f.duration(c.Key.MaxAge, 0, "Key.MaxAge")
	f.check(c.Key.MaxAge <= max(retention, 0), "Key.MaxAge", "%v: must be at most Keep.Retention %v, or a retry within it finds no outcome and runs", c.Key.MaxAge, retention)
}

func (c *Config) validateWait(f *faults) {
	w := &c.Wait
	if w.Timeout <= 0 {
		f.check(w.MaxPerKey == 0 && w.Max == 0, "Wait.Timeout", "is not set, but Wait.MaxPerKey or Wait.Max is: no request waits without it")
		return
	}
	_, notifies := c.Store.(driver.Notifier)
	f.check(notifies || c.Store == nil, "Wait.Timeout", "%v: Store %T is no driver.Notifier, so nothing would wake who waits", w.Timeout, c.Store)
	f.duration(w.Timeout, time.Millisecond, "Wait.Timeout")
	f.check(w.MaxPerKey > 0, "Wait.MaxPerKey", "%d: must be positive", w.MaxPerKey)
	f.check(w.Max >= w.MaxPerKey, "Wait.Max", "%d is less than Wait.MaxPerKey %d", w.Max, w.MaxPerKey)
}

func (k *KeepConfig) validate(f *faults) {
	f.check(k.MaxBody > 0, "Keep.MaxBody", "%d: must be positive", k.MaxBody)
	f.check(sfv.IsToken(k.Marker) && !isReserved(k.Marker), "Keep.Marker", "%q is not a header name that nothing else uses", k.Marker)
	f.check(!k.NoMarker || !k.MarkAll && !k.ExposeMarker, "Keep.NoMarker", "goes with neither Keep.MarkAll nor Keep.ExposeMarker: there is no marker to send or expose")
	for _, name := range k.AllowHeaders {
		f.check(sfv.IsToken(name), "Keep.AllowHeaders", "%q is not a header name", name)
		f.check(!neverKept[strings.ToLower(name)] && !strings.EqualFold(name, k.Marker), "Keep.AllowHeaders", "%q belongs to one exchange, or is Keep.Marker, and can not be repeated", name)
		denied := slices.ContainsFunc(k.DenyHeaders, func(d string) bool { return strings.EqualFold(d, name) })
		f.check(!denied, "Keep.AllowHeaders", "%q is in Keep.DenyHeaders, too", name)
	}
	for _, name := range k.DenyHeaders {
		f.check(sfv.IsToken(name), "Keep.DenyHeaders", "%q is not a header name", name)
	}
	f.check(!slices.ContainsFunc(k.Codecs, func(c driver.Codec) bool { return isNil(c) }), "Keep.Codecs", "has a nil in it")
	f.check(k.Blobs == nil || !isNil(k.Blobs), "Keep.Blobs", "is a nil %T: leave it out, or make one", k.Blobs)
	f.check(k.Blobs != nil || k.BlobsFrom == 0, "Keep.BlobsFrom", "%d: is for Keep.Blobs, which is not set", k.BlobsFrom)
	f.check(k.Blobs == nil || k.BlobsFrom > 0 && k.BlobsFrom < k.MaxBody, "Keep.BlobsFrom", "%d: must be positive and less than Keep.MaxBody %d, over which nothing is kept", k.BlobsFrom, k.MaxBody)
}

func (p *ProblemConfig) validate(f *faults) {
	base, err := url.Parse(p.BaseURL)
	f.check(err == nil && base.IsAbs(), "Problems.BaseURL", "%q is not an absolute URL", p.BaseURL)
	f.check(strings.Trim(p.BaseURL, uriCharacters) == "", "Problems.BaseURL", "%q: write what is not a URI character with %%, or it would end a Link", p.BaseURL)
	f.check(p.Render == nil || !p.Link, "Problems.Link", "is for the default answer, which Problems.Render replaces")
	for _, code := range slices.Sorted(maps.Keys(p.Status)) {
		_, known := problems[code]
		f.check(known, "Problems.Status", "there is no code %q; the codes are %s", code, strings.Join(slices.Sorted(maps.Keys(problems)), ", "))
		f.check(validStatus(p.Status[code]), "Problems.Status", "%s: %d is not a 4xx or 5xx status", code, p.Status[code])
	}
}

// uriCharacters are those of RFC 3986, section 2.
const uriCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%"
