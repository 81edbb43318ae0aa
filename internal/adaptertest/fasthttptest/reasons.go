package fasthttptest

import "github.com/go-idem/idem/internal/adaptertest/baretest"

// FiberReasons returns the reasons for differences that all majors of Fiber have.
func FiberReasons() []*baretest.Reason {
	return []*baretest.Reason{
		baretest.First(`fiber(?:v3)?/.*/marker`, `field Idempotent-Replayed`, "Only the engine sets the marker (RPL-25)."),
		baretest.First(`fiber(?:v3)?/(?:recover|all)/inside/post/panic after text`, `field X-A`,
			"The recovery begins with the header from before the handler."),
		baretest.First(`fiber(?:v3)?/.*/stream too (?:short|long)`, baretest.AllParts,
			"A stream of a known length is read before it is sent, so a wrong length is an error with a response, and no broken connection."),
		baretest.Replay(`fiber(?:v3)?/.*/line break in a field`, `field X-(?:Break|Evil)`,
			"fasthttp replaces each line break by a space when it sends, the engine when it stores."),
		baretest.Replay(`fiber(?:v3)?/(?:compress|all)/inside/post/(?:\d+ bytes|sized stream of \d+ bytes|stream of .*|stream writer|`+
			`empty stream writer|events|trailer)`, `field (?:Content-Encoding|Vary)`,
			"A body that is omitted or short is not compressed; a stream is."),
		baretest.Replay(`fiber(?:v3)?/(?:etag|all)/inside/post/(?:\d+ bytes|(?:sized )?stream of \d+ bytes|c\.SendFile huge)`, `field Etag`,
			"The tag is made of the body that is sent, and the body of these replays is omitted."),
		baretest.Replay(`fiber(?:v3)?/(?:etag|all)/inside/post/empty stream writer`, `field Content-Type`,
			"The middleware reads the stream, which is empty."),
		baretest.Rerun(`fiber(?:v3)?/.*/next`, "The router's own 404 frees the key."),
		baretest.Rerun(`fiber(?:v3)?/.*/(?:huge stream too short|stream fails|stream too (?:long|short))`,
			"A stream that breaks off is not stored (CON-12)."),
		baretest.Rerun(`fiber(?:v3)?/.*/panic(?: after text)?`, "A panic leaves no outcome (ERR-06)."),
		baretest.Rerun(`fiber(?:v3)?/.*/hijack`, "A hijacked connection leaves no outcome (MTH-07)."),
		baretest.Rerun(`fiber(?:v3)?/csrf/inside/post/.*`, "The middleware responds before the engine is called."),
	}
}
