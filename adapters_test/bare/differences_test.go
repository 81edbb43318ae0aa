package bare

// buffering matches chains whose middleware holds the response back itself, or changes it as it is written. Inside such middleware
// a bare handler sees other rules than those of net/http; a guarded one sees those of net/http, because the engine applies them.
const buffering = `(?:http|gin|echo)/(?:gzip|gzip long|timeout|all)/inside/post/`

// differences are the documented differences between the first response of a guarded route and that of the bare one.
var differences = []difference{
	{`.*/marker`, everything, "Only the engine sets the marker (RPL-25)."},
	{`.*/panic.*`, everything, "After a panic nothing of a response that was held back is sent, and its header is dropped (ERR-06)."},
	{buffering + `(?:field after status|status after a write|two statuses|c\.Status twice|c\.Writer state|status 99)`, everything,
		"The engine fixes status and header with the first write, as net/http does. The middleware does so later, or differently."},
	{buffering + `(?:status (?:204|304) with body|result of a write to 204|c\.JSON of 204|flush of 304)`, everything,
		"The engine refuses a body where there can be none, as net/http does. The middleware takes it and compresses it."},
	{buffering + `(?:length "[02]" of 4 bytes|result of writes|length without body|stream with length|stream too short)`, everything,
		"The engine refuses bytes beyond Content-Length, as net/http does. The middleware takes them, or removes the field."},
	{buffering + `(?:empty write|short, then long|c\.JSON twice|copy of \d+.*)`, everything,
		"The middleware looks at the first write. With the engine that is the whole body, and an empty one is not written."},
	{buffering + `(?:flusher|hijacker)`, everything, "The writer has Flush and Hijack; they return http.ErrNotSupported if the outer one has neither."},
	{`gin/timeout/inside/post/(?:events|c\.SSEvent)`, everything, "Flush of gin-contrib/timeout loses the header. The engine sets it before."},
	{`gin/(?:gzip|all)/inside/post/(?:status (?:[45]\d\d|600|999)|file (?:ranges|precondition failed))`, everything,
		"Gin sends a status without a body after all middleware has returned, the engine before: gzip removes its fields in between."},
	{`gin/(?:recovery|all)/inside/post/status 99`, everything, "Gin panics when it sends an invalid status, the engine when it captures it."},
	{`gin/.*/(?:early hints|processing twice|continue|hints alone)`, everything, "Gin remembers a 1xx like any other status: it reaches nobody."},
	{`echo/(?:gzip|gzip long|all|before and after)/inside/post/(?:early hints|processing twice|continue|hints alone)`, everything,
		"Echo takes a 1xx for the final status. The engine sends it past the functions of Before, or the middleware drops it."},
	{`echo/gzip/inside/post/(?:c\.JSON fails|c\.XML|c\.Redirect invalid|c\.File missing|error.*|HTTPError.*|ErrNotFound|c\.Bind fails)`, everything,
		"An error becomes a response inside the engine, so that it is stored. Middleware outside sees, and compresses, the response."},
	{`echo/timeout/.*/(?:c\.Stream fails|c\.Error and return|error after a response)`, everything,
		"Echo's Timeout drops a response that ends with an error, and an empty 200 is left. The engine responds with 500."},
	{`echo/before and after/inside/post/.*`, everything, "The engine sends the status of each response through echo.Response, so that Before is called."},
	{`.*/copy of 512 from a plain reader|.*/copy after text|.*/read from`, framingOnly,
		"The engine holds the response back, so net/http knows its length; io.Copy flushes without it."},
	{`.*/length "0" of 4 bytes`, framingOnly, "The engine drops bytes beyond Content-Length itself, so net/http can use the connection again."},
	{`.*/(?:deadlines|MaxBytesReader)`, framingOnly, "The engine has read the body, so nothing unread is left on the connection."},
	{`.*/body after the response`, everything, "The engine has read the body, so the handler can read it after its response."},
	{`fiber/.*/(?:stream too short|stream too long)`, everything,
		"A stream of a known length is read before it is sent, so a wrong length is an error with a response, and no broken connection."},
	{`fiber/compress/inside/post/(?:sized stream|limited stream).*`, everything,
		"A stream of a known length is read before it is sent, so it is compressed like a body: only if it is long enough, with a length."},
	{`fiber/encryptcookie/.*/(?:cookies|c\.Cookie|c\.ClearCookie)`, everything, "The middleware encrypts with a random number."},
	{`http/max bytes/inside/post/closed body`, everything, "A body that MaxBytesHandler wraps remembers its end beyond Close."},
	{`gin/(?:gzip|all)/inside/post/.*`, framingOnly, "Gin sends a status without a body after all middleware has returned, the engine before."},
	{`fiber/compress/inside/post/stream of .*`, framingOnly, "The compressor may read a stream in other portions, and write other bytes."},
}

// reruns are handlers whose outcome is not stored, so that a second request runs them again.
var reruns = []difference{
	{`.*/(?:panic.*|abort)`, everything, "A panic leaves no outcome (ERR-06)."},
	{`.*/hijack.*`, everything, "A hijacked connection leaves no outcome (MTH-07)."},
	{`.*/status 99|.*/result of a write to 204`, everything, "The handler panics behind this middleware (ERR-06)."},
	{`echo/(?:https redirect|csrf)/inside/.*|fiber/(?:csrf|earlydata)/inside/.*`, everything, "The middleware responds before the engine is called."},
	{`gin/.*/c\.Error.*`, everything, "Handlers that only collect errors leave the response to middleware outside."},
	{`gin/timeout/outside/.*`, everything, "gin-contrib/timeout panics when it cannot send its buffer, and collects errors."},
	{`echo/timeout/.*`, everything, "Echo's Timeout cannot flush, and Echo panics then. A response that it dropped for an error is not stored."},
	{`fiber/.*/next`, everything, "The router's own 404 frees the key."},
	{`fiber/.*/(?:huge stream too short|stream fails|stream too (?:long|short))`, everything, "A stream that breaks off is not stored (CON-12)."},
}

// replayDifferences are the documented differences between a replay and the first response.
var replayDifferences = []difference{
	{buffering + `(?:continue|early hints)`, everything, "The middleware took the 1xx for the final status of the first response."},
	{buffering + `(?:.*length.*|result of writes|stream too short)`, everything,
		"The middleware removed a wrong Content-Length, by which the engine knows that the response is not complete."},
	{`(?:http|gin|echo|fiber)/(?:gzip|gzip long|compress|etag|timeout|all)/inside/.*`, framingOnly,
		"The middleware makes its header fields anew for each response, and other ones for a body that is omitted or not streamed."},
	{`fiber/.*/line break in a field`, framingOnly, "fasthttp replaces each line break by a space when it sends, the engine when it stores."},
}
