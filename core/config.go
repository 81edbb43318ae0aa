package core

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/sfv"
)

// Config configures an [Engine]. Store and Scope are required; every other field has a default. [New] copies the config:
// later changes to it have no effect.
type Config struct {
	// Store holds the records. All processes of a service, and the deployments that replace them, share one: processes on
	// different stores MAY RUN A KEY TWICE (SKW-01). Package movestore moves a service to another one. Required.
	Store driver.Store

	// Name is the Engine of all Events, so that those of several engines can be told apart. It has at most 64 bytes. Default "".
	Name string

	// Scope returns the caller to which a key belongs: one key of two callers is two keys (SCP-01). Read the caller from what
	// authentication stored in the context, never from what the client claims. A request with an empty scope is refused with
	// 401 (SCP-04). SingleTenant and ScopeByAdapter are ready-made. A change that gives live keys another scope MAY RUN A KEY
	// TWICE (SKW-01). Scope must be safe for concurrent use. Required.
	Scope func(context.Context, *Request) string

	// DangerouslyFailOpen runs the handler without protection if the store does not respond, which MAY RUN A KEY TWICE. Such a
	// response carries "Idempotent-Unprotected: true", and Hooks.Unprotected is called (LSE-08). Set it for routes that had
	// better run twice than not at all. Default false: the request is refused with 503.
	DangerouslyFailOpen bool

	// Secret turns every hash that reaches the store into an HMAC, so that a leaked dump cannot be searched for known keys and
	// requests. It has at least 16 bytes and is the same in all processes. Changing it makes every key new, and MAY RUN A KEY
	// TWICE, unless PreviousSecrets names the earlier one (SKW-01). Default none: plain hashes.
	Secret []byte

	// PreviousSecrets are other secrets under which live records may be stored; an empty one stands for records without a
	// secret. Each key is looked up under them too, and a record that is found counts as if it were stored under Secret.
	// Change a secret in three deployments: list the new secret here; make it Secret and list the old one; remove the old one
	// after twice Keep.Retention. Without the first of them a key can run twice while processes of both kinds are up. A key
	// that has no record under Secret costs one more store call for each secret listed. Child keys do not depend on secrets.
	// Default none.
	PreviousSecrets [][]byte

	// Marshal and Unmarshal convert the results of steps and messages to bytes and back. Set both or neither. They must be safe
	// for concurrent use, and Unmarshal must not keep or change its argument, since other calls may get the same bytes. After a
	// change, Unmarshal must still read what the earlier Marshal has stored, or steps return an error and messages have no result
	// (SKW-01). Default JSON.
	Marshal   func(any) ([]byte, error)
	Unmarshal func([]byte, any) error

	Key         KeyConfig
	Fingerprint FingerprintConfig
	Lease       LeaseConfig
	Wait        WaitConfig
	Keep        KeepConfig
	Limits      LimitsConfig
	Problems    ProblemConfig
	Hooks       Hooks
}

// WaitConfig lets a retry wait for the run in progress instead of refusing it with 409. The store must be a driver.Notifier.
type WaitConfig struct {
	// Timeout is how long a request waits at most, counted from the store call that found the run. It gets the outcome as soon
	// as the run ends, or runs itself if that run failed; after Timeout it is refused with 409 (CON-04, CON-05). A store that is
	// slow or unavailable adds at most Limits.StoreTimeout (CON-11). Default 0: no request waits.
	Timeout time.Duration

	// MaxPerKey and Max bound how many requests wait in this process: for one key, and in total over all engines that With has
	// derived from one engine. More are refused with 409 at once. Defaults 16 and 1024, or MaxPerKey if that is more.
	MaxPerKey, Max int
}

// LeaseConfig configures how long a run counts as alive without a sign of life.
type LeaseConfig struct {
	// Duration is how long a claim lasts without renewal, and so how long a retry waits after the process of the first run died.
	// The engine renews it every Duration/3 while the handler runs, so Duration may be shorter than the handler takes. At least
	// 10 ms, at most 1 year, less than Keep.Retention. Default 30 s.
	Duration time.Duration

	// MaxRun is how long a run may last. After it, the handler's context is cancelled with a cause that wraps ErrLost, the lease
	// is no longer renewed, and the outcome is unknown: a response that comes later is refused with 409 claim-lost. Set it where
	// a handler may hang, since it would hold its key. It is longer than Duration. Default 0: a run may last as long as its process.
	MaxRun time.Duration

	// OnUnknown decides what becomes of a run whose lease ended without an outcome. It returns the response to store and send,
	// nil if the operation did not happen and the handler is to run, or an error to refuse the request with 409
	// outcome-unknown. A panic of a handler counts as such an end too. ChildKey works with its context, and the request's Body
	// may be read again. OnUnknown must be safe for concurrent use. RefuseUnknown is ready-made. A process without OnUnknown runs
	// the handler again whatever other processes have: it MAY RUN A KEY TWICE while OnUnknown is being set or unset (SKW-01).
	// Default nil: the handler runs again, and Run.Takeover is set.
	OnUnknown func(context.Context, *Request) (*Response, error)
}

// LimitsConfig bounds what a request may cost.
type LimitsConfig struct {
	// RequestBody is the length in bytes of the longest body of a request with a key. A longer one is refused with 413 before
	// the store is called (FPR-15). The engine reads the whole body into memory. Of a form in parts that middleware outside has
	// parsed, only the declared length counts. Default 1 MiB.
	RequestBody int64

	// StoreTimeout bounds each store call, and so how long an unavailable store delays a request (LSE-10). Calls that renew or
	// end claims in the background may take twice as long, so that new requests cannot crowd them out. A Store that ignores its
	// context can exceed it. At least 1 ms, at most half of Lease.Duration. Default 1 s, or a third of Lease.Duration if that
	// is less.
	StoreTimeout time.Duration

	// Quota returns false to refuse a request with 429 before anything is stored. It is called for each request with a key,
	// replays included. It must be safe for concurrent use. Default nil: no limit.
	Quota func(ctx context.Context, scope string, req *Request) bool
}

// withDefaults returns a copy of c in which every unset field has its default. The copy shares no slice or map with c, so the
// caller of New may go on changing its own.
func (c Config) withDefaults() Config {
	c.Key = c.Key.withDefaults()
	c.Secret = bytes.Clone(c.Secret)
	c.PreviousSecrets = slices.Clone(c.PreviousSecrets)
	for i, secret := range c.PreviousSecrets {
		c.PreviousSecrets[i] = bytes.Clone(secret)
	}
	c.Fingerprint = c.Fingerprint.clone()
	c.Lease.Duration = cmp.Or(c.Lease.Duration, 30*time.Second)
	c.Keep = c.Keep.withDefaults()
	if c.Wait.Timeout > 0 {
		c.Wait.MaxPerKey = cmp.Or(c.Wait.MaxPerKey, 16)
		c.Wait.Max = cmp.Or(c.Wait.Max, max(1024, c.Wait.MaxPerKey))
	}
	c.Limits.RequestBody = cmp.Or(c.Limits.RequestBody, 1<<20)
	c.Limits.StoreTimeout = cmp.Or(c.Limits.StoreTimeout, min(time.Second, c.Lease.Duration/3))
	if c.Marshal == nil && c.Unmarshal == nil {
		c.Marshal, c.Unmarshal = json.Marshal, json.Unmarshal
	}
	c.Problems = c.Problems.withDefaults()
	return c
}

// clearDerived unsets the defaults that depend on other fields, where original did not set these fields.
func (c *Config) clearDerived(original *Config) {
	if original.Marshal == nil {
		c.Marshal, c.Unmarshal = nil, nil
	}
	if original.Limits.StoreTimeout == 0 {
		c.Limits.StoreTimeout = 0
	}
	if original.Wait.MaxPerKey == 0 {
		c.Wait.MaxPerKey = 0
	}
	if original.Wait.Max == 0 {
		c.Wait.Max = 0
	}
	if original.Keep.BlobsFrom == 0 {
		c.Keep.BlobsFrom = 0
	}
}

// maxLabel is the length in bytes of the longest Config.Name, and of what is stored of the result of Keep.Origin.
const maxLabel = 64

// validate returns an error that joins a ConfigError for every bad field. It expects a config with defaults.
func (c Config) validate() error {
	var f configErrors
	f.require(!isNil(c.Store), "Store",
		"is required; memstore.New() needs no server, redisstore.New(client) shares records between processes")
	f.require(c.Scope != nil, "Scope",
		"is required: say who a key belongs to, or core.SingleTenant if every caller may share one set of keys")
	f.require(len(c.Name) <= maxLabel && utf8.ValidString(c.Name), "Name", "%q: must be UTF-8 of at most %d bytes", c.Name, maxLabel)
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
	c.Keep.validate(&f, c.isEngineField)
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
