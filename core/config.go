package core

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Config says how an [Engine] works. Store and Scope are required; the zero value of everything else is its default.
// [New] copies it: later changes to it have no effect.
type Config struct {
	// Store keeps the records. Engines of one service, and of services that replace each other, share one.
	Store driver.Store

	// Scope says who a key belongs to: two callers may use one key without ever meeting (SCP-01). Take it from what
	// authentication put into the context, not from what the client claims. An empty scope refuses the request with
	// 401 (SCP-04). SingleTenant and ScopeByAdapter are ready-made. It must be safe for concurrent use.
	Scope func(context.Context, *Request) string

	// DangerouslyFailOpen runs the handler without protection when the store can not answer: twice, if the client retries.
	// Such an answer carries "Idempotent-Unprotected: true", and Hooks.Unprotected hears of it (LSE-08). By default the
	// request is refused with 503.
	DangerouslyFailOpen bool

	// Secret, when set, makes an HMAC of every hash that reaches the store, so that nobody guesses keys and requests from
	// what it holds. At least 16 bytes, the same in all processes; under another one every key is new, unless PreviousSecrets
	// lists this one. Default none.
	Secret []byte

	// PreviousSecrets are others under which live records may lie: each key is looked up under them, too, so that a record that
	// is there is replayed, awaited, or refused as if it lay under Secret. An empty one stands for records without a secret.
	// Rotate in three deploys: list the new secret here; then make it Secret and list the old one; then, when every process has
	// done so for twice Keep.Retention, drop the old one. Skipping the first runs a key twice while processes of both kinds
	// are there. Every key costs two more calls of the store for each secret listed. Child keys do not depend on secrets.
	// Default none.
	PreviousSecrets [][]byte

	Key         KeyConfig
	Fingerprint FingerprintConfig
	Lease       LeaseConfig
	Wait        WaitConfig
	Keep        KeepConfig
	Limits      LimitsConfig
	Messages    MessagesConfig
	Problems    ProblemConfig
	Hooks       Hooks
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

	// PerRouteChanged says that PerRoute had the other value while keys that live were used, or has it in processes that run
	// beside this one: a record under the name that it had, or has there, is found, too. That costs two calls of the store more
	// for each new key. In a deploy that rolls set it first, then change PerRoute, then take it away after twice Keep.Retention:
	// processes of neighbouring steps never run a key twice. Until then a key of another route may be refused with 422, as
	// without PerRoute (SKW-01).
	PerRouteChanged bool

	// Required refuses a guarded request without a key with 400. By default it runs without protection (KEY-02).
	Required bool

	// Methods are guarded; others pass by as if there were no engine. Default POST and PATCH. Safe methods, such as
	// GET and QUERY, cannot be guarded (MTH-01).
	Methods []string

	// MinLength and MaxLength bound the key in bytes, without quotes. Defaults 1 and 255.
	MinLength, MaxLength int

	// MaxAge refuses a request with 412 when it was first sent so long ago or longer, and with 400 when it does not tell: with
	// MaxAge at most Keep.Retention, no retry comes so late that it runs anew (TTL-07). The time is the client's: a clock that
	// is ahead takes as much off, so leave room between the two. Default 0: any age.
	MaxAge time.Duration

	// SentAt, for MaxAge, tells when a request was first sent; false when it does not say, or not well. It must be safe for concurrent
	// use. Default: the HTTP date in its Repeatability-First-Sent line, else the time in a UUIDv7 key (RFC 9562).
	SentAt func(req *Request, key string) (time.Time, bool)
}

// FingerprintConfig says what makes two requests the same, besides method and path, which always count. The record says
// which of these algorithms made it. After a change, and between two engines that share keys, a live key is compared by the
// record's algorithm if Previous names it, or if it tells apart whatever this config tells apart. Otherwise another request
// is refused with 422 as far as that can be told, and the rest with 503 record-unreadable; nothing is run or replayed (FPR-18).
type FingerprintConfig struct {
	// JSON compares bodies with a JSON Content-Type by their content: white space, the order of members, and ways to
	// write a string or a number do not count (RFC 8785, but for numbers, which are compared exactly; FPR-06, FPR-07). What
	// can not be compared so is compared by its bytes (FPR-09). By default all bodies are.
	JSON bool

	// Multipart compares multipart/form-data by its parts: the boundary does not count (FPR-12). Fiber, unless told not to
	// parse forms, compares so in any case.
	Multipart bool

	// SortQuery compares the query by names and values: the order of parameters and the way they are escaped do not count
	// (FPR-05). By default its text counts.
	SortQuery bool

	// Headers are names of header lines that count, too, such as Accept, a tenant's, or Host (FPR-13, FPR-19). Those of the
	// connection and of a body's framing are refused: not every framework tells them. Default none.
	Headers []string

	// Func replaces all of this: two requests with one method and path are the same when it returns the same. It must be
	// safe for concurrent use, and not keep the body.
	Func func(req *Request, body []byte) []byte

	// Version tells one Func from the next.
	Version byte

	// Off takes every request with one method and path under a key for the same one, so that a client which reuses a key for
	// another body or query gets the answer of the first (FPR-17). By default it is refused.
	Off bool

	// Previous is the config before the last change, for records that are still alive: they are compared as it says.
	Previous *FingerprintConfig
}

// WaitConfig lets a retry wait for the run in progress instead of being refused with 409 at once. The store must be a
// Notifier.
type WaitConfig struct {
	// Timeout is how long a request waits at most, from when the store is asked that finds the run. When the run ends it is
	// replayed, or takes over a run that failed; later it is refused as if it had not waited (CON-04, CON-05). A store that
	// is slow, or does not answer, adds Limits.StoreTimeout at most (CON-11). Default 0: no request waits.
	Timeout time.Duration

	// MaxPerKey and Max bound how many requests wait in this process, for one key and for all engines that come from one
	// by With. More are refused at once. Defaults 16 and 1024.
	MaxPerKey, Max int
}

// LeaseConfig says how long a run is believed to be alive without a sign of it.
type LeaseConfig struct {
	// Duration is renewed at each third of itself while the handler runs, so it need not outlast the handler; it is how
	// long a retry waits for the run of a process that died. A handler that hangs holds its key until its process ends: see
	// MaxRun. At least 10 ms, at most 1 year, less than Keep.Retention. Default 30 s.
	Duration time.Duration

	// MaxRun is how long a run may last. Then its context is cancelled with a cause that wraps ErrLost, its lease is not renewed
	// any more, and its outcome is unknown, whatever the handler says later: a late answer is refused with 409 claim-lost.
	// Longer than Duration. Default 0: as long as its process lives.
	MaxRun time.Duration

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

	// LateRetry is how much longer a key is remembered, without its outcome: a retry that comes so late is refused with 410
	// instead of run anew. Of no effect on what is kept under another value. Default 0.
	LateRetry time.Duration

	// MaxBody is the longest body, in bytes, that is kept. A longer one reaches its client whole, and replays carry its
	// status and header without the body, with the line "Idempotent-Body: omitted" (RPL-27). Default 1 MiB.
	MaxBody int

	// OmitBody, when set, is shown each answer that is about to be kept; where it returns true the record does without
	// the body, as if it were too long (RPL-30). OmitNoStore is ready-made. It must be safe for concurrent use, and not keep or
	// change the answer.
	OmitBody func(*Response) bool

	// Policy decides by the answer what becomes of the key. It must not keep or change the answer. Default DefaultPolicy.
	Policy func(*Response) Disposition

	// Marker is the name of the header line that replays carry, with the value "true", and that nothing else does
	// (RPL-25). Default "Idempotent-Replayed".
	Marker string

	// NoMarker leaves the marker away. MarkAll sends it, with the value "false", on first answers too, streamed ones
	// excepted. ExposeMarker names it in Access-Control-Expose-Headers, so that scripts in browsers can read it (RPL-29).
	NoMarker, MarkAll, ExposeMarker bool

	// AllowHeaders are names of header lines that are kept although they belong to one exchange, such as Set-Cookie
	// (RPL-15); those that HTTP itself forbids to repeat are not (RPL-12). Default none.
	AllowHeaders []string

	// DenyHeaders are names of header lines that are not kept, besides those that never are (RPL-16), and not replayed although
	// they were kept before. Default none.
	DenyHeaders []string

	// Codecs change the form of outcomes, first to last when they are kept and last to first when they are read: compress,
	// then seal. What they can not read is refused with 503, and is not run again. Default none.
	Codecs []driver.Codec

	// LocalReplays is about how many bytes this process spends on remembering outcomes, to replay them without asking the
	// store: each for at most a minute, so that what an operator deletes is gone then, and those that nobody asks for go
	// first. Engines that come from one by With share them. Default 0, or less: none.
	LocalReplays int

	// Blobs takes outcomes with a body longer than BlobsFrom bytes, and the store only their status and header. A blob that
	// is lost is an omitted body. Default nil: the store takes all. BlobsFrom is by default 64 KiB.
	Blobs     driver.Blobs
	BlobsFrom int
}

// LimitsConfig bounds what a request may cost.
type LimitsConfig struct {
	// RequestBody is the longest body, in bytes, of a request with a key; a longer one is refused with 413 before the
	// store is asked (FPR-15). Default 1 MiB.
	RequestBody int64

	// StoreTimeout bounds each call of the store, so also what a dead store adds to a request (LSE-10). Calls that hold a
	// claim in the background may last twice as long, so that no number of new requests keeps them out. A Store that
	// does not watch its context can exceed it. At least 1 ms, at most half of Lease.Duration. Default 1 s, or a third
	// of Lease.Duration if that is less.
	StoreTimeout time.Duration

	// Quota is asked before a request with a key is looked at further, replays included; where it returns false the request
	// is refused with 429 and nothing is stored. It must be safe for concurrent use. Default nil: no limit.
	Quota func(ctx context.Context, scope string, req *Request) bool
}

// ProblemConfig says how refusals look (PRB-04). The codes are listed in docs/problems.md.
type ProblemConfig struct {
	// BaseURL, followed by a code, is the type of a problem. Default: docs/problems.md on the project's site.
	BaseURL string

	// Status overrides the HTTP status of the given codes, e.g. {"in-progress": 423}.
	Status map[string]int

	// Link adds a line Link: <type>; rel="describedby" to refusals (KEY-03).
	Link bool

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
	c.Messages.MaxUnreadable = cmp.Or(c.Messages.MaxUnreadable, 15*time.Minute)
	c.Problems.BaseURL = cmp.Or(c.Problems.BaseURL, defaultBaseURL)
	c.Problems.Status = maps.Clone(c.Problems.Status)
	return c
}

// clearDerived unsets the defaults that depend on other fields, where given left them open.
func (c *Config) clearDerived(given *Config) {
	if given.Limits.StoreTimeout == 0 {
		c.Limits.StoreTimeout = 0
	}
	if given.Wait.MaxPerKey == 0 {
		c.Wait.MaxPerKey = 0
	}
	if given.Wait.Max == 0 {
		c.Wait.Max = 0
	}
	if given.Keep.BlobsFrom == 0 {
		c.Keep.BlobsFrom = 0
	}
}
