package capture

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/wire"
)

// EngineFields returns the header fields that only the engine sets, as they are in a response that an adapter sends before the
// engine has it, such as a stream. ctx is the run's context. The adapter sets each field in place of those that the handler has set
// under its name, in any case; a field with the value "" it only removes. Adapters of frameworks that are not built on net/http call
// EngineFields, too; for all others, [Writer] does.
func EngineFields(ctx context.Context) []core.Field {
	if run, ok := ctx.Value(driver.ContextKey).(interface{ EngineFields() []core.Field }); ok {
		return run.EngineFields()
	}
	return nil
}

// setEngineFields sets the fields of EngineFields in the captured response.
func (w *Writer) setEngineFields() {
	for _, own := range EngineFields(w.ctx) {
		w.response.Header = wire.ReplaceField(w.response.Header, own)
	}
}

// isEngineField reports whether only the engine sets the header field or trailer with this name.
func (w *Writer) isEngineField(name string) bool {
	name = strings.TrimPrefix(name, http.TrailerPrefix)
	return slices.ContainsFunc(EngineFields(w.ctx), func(own core.Field) bool { return strings.EqualFold(own.Name, name) })
}

// removeEngineFields removes from header the fields that only the engine sets.
func (w *Writer) removeEngineFields(header http.Header) {
	maps.DeleteFunc(header, func(name string, _ []string) bool { return w.isEngineField(name) })
}

// withoutEngineFields returns trailers without those that only the engine sets.
func (w *Writer) withoutEngineFields(trailers []core.Field) []core.Field {
	return slices.DeleteFunc(trailers, func(f core.Field) bool { return w.isEngineField(f.Name) })
}
