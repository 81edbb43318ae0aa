package bare

import (
	"testing"

	"github.com/go-idem/idem/internal/adaptertest/baretest"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

func TestMain(m *testing.M) { baretest.Main(m, 5, reasons) }

// These chains have middleware that holds the response back itself, or changes it as it is written. Inside such middleware a bare
// handler sees other rules than those of net/http. A guarded one sees those of net/http, because the engine applies them.
const (
	packing     = `(?:http/gzip|gin/(?:gzip|all)|echo(?:v5)?/(?:gzip|gzip long|all))/inside/post/`
	ginPacking  = `gin/(?:gzip|all)/inside/post/`
	echoPacking = `echo(?:v5)?/(?:gzip|gzip long|all)/inside/post/`
	v5Packing   = `echov5/(?:gzip|gzip long|all)/inside/post/`
	timeouts    = `(?:http|gin|echo)/timeout/inside/post/`
)

// all are the parts of a response that comes in place of another, or of none.
const all = baretest.AllParts

// reasons has each way in which the responses of guarded routes may differ. The files in testdata/differences have the exact
// differences. Every element explains one of them, and every one of them is explained.
var reasons = append(fasthttptest.FiberReasons(), []*baretest.Reason{
	// Without middleware, too.
	baretest.First(`(?:http|gin|echo(?:v5)?)/.*/(?:c\.Error and )?marker`, `field Idempotent-Replayed`, "Only the engine sets the marker (RPL-25)."),
	baretest.First(`(?:http|gin|echo(?:v5)?)/.*/body after the response`, `body`,
		"The engine has read the body, so the handler can read it later."),
	baretest.First(`(?:http|gin|echo(?:v5)?)/.*/deadlines`, `reused`,
		"The engine has read the body, so nothing unread is left on the connection."),
	baretest.First(`http/.*/MaxBytesReader`, `reused|head|field Connection`,
		"The engine has read the body, so nothing unread is left."),
	baretest.First(`(?:http|gin|echo(?:v5)?)/.*/length "0" of 4 bytes`, `reused`,
		"The engine drops bytes beyond Content-Length itself, so net/http can use the connection again."),
	baretest.First(`http/.*/copy of 512 from a plain reader`, `field (?:Content-Length|Transfer-Encoding|Connection)|reused`,
		"The engine holds the response back, so net/http knows its length; io.Copy flushes without it."),
	baretest.First(`echo(?:v5)?/.*/error after 103`, all,
		"Echo drops an error after a 1xx and sends an empty 200. With the engine the error handler runs, and nothing is stored."),

	// Panics: nothing of a response that was held back is sent, and its header is dropped (ERR-06).
	baretest.First(`(?:http|gin|echo(?:v5)?)/.*/panic after long text`, all,
		"net/http sends what did not fit into its buffer, the engine nothing."),
	baretest.First(`(?:http|gin)/.*/panic after huge text`, `body`,
		"net/http drops what is in its buffer. The engine writes the body in one piece."),
	baretest.First(`(?:http|echo(?:v5)?)/recover/inside/post/panic after (?:status|text)|gin/(?:recovery|all)/inside/post/panic after text`,
		all,
		"The recovery responds, because nothing was sent."),
	baretest.First(`(?:(?:http|echo(?:v5)?)/recover|gin/(?:all|recovery))/inside/post/panic after (?:field|text)`,
		`field X-A`,
		"The recovery begins with the header from before the handler."),

	// Compression.
	baretest.First(`http/gzip/inside/post/status after a write|`+ginPacking+`status after a write`, `status|body`,
		"The engine fixes status and header with the first write, as net/http does. The middleware does so later."),
	baretest.First(packing+`field after status`, `field X-(?:A|Late)`,
		"The engine fixes the header with the status, as net/http does."),
	baretest.First(packing+`status 99`, all, "The middleware takes an invalid status, and fails later."),
	baretest.First(packing+`(?:status (?:204|304) with body|result of a write to 204|c\.JSON of 204)`, all,
		"The engine refuses a body where there can be none, as net/http does. The middleware takes it and compresses it."),
	baretest.First(packing+`(?:length "[02]" of 4 bytes|result of writes)`, `field Content-(?:Encoding|Length|Type)|body`,
		"The engine refuses bytes beyond Content-Length, as net/http does. The middleware removes the field."),
	baretest.First(echoPacking+`(?:empty write|short, then long|length without body)`, `field Content-(?:Encoding|Length|Type)`,
		"The middleware looks at the first write. With the engine that is the whole body, and an empty one is not written."),
	baretest.First(ginPacking+`c\.JSON twice`, `body`,
		"The middleware stops to compress in the middle, at the status of an error. The engine fixes the status."),
	baretest.First(ginPacking+`(?:status \d+|redirect \d+|server redirect|file (?:empty|ranges)|nothing|set cookie|`+
		`copy of 0.*|length 3 of status 20[05]|c\.(?:Abort|Redirect|Status|Status then field|Status of 102)|hints alone)`,
		`field Content-Length`,
		"Gin sends a status without a body after all middleware has returned, the engine before: gzip then ends with an empty body."),
	baretest.First(ginPacking+`(?:status (?:[45]\d\d|600|999)|file precondition failed|c\.Status twice)`,
		`field (?:Content-Encoding|Vary)`,
		"Gin sends a status without a body after all middleware has returned, the engine before: gzip removes its fields in between."),
	baretest.First(`(?:echo/gzip|echov5/(?:gzip|all))/inside/post/(?:c\.JSON fails|c\.Redirect invalid|c\.File missing|error|error after fields|`+
		`HTTPError.*|ErrNotFound|c\.Bind fails)`, `field Content-(?:Encoding|Length)`,
		"An error becomes a response inside the engine, so that it is stored. Middleware outside sees, and compresses, the response."),
	baretest.First(ginPacking+`(?:c\.(?:Error after 103|Status of 10[23].*)|hints alone|processing twice)`, `1xx`,
		"Middleware drops a 1xx."),
	baretest.First(ginPacking+`c\.Writer state after 103`, `1xx|field (?:Content-(?:Encoding|Length)|Vary)`,
		"Middleware drops a 1xx, and the status 200 is compressed."),
	baretest.First(echoPacking+`(?:c\.NoContent 103.*|continue|early hints|hints alone|processing twice)`, `1xx`,
		"The middleware does not send a 1xx. On Echo v5 the engine sends it past the middleware."),
	baretest.First(v5Packing+`(?:c\.NoContent 103, then c\.JSON|continue|early hints|two statuses|c\.JSON twice|status after a write|`+
		`ResolveResponseStatus)`, `status|field Content-Length|body`,
		"The response of the middleware is no echo.Response: its last status counts. With the engine it is one: the first status counts."),
	baretest.First(v5Packing+`UnwrapResponse (?:inner writer|state)`, `field Content-(?:Encoding|Length)|head`,
		"UnwrapResponse finds the echo.Response outside of the middleware, and with the engine the one inside."),
	baretest.First(v5Packing+`(?:length .*|two lengths|short of a huge length|stream (?:too short|with length)|result of writes)`,
		all+`|raw|head`,
		"The middleware removes the handler's Content-Length only if a status is sent. The engine sends one."),
	baretest.First(`echov5/(?:gzip|gzip long|all)/outside/post/stream (?:too short|with length)`, `reused`,
		"The engine drops bytes beyond Content-Length itself, so net/http can use the connection again."),
	baretest.First(`fiber/compress/inside/post/(?:sized stream of \d+ bytes|limited stream)`,
		`field (?:Content-(?:Encoding|Length)|Transfer-Encoding|Vary)`,
		"A stream of a known length is read before it is sent, so it is compressed like a body: only if it is long enough, with a length."),
	baretest.First(`fiber/compress/inside/post/stream of 40000 bytes`, `packed body`,
		"The compressor reads the stream in other portions."),

	// Timeouts.
	baretest.First(timeouts+`field after status`, `field X-(?:A|Late)`,
		"The engine fixes the header with the status, as net/http does."),
	baretest.First(`gin/timeout/inside/post/(?:status after a write|two statuses|c\.Status twice)`, `status`,
		"The engine fixes the status with the first write, and Gin the last status before that. The middleware takes another one."),
	baretest.First(timeouts+`(?:status (?:204|304) with body|result of a write to 204)`, all,
		"The engine refuses a body where there can be none. The middleware sends it, and net/http breaks off."),
	baretest.First(timeouts+`(?:length "[02]" of 4 bytes|result of writes)`, all,
		"The engine refuses bytes beyond Content-Length. The middleware sends them, and net/http breaks off."),
	baretest.First(`gin/timeout/inside/post/(?:stream with length|stream too short)`,
		`field (?:Content-Length|Transfer-Encoding)|end|reused`,
		"Flush of the middleware loses the header, with Content-Length. The engine sets it before."),
	baretest.First(`gin/timeout/inside/post/(?:events|c\.SSEvent)`, `field (?:Content-Type|Cache-Control)`,
		"Flush of the middleware loses the header."),
	baretest.First(`gin/timeout/inside/post/flush of 304`, `reused`,
		"The engine refuses the body, so the connection can be used again."),
	baretest.First(`gin/timeout/inside/post/c\.Writer state`, `field Content-Length|body`,
		"Size and Written are those of Gin. The middleware counts otherwise."),
	baretest.First(`gin/timeout/inside/post/c\.Writer state after 103`, `1xx|field Content-Length|body`,
		"Middleware drops a 1xx; Size is that of Gin."),
	baretest.First(`gin/timeout/inside/post/status 99`, all,
		"Gin panics when it sends an invalid status, the engine when it captures it."),
	baretest.First(`gin/(?:recovery|all)/inside/post/status 99`, all,
		"Gin panics when it sends an invalid status, the engine when it captures it."),
	baretest.First(`gin/timeout/inside/post/(?:continue|early hints)`, `1xx|status|field (?:Link|Content-Length)`,
		"The middleware takes a 1xx for the final status. With the engine, Gin forgets it when another status follows."),
	baretest.First(`gin/timeout/inside/post/(?:c\.(?:Error after 103|Status of 10[23].*)|hints alone|processing twice)`, `1xx`,
		"Middleware drops a 1xx."),
	baretest.First(`http/timeout/inside/post/(?:flusher|hijacker)`, `field Content-Length|body`,
		"The writer has Flush and Hijack; they return http.ErrNotSupported if the outer one has neither."),
	baretest.First(`echo/timeout/.*/(?:c\.Stream fails|c\.Error and return|error after a response)`, all,
		"Echo's Timeout drops a response that ends with an error, and an empty 200 is left. The engine responds with 500."),

	// Other middleware.
	baretest.First(`echo(?:v5)?/before and after/inside/post/(?:c\.Response\.(?:Status only|Writer)|UnwrapResponse (?:status only|inner writer)|copy of 0.*|flush|flush then text|`+
		`nothing|set cookie)`, `field X-Before`,
		"The engine sends the status of each response through echo.Response, so that Before is called."),
	baretest.First(`echo(?:v5)?/before and after/inside/post/(?:c\.NoContent 103.*|continue|early hints|hints alone|processing twice|`+
		`error after 103)`, `1xx`,
		"Echo takes a 1xx for the final status. The engine sends it past the functions of Before."),
	baretest.First(`echo/all/inside/post/error after 103`, `1xx`, "The compressing middleware does not send a 1xx from the engine."),
	baretest.First(`(?:http/max bytes|echov5/(?:body dump|all))/inside/post/closed body`, `field Content-Length|body`,
		"A body that MaxBytesHandler or BodyDump of Echo v5 wraps remembers its end beyond Close."),

	// Replays.
	baretest.Replay(packing+`(?:\d+ bytes.*|copy of 20000.*|file huge|http\.ServeFile huge|huge stream|length of huge|`+
		`over the limit in two|short of a huge length|length "5" of 4 bytes|length "9+" of 4 bytes|result of writes|`+
		`stream too short)`, `field (?:Content-Encoding|Accept-Ranges)`,
		"A body that is omitted is not compressed."),
	baretest.Replay(packing+`(?:flush.*|stream|stream with length|events|body after the response|text then flush|`+
		`trailer by prefix|c\.Response\.Flush)`, `field Content-Encoding`,
		"The middleware compresses a stream before it knows its length, and a short replay not at all."),
	baretest.Replay(`(?:http/gzip|echo(?:v5)?/(?:gzip|gzip long|all))/inside/post/flush then text`, `field Content-Type`,
		"The middleware sends a stream without a Content-Type, and detects that of the replay."),
	baretest.Replay(`http/gzip/inside/post/(?:chunked by hand|identity)`, `field Content-Type`,
		"The middleware detects a Content-Type at the first write."),
	baretest.Replay(ginPacking+`cleared header`, `field Content-Type`,
		"net/http detects the type of the bytes that the middleware has packed, and the engine that of the handler's."),
	baretest.Replay(packing+`(?:length "[25]" of 4 bytes|length 3 of status 20[05]|length without body|result of writes|`+
		`short of a huge length|stream too short)`, `body|field Idempotent-Body`,
		"The middleware removed a wrong Content-Length, by which the engine knows that the response is not complete."),
	baretest.Replay(`echov5/(?:gzip|all)/outside/post/length and chunks`, `field Idempotent-Body`,
		"The middleware sends more bytes than its Content-Length says, so the engine knows that the response is not complete."),
	baretest.Replay(`(?:http|gin|echo(?:v5)?)/(?:gzip|gzip long|all|timeout)/inside/post/(?:trailer|trailer of 204|two trailers)`,
		`field X-(?:Sum|B)`,
		"Without a stream the middleware sends the trailer in the header, and a replay has no trailers."),
	baretest.Replay(`http/timeout/inside/post/(?:continue|early hints)`, `status`,
		"The middleware took the 1xx for the final status of the first response."),
	baretest.Replay(`gin/timeout/inside/post/(?:body after the response|c\.Stream|flusher|huge stream|stream.*|text then flush|`+
		`trailer by prefix)`, `field Content-Type`,
		"Flush of the middleware loses the header, and the replay has it."),

	// Reruns: the outcome was not stored, and the second run gives the first response again.
	baretest.Rerun(`(?:http|gin|echo(?:v5)?)/.*/panic(?: after .*)?`,
		"A panic leaves no outcome (ERR-06)."),
	baretest.Rerun(`(?:http|gin|echo(?:v5)?)/.*/abort`, "A panic leaves no outcome (ERR-06)."),
	baretest.Rerun(`(?:http|gin|echo(?:v5)?)/.*/(?:hijack|hijack after field|hijacker)`, "A hijacked connection leaves no outcome (MTH-07)."),
	baretest.Rerun(`(?:http/gzip|echo(?:v5)?/(?:gzip|gzip long|all))/outside/post/status 99|gin/.*/status 99`,
		"The invalid status is a panic here (ERR-06)."),
	baretest.Rerun(`(?:http/(?:gzip|timeout)|gin/timeout|echo(?:v5)?/(?:gzip long|timeout))/outside/post/result of a write to 204`,
		"The middleware panics when it cannot send its buffer (ERR-06)."),
	baretest.Rerun(`gin/timeout/outside/post/(?:flush of 304|length "[02]" of 4 bytes|result of writes|status (?:204|`+
		`304) with body)`,
		"The middleware panics when it cannot send its buffer (ERR-06)."),
	baretest.Rerun(`echo(?:v5)?/(?:https redirect|csrf)/inside/post/.*`,
		"The middleware responds before the engine is called."),
	baretest.Rerun(`gin/.*/c\.Error(?: and .*)?|gin/timeout/outside/post/c\.(?:AbortWithError|Bind fails|Error after 103)`,
		"Handlers that only collect errors leave the response to middleware outside."),
	baretest.Rerun(`echo(?:v5)?/.*/error after 103`, "Echo's error handler writes nothing after a 1xx, so the error stays one."),
	baretest.Rerun(`echo/timeout/(?:in|out)side/post/(?:flush.*|text then flush|stream.*|events|huge stream|`+
		`body after the response|trailer by prefix|c\.Response\.Flush)`,
		"Echo's Timeout cannot flush, and Echo panics then (ERR-06)."),
	baretest.Rerun(`echo/timeout/outside/post/(?:c\.Stream fails|c\.Error and return|error after a response)`,
		"Echo's Timeout drops a response that ends with an error: the error stays one."),
}...)
