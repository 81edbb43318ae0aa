package core

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-idem/idem/core/internal/wire"
)

// engineField is a header field of responses that only the engine sets, and that tells replays from first responses.
type engineField struct {
	name   string
	first  string                 // its value in a first response that was held back; "" if that has none
	replay func(*Response) string // returns its value in a replay, "" for none; the stored response has no field of this name
}

// engineFields is the one list of these fields. A field that a handler has set under one of their names, in any case, is removed
// from first responses, from streams and from the record (RPL-25), and no option allows it. An option that adds a header field to
// replays adds an element here.
func (k *KeepConfig) engineFields() []engineField {
	marker := engineField{name: k.Marker, replay: func(*Response) string { return "true" }}
	if k.NoMarker {
		marker.replay = func(*Response) string { return "" }
	}
	if k.MarkAll {
		marker.first = "false"
	}
	return []engineField{marker}
}

// decorations are the header fields that only the engine sets, in the forms in which responses need them.
type decorations struct {
	own                  []engineField // those of KeepConfig.engineFields
	claimed, unprotected []Field       // what EngineFields returns in a run, and in a run without a claim
}

func newDecorations(k *KeepConfig) decorations {
	d := decorations{own: k.engineFields()}
	for _, f := range d.own {
		d.claimed = append(d.claimed, Field{Name: f.name})
	}
	d.unprotected = append(slices.Clone(d.claimed), Field{unprotectedHeader, "true"})
	return d
}

// isEngineField reports whether only the engine sets the header field with this name.
func (k *KeepConfig) isEngineField(name string) bool {
	return slices.ContainsFunc(k.engineFields(), func(f engineField) bool { return strings.EqualFold(f.name, name) })
}

// decorateFirst replaces the fields of engineFields in a first response by the engine's own.
func (e *Engine) decorateFirst(r *Response) Result {
	for i := range e.fields.own {
		r.Header = wire.ReplaceField(r.Header, Field{e.fields.own[i].name, e.fields.own[i].first})
	}
	e.exposeMarker(r)
	return Result{Response: r}
}

// decorateReplay adds to a stored response the header fields that only replays carry.
func (e *Engine) decorateReplay(r *Response) {
	for i := range e.fields.own { // headerRules.restrict has removed what the record may have under these names.
		if value := e.fields.own[i].replay(r); value != "" {
			r.Header = append(r.Header, Field{e.fields.own[i].name, value})
		}
	}
	if r.Omitted {
		r.Header = append(r.Header, Field{bodyHeader, "omitted"})
	}
	if hasBody(r.Status) {
		r.Header = append(r.Header, Field{"Content-Length", strconv.Itoa(len(r.Body))})
	}
	e.exposeMarker(r)
}

// exposeMarker lets scripts of other origins read the marker, besides what CORS middleware outside lets them read (RPL-29).
func (e *Engine) exposeMarker(r *Response) {
	if e.cfg.Keep.ExposeMarker {
		r.Added = append(r.Added, Field{"Access-Control-Expose-Headers", e.cfg.Keep.Marker})
	}
}

// markUnprotected adds the header field of a run without a claim to its response (LSE-08).
func markUnprotected(r *Response) {
	r.Header = wire.ReplaceField(r.Header, Field{unprotectedHeader, "true"})
}

// EngineFields returns the header fields that only the engine sets, as they are in a response that an adapter sends before the
// engine has it. A field with the value "" is removed. Package capture calls EngineFields on the value of driver.ContextKey.
func (c *runContext) EngineFields() []Field { return c.at.engineFields() }

// EngineFields is runContext.EngineFields for a run without a claim.
func (c *placeContext) EngineFields() []Field { return c.at.engineFields() }

// engineFields returns what EngineFields returns for a context at this place.
func (p *place) engineFields() []Field {
	fields := &p.keyed.engine.fields
	if p.isUnprotected {
		return fields.unprotected
	}
	return fields.claimed
}
