package fiberv3

import (
	"github.com/go-idem/idem/internal/adaptertest/baretest"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

// reasons has each way in which the responses of guarded routes may differ. The file in testdata/differences has the exact
// differences. Every element explains one of them, and every one of them is explained.
var reasons = append(fasthttptest.FiberReasons(), []*baretest.Reason{
	baretest.First(`fiberv3/(?:compress|all)/inside/post/`+
		`(?:c\.JSON fails|c\.SendFile missing|error.*|fiber\.(?:Error|ErrNotFound)|next)`, `field Vary`,
		"An error becomes a response inside the engine, so that it is stored. Middleware outside sees the response."),
	baretest.First(`fiberv3/timeout/inside/post/panic after text`, `field X-A`,
		"The middleware recovers, and begins with the header from before the handler."),
	baretest.Replay(`fiberv3/(?:compress|all)/(?:in|out)side/post/c\.End`, `field Vary`,
		"c.End sends the response before the middleware sets its fields, and a replay is sent after that."),
	baretest.Replay(`fiberv3/(?:compress|etag|all)/outside/post/empty stream writer`, `field Idempotent-Body`,
		"The middleware reads the stream. An empty one then looks like one that c.End has sent."),
	baretest.Replay(`fiberv3/compress/inside/post/empty stream writer`, `field Content-Type`,
		"The middleware reads the stream, which is empty."),
	baretest.Rerun(`fiberv3/.*/panic of an error`, "A panic leaves no outcome (ERR-06)."),
}...)
