// Package hidden has the functions of package core that other packages of this module call and applications do not see. Package
// core sets them when it is initialised. Engines, requests and responses are of type any, because this package must not import
// core.
package hidden

import "context"

// Status is the function behind capture.Status. Its arguments are a *core.Engine and a core.Request; it returns a *core.Response.
var Status func(ctx context.Context, engine, request any) any

// StepResult returns what a step has stored, of the bytes that a driver.Inspector returns for it. record is the name of the
// record. Package core/operator calls it with a *core.Engine.
var StepResult func(engine any, record [32]byte, step string, stored []byte) ([]byte, error)
