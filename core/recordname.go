package core

import (
	"context"

	"github.com/go-idem/idem/core/internal/recordname"
)

// recordName returns the name of the record of a request, or of a task, whose kind is the Method of req.
func recordName(n recordname.Naming, scope, key string, req *Request, isTask bool) [32]byte {
	if isTask {
		return n.OfTask(scope, key, req.Method)
	}
	return n.OfRequest(scope, key, req.Method, req.Path)
}

// enclosing returns the run that encloses ctx and has the record of this request or task, under any naming. It
// returns nil if there is none. Such a run must be found before the store is called, since the store would report the run's
// own claim as in progress.
func (e *Engine) enclosing(ctx context.Context, scope, key string, req *Request, isTask bool) (around *run) {
	if placeOf(ctx) == nil {
		return nil
	}
	for i := 0; around == nil && i < len(e.namings); i++ {
		around = enclosing(ctx, recordName(e.namings[i], scope, key, req, isTask))
	}
	return around
}
