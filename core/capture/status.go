package capture

import (
	"context"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/internal/hidden"
)

// Status returns the response to a request that asks what became of its key: the state of the record, or a problem. It claims
// nothing, runs nothing, and changes nothing in the record. The Status functions of all adapters call it, also of those that are
// not built on net/http.
func Status(ctx context.Context, e *core.Engine, req core.Request) *core.Response {
	return hidden.Status(ctx, e, req).(*core.Response)
}
