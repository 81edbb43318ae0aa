// Package hidden has the functions of package core that other packages of this module call and applications do not see. Package core
// sets them when it is initialised. Engines, requests and responses are of type any, because this package must not import core.
package hidden

import "context"

// Status is the function behind capture.Status. Its arguments are a *core.Engine and a core.Request; it returns a *core.Response.
var Status func(ctx context.Context, engine, request any) any
