package core

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Config configures an [Engine]. Store and Scope are required; every other field has a default. [New] copies the config:
// later changes to it have no effect.
type Config struct {
	// Store holds the records. All processes of a service, and the deployments that replace them, share one. Required.
	Store driver.Store

	// Scope returns the caller to which a key belongs: one key of two callers is two keys (SCP-01). Read the caller from what
	// authentication stored in the context, never from what the client claims. A request with an empty scope is refused with
	// 401 (SCP-04). SingleTenant and ScopeByAdapter are ready-made. Scope must be safe for concurrent use. Required.
	Scope func(context.Context, *Request) string

	// DangerouslyFailOpen runs the handler without protection if the store does not respond: a retry then runs it again. Such a
	// response carries "Idempotent-Unprotected: true", and Hooks.Unprotected is called (LSE-08). Set it for routes that had
	// better run twice than not at all. Default false: the request is refused with 503.
	DangerouslyFailOpen bool

	// Secret turns every hash that reaches the store into an HMAC, so that a leaked dump cannot be searched for known keys and
	// requests. It has at least 16 bytes and is the same in all processes. Changing it makes every key new, unless
	// PreviousSecrets names the earlier one. Default none: plain hashes.
	Secret []byte

	// PreviousSecrets are other secrets under which live records may be stored; an empty one stands for records without a
	// secret. Each key is looked up under them too, and a record that is found counts as if it were stored under Secret.
	// Change a secret in three deployments: list the new secret here; make it Secret and list the old one; remove the old one
	// after twice Keep.Retention. Without the first of them a key can run twice while processes of both kinds are up. A key
	// that has no record under Secret costs two more store calls for each secret listed. Child keys do not depend on secrets.
	// Default none.
	PreviousSecrets [][]byte

	// Marshal and Unmarshal convert the results of steps and messages to bytes and back. Set both or neither. They must be safe
	// for concurrent use, and Unmarshal must not keep or change its argument, since other calls may get the same bytes. Default
	// JSON.
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

// KeyConfig configures which requests are guarded, and which keys are accepted.
type KeyConfig struct {
	// Header is the name of the header field that carries the key. Default "Idempotency-Key".
	Header string

	// Aliases are other header fields that may carry the key; two different keys in one request are refused (KEY-20). Set it
	// while clients move from one name to another. Default none.
	Aliases []string

	// Strict accepts only a quoted structured-field String, as the draft specifies it, and refuses bare keys with 400 (KEY-07,
	// KEY-09). Default false: both forms are accepted and are one key.
	Strict bool

	// Accept receives each well-formed key and returns the form to use, or false to refuse the request with 400 before the
	// store is called (KEY-18). UUIDKey is ready-made. Accept must be safe for concurrent use. Default: every key is accepted.
	Accept func(key string) (string, bool)

	// PerRoute makes one key on two routes two keys (FPR-03). Default false: the second use is a mismatch.
	PerRoute bool

	// PerRouteChanged says that live keys were used under the other value of PerRoute, or that other processes have it. A
	// record under either name is then found, which costs two more store calls for each new key. Change PerRoute in three
	// deployments: set PerRouteChanged; change PerRoute; unset PerRouteChanged after twice Keep.Retention. Neighbouring
	// deployments never run a key twice. While it is set, a key of another route may be refused with 422, as without PerRoute
	// (SKW-01). Default false.
	PerRouteChanged bool

	// Required refuses a guarded request without a key with 400. Default false: such a request runs without protection (KEY-02).
	Required bool

	// Methods are the guarded methods; requests with another one pass as if there were no engine. Safe methods, such as GET
	// and QUERY, cannot be guarded (MTH-01). Default POST and PATCH.
	Methods []string

	// MinLength and MaxLength bound the length of a key in bytes, without quotes. Raise MinLength if clients might choose keys
	// that collide. Defaults 1 and 255.
	MinLength, MaxLength int

	// MaxAge refuses a request with 412 if it was first sent this long ago or longer, and with 400 if it does not say when it
	// was. It is at most Keep.Retention, so that no retry comes so late that it runs again (TTL-07). The time comes from the
	// client: leave room between MaxAge and Keep.Retention for clocks that are ahead. Default 0: requests of any age run.
	MaxAge time.Duration

	// SentAt returns when a request was first sent, for MaxAge, or false if the request does not say so in a valid form. SentAt
	// must be safe for concurrent use. Default: the HTTP date of the Repeatability-First-Sent header field, or else the time in
	// a UUIDv7 key (RFC 9562).
	SentAt func(req *Request, key string) (time.Time, bool)
}

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
	// must be safe for concurrent use and must not keep the body. Default nil.
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
	// may be read again. OnUnknown must be safe for concurrent use. RefuseUnknown is ready-made. Default nil: the handler runs
	// again, and Run.Takeover is set.
	OnUnknown func(context.Context, *Request) (*Response, error)
}

// KeepConfig configures what is stored of a response, and for how long.
type KeepConfig struct {
	// Retention is how long after its outcome a key is replayed. Raise it if clients retry later. Default 24 h.
	Retention time.Duration

	// LateRetry is how much longer a key is remembered without its outcome: a retry in that time is refused with 410 instead of
	// being run again. It has no effect on keys that were completed under another value. Default 0.
	LateRetry time.Duration

	// MaxBody is the length in bytes of the longest body that is stored. A longer body reaches the first client whole; replays
	// have its status and header fields, "Idempotent-Body: omitted", and no body (RPL-27). Default 1 MiB.
	MaxBody int

	// OmitBody receives each response that is about to be stored, and returns true to store it without its body, as if that
	// were too long (RPL-30). OmitNoStore is ready-made. OmitBody must be safe for concurrent use, and must not keep or change
	// the response. Default nil: every body up to MaxBody is stored.
	OmitBody func(*Response) bool

	// Policy decides by a handler's response what becomes of the key. It must be safe for concurrent use, and must not keep or
	// change the response. KeepAll, KeepOnly2xx and ReleaseOn are ready-made. Default DefaultPolicy.
	Policy func(*Response) Disposition

	// Marker is the name of the header field that replays carry with the value "true", and that no other response carries
	// (RPL-25). Default "Idempotent-Replayed".
	Marker string

	// NoMarker omits the marker. MarkAll sends it with the value "false" on first responses too, except streamed ones.
	// ExposeMarker names it in Access-Control-Expose-Headers, so that scripts in browsers can read it (RPL-29). Defaults false.
	NoMarker, MarkAll, ExposeMarker bool

	// AllowHeaders are names of header fields that are stored although they belong to one exchange, such as Set-Cookie
	// (RPL-15). Those that HTTP forbids to repeat cannot be allowed (RPL-12). Default none.
	AllowHeaders []string

	// DenyHeaders are names of header fields that are not stored, in addition to those that never are (RPL-16). They are not
	// replayed either if they were stored before. Default none.
	DenyHeaders []string

	// Codecs transform outcomes: first to last when they are stored, last to first when they are read. Compress before sealing.
	// An outcome that they cannot read is refused with 503, and its request is not run again. Default none.
	Codecs []driver.Codec

	// LocalReplays is about how many bytes of memory this process uses to replay outcomes without calling the store. An outcome
	// stays for at most a minute, so a record that an operator deletes is gone from every process after that; outcomes that
	// nobody requests are evicted first. Engines that With has derived from one engine share the memory. Set it if the same keys
	// are retried often. Default 0, as for negative values: every replay calls the store.
	LocalReplays int

	// Blobs stores the outcomes whose body is longer than BlobsFrom bytes; the store then holds only their status and header.
	// A response whose blob is lost is replayed without its body. Default nil: the store holds every outcome. BlobsFrom has
	// the default 64 KiB.
	Blobs     driver.Blobs
	BlobsFrom int
}

// LimitsConfig bounds what a request may cost.
type LimitsConfig struct {
	// RequestBody is the length in bytes of the longest body of a request with a key. A longer one is refused with 413 before
	// the store is called (FPR-15). The engine reads the whole body into memory. Default 1 MiB.
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

// ProblemConfig configures the responses of refused requests (PRB-04). docs/problems.md lists the codes.
type ProblemConfig struct {
	// BaseURL, followed by a code, is the type of a problem. Set it to a page of your own API's documentation. Default:
	// docs/problems.md in the project's repository.
	BaseURL string

	// Status overrides the HTTP status of the given codes, for example {"in-progress": 423}. Default: the statuses in
	// docs/problems.md.
	Status map[string]int

	// Link adds the header field Link: <type>; rel="describedby" to refusals (KEY-03). Default false.
	Link bool

	// Render returns the whole response of a refusal, or nil for the default one. It must be safe for concurrent use. Default
	// nil.
	Render func(Problem) *Response
}

// defaultBaseURL is the default of ProblemConfig.BaseURL.
const defaultBaseURL = "https://github.com/go-idem/idem/blob/main/docs/problems.md#"

// withDefaults returns a copy of c in which every unset field has its default. The copy shares no slice or map with c, so the
// caller of New may go on changing its own.
func (c Config) withDefaults() Config {
	c.Key.Header = cmp.Or(c.Key.Header, "Idempotency-Key")
	c.Key.Methods = slices.Clone(c.Key.Methods)
	if c.Key.Methods == nil {
		c.Key.Methods = []string{"POST", "PATCH"}
	}
	c.Key.Aliases = slices.Clone(c.Key.Aliases)
	c.Key.MinLength = cmp.Or(c.Key.MinLength, 1)
	c.Key.MaxLength = cmp.Or(c.Key.MaxLength, 255)
	c.Secret = bytes.Clone(c.Secret)
	c.PreviousSecrets = slices.Clone(c.PreviousSecrets)
	for i, secret := range c.PreviousSecrets {
		c.PreviousSecrets[i] = bytes.Clone(secret)
	}
	c.Fingerprint = c.Fingerprint.clone()
	c.Lease.Duration = cmp.Or(c.Lease.Duration, 30*time.Second)
	c.Keep.Retention = cmp.Or(c.Keep.Retention, 24*time.Hour)
	c.Keep.MaxBody = cmp.Or(c.Keep.MaxBody, 1<<20)
	c.Keep.Marker = cmp.Or(c.Keep.Marker, "Idempotent-Replayed")
	c.Keep.AllowHeaders = slices.Clone(c.Keep.AllowHeaders)
	c.Keep.DenyHeaders = slices.Clone(c.Keep.DenyHeaders)
	c.Keep.Codecs = slices.Clone(c.Keep.Codecs)
	if c.Keep.Policy == nil {
		c.Keep.Policy = DefaultPolicy
	}
	if c.Keep.Blobs != nil {
		c.Keep.BlobsFrom = cmp.Or(c.Keep.BlobsFrom, 64<<10)
	}
	if c.Wait.Timeout > 0 {
		c.Wait.MaxPerKey = cmp.Or(c.Wait.MaxPerKey, 16)
		c.Wait.Max = cmp.Or(c.Wait.Max, max(1024, c.Wait.MaxPerKey))
	}
	c.Limits.RequestBody = cmp.Or(c.Limits.RequestBody, 1<<20)
	c.Limits.StoreTimeout = cmp.Or(c.Limits.StoreTimeout, min(time.Second, c.Lease.Duration/3))
	if c.Marshal == nil && c.Unmarshal == nil {
		c.Marshal, c.Unmarshal = json.Marshal, json.Unmarshal
	}
	c.Problems.BaseURL = cmp.Or(c.Problems.BaseURL, defaultBaseURL)
	c.Problems.Status = maps.Clone(c.Problems.Status)
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
