package bare

// These chains have middleware that holds the response back itself, or changes it as it is written. Inside such middleware a bare
// handler sees other rules than those of net/http. A guarded one sees those of net/http, because the engine applies them.
const (
	packing     = `(?:http/gzip|gin/(?:gzip|all)|echo/(?:gzip|gzip long|all))/inside/post/`
	ginPacking  = `gin/(?:gzip|all)/inside/post/`
	echoPacking = `echo/(?:gzip|gzip long|all)/inside/post/`
	timeouts    = `(?:http|gin|echo)/timeout/inside/post/`
)

// all are the parts of a response that comes in place of another, or of none.
const all = `status|field .*|end|reused|body`

// reasons has each way in which the responses of guarded routes may differ. The files in testdata/differences have the exact
// differences. Every element explains one of them, and every one of them is explained.
var reasons = []reason{
	// Without middleware, too.
	{ofFirst, `.*/(?:c\.Error and )?marker`, `field Idempotent-Replayed`, "Only the engine sets the marker (RPL-25)."},
	{ofFirst, `(?:http|gin|echo)/.*/body after the response`, `body`,
		"The engine has read the body, so the handler can read it later."},
	{ofFirst, `(?:http|gin|echo)/.*/deadlines`, `reused`,
		"The engine has read the body, so nothing unread is left on the connection."},
	{ofFirst, `http/.*/MaxBytesReader`, `reused|head|field Connection`,
		"The engine has read the body, so nothing unread is left."},
	{ofFirst, `(?:http|gin|echo)/.*/length "0" of 4 bytes`, `reused`,
		"The engine drops bytes beyond Content-Length itself, so net/http can use the connection again."},
	{ofFirst, `http/.*/copy of 512 from a plain reader`, `field (?:Content-Length|Transfer-Encoding|Connection)|reused`,
		"The engine holds the response back, so net/http knows its length; io.Copy flushes without it."},
	{ofFirst, `echo/.*/error after 103`, all,
		"Echo drops an error after a 1xx and sends an empty 200. With the engine the error handler runs, and nothing is stored."},
	{ofFirst, `fiber/.*/stream too (?:short|long)`, all,
		"A stream of a known length is read before it is sent, so a wrong length is an error with a response, and no broken connection."},

	// Panics: nothing of a response that was held back is sent, and its header is dropped (ERR-06).
	{ofFirst, `(?:http|gin|echo)/.*/panic after long text`, all,
		"net/http sends what did not fit into its buffer, the engine nothing."},
	{ofFirst, `(?:http|gin)/.*/panic after huge text`, `body`,
		"net/http drops what is in its buffer. The engine writes the body in one piece."},
	{ofFirst, `(?:http|echo)/recover/inside/post/panic after (?:status|text)|gin/(?:recovery|all)/inside/post/panic after text`,
		all,
		"The recovery responds, because nothing was sent."},
	{ofFirst, `(?:(?:http|echo|fiber)/recover|(?:gin|fiber)/all|gin/recovery)/inside/post/panic after (?:field|text)`,
		`field X-A`,
		"The recovery begins with the header from before the handler."},

	// Compression.
	{ofFirst, `http/gzip/inside/post/status after a write|` + ginPacking + `status after a write`, `status|body`,
		"The engine fixes status and header with the first write, as net/http does. The middleware does so later."},
	{ofFirst, packing + `field after status`, `field X-(?:A|Late)`,
		"The engine fixes the header with the status, as net/http does."},
	{ofFirst, packing + `status 99`, all, "The middleware takes an invalid status, and fails later."},
	{ofFirst, packing + `(?:status (?:204|304) with body|result of a write to 204|c\.JSON of 204)`, all,
		"The engine refuses a body where there can be none, as net/http does. The middleware takes it and compresses it."},
	{ofFirst, packing + `(?:length "[02]" of 4 bytes|result of writes)`, `field Content-(?:Encoding|Length|Type)|body`,
		"The engine refuses bytes beyond Content-Length, as net/http does. The middleware removes the field."},
	{ofFirst, echoPacking + `(?:empty write|short, then long|length without body)`, `field Content-(?:Encoding|Length|Type)`,
		"The middleware looks at the first write. With the engine that is the whole body, and an empty one is not written."},
	{ofFirst, ginPacking + `c\.JSON twice`, `body`,
		"The middleware stops to compress in the middle, at the status of an error. The engine fixes the status."},
	{ofFirst, ginPacking + `(?:status \d+|redirect \d+|server redirect|file (?:empty|ranges)|nothing|set cookie|` +
		`copy of 0.*|length 3 of status 20[05]|c\.(?:Abort|Redirect|Status|Status then field|Status of 102)|hints alone)`,
		`field Content-Length`,
		"Gin sends a status without a body after all middleware has returned, the engine before: gzip then ends with an empty body."},
	{ofFirst, ginPacking + `(?:status (?:[45]\d\d|600|999)|file precondition failed|c\.Status twice)`,
		`field (?:Content-Encoding|Vary)`,
		"Gin sends a status without a body after all middleware has returned, the engine before: gzip removes its fields in between."},
	{ofFirst, `echo/gzip/inside/post/(?:c\.JSON fails|c\.Redirect invalid|c\.File missing|error|error after fields|` +
		`HTTPError.*|ErrNotFound|c\.Bind fails)`, `field Content-(?:Encoding|Length)`,
		"An error becomes a response inside the engine, so that it is stored. Middleware outside sees, and compresses, the response."},
	{ofFirst, ginPacking + `(?:c\.(?:Error after 103|Status of 10[23].*)|hints alone|processing twice)`, `1xx`,
		"Middleware drops a 1xx."},
	{ofFirst, ginPacking + `c\.Writer state after 103`, `1xx|field (?:Content-(?:Encoding|Length)|Vary)`,
		"Middleware drops a 1xx, and the status 200 is compressed."},
	{ofFirst, echoPacking + `(?:c\.NoContent 103.*|continue|early hints|hints alone|processing twice)`, `1xx`,
		"The middleware sees a 1xx from the engine, and does not send it."},
	{ofFirst, `fiber/compress/inside/post/(?:sized stream of \d+ bytes|limited stream)`,
		`field (?:Content-(?:Encoding|Length)|Transfer-Encoding|Vary)`,
		"A stream of a known length is read before it is sent, so it is compressed like a body: only if it is long enough, with a length."},
	{ofFirst, `fiber/compress/inside/post/stream of 40000 bytes`, `packed body`,
		"The compressor reads the stream in other portions."},

	// Timeouts.
	{ofFirst, timeouts + `field after status`, `field X-(?:A|Late)`,
		"The engine fixes the header with the status, as net/http does."},
	{ofFirst, `gin/timeout/inside/post/(?:status after a write|two statuses|c\.Status twice)`, `status`,
		"The engine fixes the status with the first write, and Gin the last status before that. The middleware takes another one."},
	{ofFirst, timeouts + `(?:status (?:204|304) with body|result of a write to 204)`, all,
		"The engine refuses a body where there can be none. The middleware sends it, and net/http breaks off."},
	{ofFirst, timeouts + `(?:length "[02]" of 4 bytes|result of writes)`, all,
		"The engine refuses bytes beyond Content-Length. The middleware sends them, and net/http breaks off."},
	{ofFirst, `gin/timeout/inside/post/(?:stream with length|stream too short)`,
		`field (?:Content-Length|Transfer-Encoding)|end|reused`,
		"Flush of the middleware loses the header, with Content-Length. The engine sets it before."},
	{ofFirst, `gin/timeout/inside/post/(?:events|c\.SSEvent)`, `field (?:Content-Type|Cache-Control)`,
		"Flush of the middleware loses the header."},
	{ofFirst, `gin/timeout/inside/post/flush of 304`, `reused`,
		"The engine refuses the body, so the connection can be used again."},
	{ofFirst, `gin/timeout/inside/post/c\.Writer state`, `field Content-Length|body`,
		"Size and Written are those of Gin. The middleware counts otherwise."},
	{ofFirst, `gin/timeout/inside/post/c\.Writer state after 103`, `1xx|field Content-Length|body`,
		"Middleware drops a 1xx; Size is that of Gin."},
	{ofFirst, `gin/timeout/inside/post/status 99`, all,
		"Gin panics when it sends an invalid status, the engine when it captures it."},
	{ofFirst, `gin/(?:recovery|all)/inside/post/status 99`, all,
		"Gin panics when it sends an invalid status, the engine when it captures it."},
	{ofFirst, `gin/timeout/inside/post/(?:continue|early hints)`, `1xx|status|field (?:Link|Content-Length)`,
		"The middleware takes a 1xx for the final status. With the engine, Gin forgets it when another status follows."},
	{ofFirst, `gin/timeout/inside/post/(?:c\.(?:Error after 103|Status of 10[23].*)|hints alone|processing twice)`, `1xx`,
		"Middleware drops a 1xx."},
	{ofFirst, `http/timeout/inside/post/(?:flusher|hijacker)`, `field Content-Length|body`,
		"The writer has Flush and Hijack; they return http.ErrNotSupported if the outer one has neither."},
	{ofFirst, `echo/timeout/.*/(?:c\.Stream fails|c\.Error and return|error after a response)`, all,
		"Echo's Timeout drops a response that ends with an error, and an empty 200 is left. The engine responds with 500."},

	// Other middleware.
	{ofFirst, `echo/before and after/inside/post/(?:c\.Response\.(?:Status only|Writer)|copy of 0.*|flush|flush then text|` +
		`nothing|set cookie)`, `field X-Before`,
		"The engine sends the status of each response through echo.Response, so that Before is called."},
	{ofFirst, `echo/before and after/inside/post/(?:c\.NoContent 103.*|continue|early hints|hints alone|processing twice|` +
		`error after 103)`, `1xx`,
		"Echo takes a 1xx for the final status. The engine sends it past the functions of Before."},
	{ofFirst, `echo/all/inside/post/error after 103`, `1xx`, "The compressing middleware does not send a 1xx from the engine."},
	{ofFirst, `http/max bytes/inside/post/closed body`, `field Content-Length|body`,
		"A body that MaxBytesHandler wraps remembers its end beyond Close."},

	// Replays.
	{ofReplay, `fiber/.*/line break in a field`, `field X-(?:Break|Evil)`,
		"fasthttp replaces each line break by a space when it sends, the engine when it stores."},
	{ofReplay, packing + `(?:\d+ bytes.*|copy of 20000.*|file huge|http\.ServeFile huge|huge stream|length of huge|` +
		`over the limit in two|short of a huge length|length "5" of 4 bytes|length "9+" of 4 bytes|result of writes|` +
		`stream too short)`, `field (?:Content-Encoding|Accept-Ranges)`,
		"A body that is omitted is not compressed."},
	{ofReplay, packing + `(?:flush.*|stream|stream with length|events|body after the response|text then flush|` +
		`trailer by prefix|c\.Response\.Flush)`, `field Content-Encoding`,
		"The middleware compresses a stream before it knows its length, and a short replay not at all."},
	{ofReplay, `(?:http/gzip|echo/(?:gzip|gzip long|all))/inside/post/flush then text`, `field Content-Type`,
		"The middleware sends a stream without a Content-Type, and detects that of the replay."},
	{ofReplay, `http/gzip/inside/post/(?:chunked by hand|identity)`, `field Content-Type`,
		"The middleware detects a Content-Type at the first write."},
	{ofReplay, ginPacking + `cleared header`, `field Content-Type`,
		"net/http detects the type of the bytes that the middleware has packed, and the engine that of the handler's."},
	{ofReplay, packing + `(?:length "[25]" of 4 bytes|length 3 of status 20[05]|length without body|result of writes|` +
		`short of a huge length|stream too short)`, `body|field Idempotent-Body`,
		"The middleware removed a wrong Content-Length, by which the engine knows that the response is not complete."},
	{ofReplay, `(?:http|gin|echo)/(?:gzip|gzip long|all|timeout)/inside/post/(?:trailer|trailer of 204|two trailers)`,
		`field X-(?:Sum|B)`,
		"Without a stream the middleware sends the trailer in the header, and a replay has no trailers."},
	{ofReplay, `http/timeout/inside/post/(?:continue|early hints)`, `status`,
		"The middleware took the 1xx for the final status of the first response."},
	{ofReplay, `gin/timeout/inside/post/(?:body after the response|c\.Stream|flusher|huge stream|stream.*|text then flush|` +
		`trailer by prefix)`, `field Content-Type`,
		"Flush of the middleware loses the header, and the replay has it."},
	{ofReplay, `fiber/(?:compress|all)/inside/post/(?:\d+ bytes|sized stream of \d+ bytes|stream of .*|stream writer|` +
		`empty stream writer|events|trailer)`, `field (?:Content-Encoding|Vary)`,
		"A body that is omitted or short is not compressed; a stream is."},
	{ofReplay, `fiber/(?:etag|all)/inside/post/(?:\d+ bytes|(?:sized )?stream of \d+ bytes|c\.SendFile huge)`, `field Etag`,
		"The tag is made of the body that is sent, and the body of these replays is omitted."},
	{ofReplay, `fiber/(?:etag|all)/inside/post/empty stream writer`, `field Content-Type`,
		"The middleware reads the stream, which is empty."},

	// Reruns: the outcome was not stored, and the second run gives the first response again.
	{ofRerun, `(?:http|gin|echo)/.*/panic(?: after .*)?|fiber/.*/panic(?: after text)?`, ``,
		"A panic leaves no outcome (ERR-06)."},
	{ofRerun, `(?:http|gin|echo)/.*/abort`, ``, "A panic leaves no outcome (ERR-06)."},
	{ofRerun, `.*/(?:hijack|hijack after field|hijacker)`, ``, "A hijacked connection leaves no outcome (MTH-07)."},
	{ofRerun, `(?:http/gzip|echo/(?:gzip|gzip long|all))/outside/post/status 99|gin/.*/status 99`, ``,
		"The invalid status is a panic here (ERR-06)."},
	{ofRerun, `(?:http/(?:gzip|timeout)|gin/timeout|echo/(?:gzip long|timeout))/outside/post/result of a write to 204`, ``,
		"The middleware panics when it cannot send its buffer (ERR-06)."},
	{ofRerun, `gin/timeout/outside/post/(?:flush of 304|length "[02]" of 4 bytes|result of writes|status (?:204|` +
		`304) with body)`, ``,
		"The middleware panics when it cannot send its buffer (ERR-06)."},
	{ofRerun, `echo/(?:https redirect|csrf)/inside/post/.*|fiber/csrf/inside/post/.*`, ``,
		"The middleware responds before the engine is called."},
	{ofRerun, `gin/.*/c\.Error(?: and .*)?|gin/timeout/outside/post/c\.(?:AbortWithError|Bind fails|Error after 103)`, ``,
		"Handlers that only collect errors leave the response to middleware outside."},
	{ofRerun, `echo/.*/error after 103`, ``, "Echo's error handler writes nothing after a 1xx, so the error stays one."},
	{ofRerun, `echo/timeout/(?:in|out)side/post/(?:flush.*|text then flush|stream.*|events|huge stream|` +
		`body after the response|trailer by prefix|c\.Response\.Flush)`, ``,
		"Echo's Timeout cannot flush, and Echo panics then (ERR-06)."},
	{ofRerun, `echo/timeout/outside/post/(?:c\.Stream fails|c\.Error and return|error after a response)`, ``,
		"Echo's Timeout drops a response that ends with an error: the error stays one."},
	{ofRerun, `fiber/.*/next`, ``, "The router's own 404 frees the key."},
	{ofRerun, `fiber/.*/(?:huge stream too short|stream fails|stream too (?:long|short))`, ``,
		"A stream that breaks off is not stored (CON-12)."},
}
