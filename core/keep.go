package core

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/sfv"
)

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

	// OmittedStatus is the status of replays whose body is omitted, such as 413, for clients that would take a 201 without its
	// body for a whole response. It is a 2xx, or a 4xx that DefaultPolicy keeps. The record keeps the status of the response, and
	// tasks, and responses whose status allows no body, are replayed with it. Default 0: the status of the response (RPL-33).
	OmittedStatus int

	// OnReplay sees each replay of a request before it is sent, for callers that have lost their rights and for bodies that must
	// be current. It gets a copy of the stored response, and returns the response to send: the copy, perhaps changed, or another
	// one. If it returns nil, the request is refused with 403 replay-refused. If it returns an error, because it cannot tell, the
	// request is refused with 503 replay-unavailable, and Result.Err is the error. Whatever it does, the handler does not run and
	// the record does not change, so the next retry asks again. What OnReplay returns carries the marker. ChildKey works with its
	// context, which ends when the client leaves, and after Limits.StoreTimeout; an OnReplay that ignores that delays its own
	// request. A panic reaches the middleware outside. Tasks and messages get what is stored. OnReplay must be safe for concurrent
	// use. Default nil: every replay is sent (RPL-34).
	OnReplay func(context.Context, *Request, *Response) (*Response, error)

	// Origin returns what is stored beside the outcome of a run, so that the events of its replays, in other processes too, tell
	// which run has made it (Event.Origin), for example the ids of its trace and span. Its context has the values of the request.
	// At most 64 bytes are stored; a longer text is cut. Replays do not show it to clients. It must be safe for concurrent use.
	// Processes of an older version of this module refuse such outcomes as unreadable. Default nil: nothing is stored (TEL-03).
	Origin func(context.Context) string

	// Policy decides by a handler's response what becomes of the key. It must be safe for concurrent use, and must not keep or
	// change the response. KeepAll, KeepOnly2xx and ReleaseOn are ready-made. Default DefaultPolicy.
	Policy func(*Response) Disposition

	// Marker is the name of the header field that replays carry with the value "true", and that no other response carries
	// (RPL-25). Default "Idempotent-Replayed".
	Marker string

	// NoMarker omits the marker. MarkAll sends it with the value "false" on first responses too, except streamed ones.
	// ExposeMarker names it in Access-Control-Expose-Headers, so that scripts in browsers can read it (RPL-29). Defaults false.
	NoMarker, MarkAll, ExposeMarker bool

	// EchoKey sends the key back in each response to a request with a key, refusals and streams included, so that logs of responses
	// show it. It is in the header field Key.Header, as a quoted String and in the form that Key.Accept returns. A field that
	// a handler has set under this name is replaced. Default false (KEY-21).
	EchoKey bool

	// AllowHeaders are names of header fields that are stored although they belong to one exchange, such as Set-Cookie
	// (RPL-15). Those that HTTP forbids to repeat cannot be allowed (RPL-12). Default none.
	AllowHeaders []string

	// DenyHeaders are names of header fields that are not stored, in addition to those that never are (RPL-16). They are not
	// replayed either if they were stored before. Default none.
	DenyHeaders []string

	// Codecs transform outcomes: first to last when they are stored, last to first when they are read. Compress before sealing.
	// An outcome that they cannot read is refused with 503, and its request is not run again. So add a codec in two deployments:
	// the first only reads, by seal.OpenOnly or by compress.Threshold(math.MaxInt), and the second writes. Default none.
	Codecs []driver.Codec

	// LocalReplays is about how many bytes of memory this process uses to replay outcomes without calling the store. An outcome
	// stays for at most a minute, so a record that an operator deletes is gone from every process after that; outcomes that
	// nobody requests are evicted first. Engines that With has derived from one engine share the memory. Set it if the same keys
	// are retried often. Default 0, as for negative values: every replay calls the store.
	LocalReplays int

	// Blobs stores the outcomes whose body is longer than BlobsFrom bytes; the store then holds only their status and header.
	// A response whose blob is lost is replayed without its body, and a process without Blobs finds no blob. So set Blobs in two
	// deployments: the first has a BlobsFrom of MaxBody-1, and the second lowers that (SKW-01). Default nil: the store holds every
	// outcome. BlobsFrom has the default 64 KiB.
	Blobs     driver.Blobs
	BlobsFrom int
}

// withDefaults returns a copy that shares nothing with k, in which every unset field has its default.
func (k KeepConfig) withDefaults() KeepConfig {
	k.Retention = cmp.Or(k.Retention, 24*time.Hour)
	k.MaxBody = cmp.Or(k.MaxBody, 1<<20)
	k.Marker = cmp.Or(k.Marker, "Idempotent-Replayed")
	k.AllowHeaders = slices.Clone(k.AllowHeaders)
	k.DenyHeaders = slices.Clone(k.DenyHeaders)
	k.Codecs = slices.Clone(k.Codecs)
	if k.Policy == nil {
		k.Policy = DefaultPolicy
	}
	if k.Blobs != nil {
		k.BlobsFrom = cmp.Or(k.BlobsFrom, 64<<10)
	}
	return k
}

// validate checks a KeepConfig, except Retention and LateRetry, which validateTimes checks.
// isEngineField is Config.isEngineField.
func (k *KeepConfig) validate(f *configErrors, isEngineField func(name string) bool) {
	f.require(k.MaxBody > 0, "Keep.MaxBody", "%d: must be positive", k.MaxBody)
	f.require(k.OmittedStatus == 0 || isOmittedStatus(k.OmittedStatus), "Keep.OmittedStatus",
		"%d: must be a 2xx, or a 4xx that DefaultPolicy keeps", k.OmittedStatus)
	f.require(sfv.IsToken(k.Marker) && !isReserved(k.Marker), "Keep.Marker",
		"%q is not a header name that nothing else uses", k.Marker)
	f.require(!k.NoMarker || !k.MarkAll && !k.ExposeMarker, "Keep.NoMarker",
		"goes with neither Keep.MarkAll nor Keep.ExposeMarker: there is no marker to send or expose")
	for _, name := range k.AllowHeaders {
		f.require(sfv.IsToken(name), "Keep.AllowHeaders", "%q is not a header name", name)
		f.require(!neverKept[strings.ToLower(name)] && !isEngineField(name), "Keep.AllowHeaders",
			"%q belongs to one exchange, or only the engine sets it, and cannot be repeated", name)
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

// isOmittedStatus reports whether status can be that of a replay without its body. A 3xx would send the client elsewhere, and
// statuses that DefaultPolicy does not keep ask it to send the request again.
func isOmittedStatus(status int) bool {
	isDefinite := status/100 == 2 || status/100 == 4 && DefaultPolicy(&Response{Status: status}) == Keep
	return isDefinite && http.StatusText(status) != ""
}
