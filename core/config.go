package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config says how an [Engine] works. Store and Scope are required; the zero value of everything else is its default.
// [New] copies it: later changes to it have no effect.
type Config struct {
	// Store keeps the records. Engines of one service, and of services that replace each other, share one.
	Store Store

	// Scope says who a key belongs to: two callers may use one key without ever meeting (SCP-01). Take it from what
	// authentication put into the context, not from what the client claims. An empty scope refuses the request with
	// 401 (SCP-04). SingleTenant and ScopeByAdapter are ready-made. It must be safe for concurrent use.
	Scope func(context.Context, *Request) string

	// DangerouslyFailOpen runs the handler without protection when the store can not answer: twice, if the client retries.
	// Such an answer carries "Idempotent-Unprotected: true", and Hooks.StoreError hears of it (LSE-08). By default the
	// request is refused with 503.
	DangerouslyFailOpen bool

	Key      KeyConfig
	Lease    LeaseConfig
	Keep     KeepConfig
	Limits   LimitsConfig
	Problems ProblemConfig
	Hooks    Hooks
}

// KeyConfig says which requests are protected.
type KeyConfig struct {
	// Header is the name of the key's header line. Default "Idempotency-Key".
	Header string

	// Aliases are other names that the header may come under (KEY-20). Default none.
	Aliases []string

	// Strict takes only a quoted structured-field String, as the draft has it; a bare key is refused (KEY-07, KEY-09).
	Strict bool

	// Accept, when set, is shown each well-formed key and returns the form to use, or false to refuse it with 400 before
	// the store is asked (KEY-18). UUIDKey is ready-made. It must be safe for concurrent use.
	Accept func(key string) (string, bool)

	// PerRoute makes a key that is used on two routes two keys (FPR-03). By default the second use is a mismatch.
	PerRoute bool

	// Required refuses a guarded request without a key with 400. By default it runs without protection (KEY-02).
	Required bool

	// Methods are guarded; others pass by as if there were no engine. Default POST and PATCH. The methods that RFC 9110
	// calls safe can not be guarded (MTH-01).
	Methods []string

	// MinLength and MaxLength bound the key in bytes, without quotes. Defaults 1 and 255.
	MinLength, MaxLength int
}

// LeaseConfig says how long a run is believed to be alive without a sign of it.
type LeaseConfig struct {
	// Duration is renewed at each third of itself while the handler runs, so it need not outlast the handler; it is how
	// long a retry waits for the run of a process that died. At least 10 ms, less than Keep.Retention. Default 30 s.
	Duration time.Duration

	// OnUnknown is asked when a lease has ended without an outcome: did the operation happen? It returns the outcome to
	// keep and to answer with, nil for "it did not, run it", or an error to refuse the request with 409 outcome-unknown. A
	// panic counts as such an end too. ChildKey works on its context, and the request's Body may be read again. It must be
	// safe for concurrent use. Default: run the handler again and tell it so (Run.Takeover). RefuseUnknown is ready-made.
	OnUnknown func(context.Context, *Request) (*Response, error)
}

// KeepConfig says what is kept of an answer, and for how long.
type KeepConfig struct {
	// Retention is how long a retry is answered, counted from the outcome. Default 24 h.
	Retention time.Duration

	// MaxBody is the longest body, in bytes, that is kept. A longer one reaches its client whole, and replays carry its
	// status and header without the body, with the line "Idempotent-Body: omitted" (RPL-27). Default 1 MiB.
	MaxBody int

	// OmitBody, when set, is shown each answer that is about to be kept; where it returns true the record does without
	// the body, as if it were too long (RPL-30). OmitNoStore is ready-made. It must be safe for concurrent use.
	OmitBody func(*Response) bool

	// Policy decides by the answer what becomes of the key. Default DefaultPolicy.
	Policy func(*Response) Disposition

	// Marker is the name of the header line that replays carry, with the value "true", and that nothing else does
	// (RPL-25). Default "Idempotent-Replayed".
	Marker string
}

// LimitsConfig bounds what a request may cost.
type LimitsConfig struct {
	// RequestBody is the longest body, in bytes, of a request with a key; a longer one is refused with 413 before the
	// store is asked (FPR-15). Default 1 MiB.
	RequestBody int64

	// StoreTimeout bounds each call of the store, so also what a dead store adds to a request (LSE-10). A Store that
	// does not watch its context can exceed it. At most half of Lease.Duration. Default 1 s, or a third of
	// Lease.Duration if that is less.
	StoreTimeout time.Duration
}

// ProblemConfig says how refusals look (PRB-04). The codes are listed in docs/problems.md.
type ProblemConfig struct {
	// BaseURL, followed by a code, is the type of a problem. Default: docs/problems.md on the project's site.
	BaseURL string

	// Status overrides the HTTP status of the given codes, e.g. {"in-progress": 423}.
	Status map[string]int

	// Render makes the whole answer instead; for nil the default one is sent. It must be safe for concurrent use.
	Render func(Problem) *Response
}

const defaultBaseURL = "https://github.com/go-idem/idem/blob/main/docs/problems.md#"

// withDefaults returns a copy that shares no slice or map with c.
func (c Config) withDefaults() Config {
	c.Key.Header = cmp.Or(c.Key.Header, "Idempotency-Key")
	c.Key.Methods = slices.Clone(c.Key.Methods)
	if c.Key.Methods == nil {
		c.Key.Methods = []string{"POST", "PATCH"}
	}
	c.Key.Aliases = slices.Clone(c.Key.Aliases)
	c.Key.MinLength = cmp.Or(c.Key.MinLength, 1)
	c.Key.MaxLength = cmp.Or(c.Key.MaxLength, 255)
	c.Lease.Duration = cmp.Or(c.Lease.Duration, 30*time.Second)
	c.Keep.Retention = cmp.Or(c.Keep.Retention, 24*time.Hour)
	c.Keep.MaxBody = cmp.Or(c.Keep.MaxBody, 1<<20)
	c.Keep.Marker = cmp.Or(c.Keep.Marker, "Idempotent-Replayed")
	if c.Keep.Policy == nil {
		c.Keep.Policy = DefaultPolicy
	}
	c.Limits.RequestBody = cmp.Or(c.Limits.RequestBody, 1<<20)
	c.Limits.StoreTimeout = cmp.Or(c.Limits.StoreTimeout, min(time.Second, c.Lease.Duration/3))
	c.Problems.BaseURL = cmp.Or(c.Problems.BaseURL, defaultBaseURL)
	c.Problems.Status = maps.Clone(c.Problems.Status)
	return c
}

// validate returns every bad field of a config with defaults, joined.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, &ConfigError{field, fmt.Sprintf(format, args...)})
		}
	}
	check(c.Store != nil, "Store", "is required; memstore.New() needs no server, redisstore.New(client) shares records between processes")
	check(c.Scope != nil, "Scope", "is required: say who a key belongs to, or core.SingleTenant if every caller may share one set of keys")
	check(isToken(c.Key.Header), "Key.Header", "%q is not a header name", c.Key.Header)
	for _, alias := range c.Key.Aliases {
		check(isToken(alias) && !strings.EqualFold(alias, c.Key.Header), "Key.Aliases", "%q must be a header name other than Key.Header", alias)
		check(!strings.EqualFold(alias, c.Keep.Marker), "Key.Aliases", "%q is Keep.Marker", alias)
	}
	check(len(c.Key.Methods) > 0, "Key.Methods", "is empty: nothing would be protected; leave it nil for POST and PATCH")
	for _, m := range c.Key.Methods {
		check(isToken(m) && m == strings.ToUpper(m), "Key.Methods", "%q is not a method; methods are upper-case", m)
		check(!slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, m), "Key.Methods", "%s is safe to repeat and can not be guarded", m)
	}
	check(c.Key.MinLength > 0, "Key.MinLength", "%d: must be positive", c.Key.MinLength)
	check(c.Key.MaxLength >= c.Key.MinLength, "Key.MaxLength", "%d is less than Key.MinLength %d", c.Key.MaxLength, c.Key.MinLength)
	check(c.Lease.Duration >= 10*time.Millisecond, "Lease.Duration", "%v: must be at least 10ms", c.Lease.Duration)
	check(c.Keep.Retention > c.Lease.Duration, "Keep.Retention", "%v: must be longer than Lease.Duration %v, or a record ends before its run", c.Keep.Retention, c.Lease.Duration)
	check(c.Keep.MaxBody > 0, "Keep.MaxBody", "%d: must be positive", c.Keep.MaxBody)
	check(isToken(c.Keep.Marker) && !strings.EqualFold(c.Keep.Marker, c.Key.Header), "Keep.Marker", "%q must be a header name other than Key.Header", c.Keep.Marker)
	check(c.Limits.RequestBody > 0 && c.Limits.RequestBody < math.MaxInt64, "Limits.RequestBody", "%d: must be positive, and a limit", c.Limits.RequestBody)
	check(c.Limits.StoreTimeout > 0 && c.Limits.StoreTimeout <= c.Lease.Duration/2, "Limits.StoreTimeout",
		"%v: must be positive and at most half of Lease.Duration %v, or one slow call could outlast the lease", c.Limits.StoreTimeout, c.Lease.Duration)
	base, err := url.Parse(c.Problems.BaseURL)
	check(err == nil && base.IsAbs(), "Problems.BaseURL", "%q is not an absolute URL", c.Problems.BaseURL)
	for _, code := range slices.Sorted(maps.Keys(c.Problems.Status)) {
		_, known := problems[code]
		check(known, "Problems.Status", "there is no code %q; the codes are %s", code, strings.Join(slices.Sorted(maps.Keys(problems)), ", "))
		check(validStatus(c.Problems.Status[code]), "Problems.Status", "%s: %d is not a 4xx or 5xx status", code, c.Problems.Status[code])
	}
	return errors.Join(errs...)
}
