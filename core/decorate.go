package core

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-idem/idem/core/internal/sfv"
	"github.com/go-idem/idem/core/internal/wire"
)

// engineField is a header field of responses that only the engine sets, and that tells replays from first responses.
type engineField struct {
	name   string
	first  string                 // its value in a first response that was held back; "" if that has none
	replay func(*Response) string // returns its value in a replay, "" for none; the stored response has no field of this name
	isKey  bool                   // in all responses, streams and refusals included, its value is the key of the request
}

// engineFields is the one list of these fields. A field that a handler has set under one of their names, in any case, is removed
// from first responses, from streams and from the record (RPL-25), and no option allows it. An option that adds a header field to
// replays adds an element here.
func (c *Config) engineFields() []engineField {
	k := &c.Keep
	marker := engineField{name: k.Marker, replay: func(*Response) string { return "true" }}
	if k.NoMarker {
		marker.replay = func(*Response) string { return "" }
	}
	if k.MarkAll {
		marker.first = "false"
	}
	if k.EchoKey {
		return []engineField{marker, {name: c.Key.Header, isKey: true, replay: func(*Response) string { return "" }}}
	}
	return []engineField{marker}
}

// decorations are the header fields that only the engine sets, in the forms in which responses need them.
type decorations struct {
	own                  []engineField // those of Config.engineFields
	claimed, unprotected []Field       // what EngineFields returns in a run, and in a run without a claim
}

func newDecorations(c *Config) decorations {
	d := decorations{own: c.engineFields()}
	for _, f := range d.own {
		d.claimed = append(d.claimed, Field{Name: f.name})
	}
	d.unprotected = append(slices.Clone(d.claimed), Field{unprotectedHeader, "true"})
	return d
}

// isEngineField reports whether only the engine sets the header field with this name.
func (c *Config) isEngineField(name string) bool {
	return slices.ContainsFunc(c.engineFields(), func(f engineField) bool { return strings.EqualFold(f.name, name) })
}

// decorateFirst replaces the fields of engineFields in a first response by the engine's own.
func (k *keyed) decorateFirst(r *Response) Result {
	e := k.engine
	for i := range e.fields.own {
		value := e.fields.own[i].first
		if e.fields.own[i].isKey {
			value = k.echo()
		}
		r.Header = wire.ReplaceField(r.Header, Field{e.fields.own[i].name, value})
	}
	e.exposeMarker(r)
	return Result{Response: r}
}

// decorateReplay adds to a stored response the header fields that only replays carry.
func (k *keyed) decorateReplay(r *Response) {
	e := k.engine
	for i := range e.fields.own { // headerRules.restrict has removed what the record may have under these names.
		value := e.fields.own[i].replay(r)
		if e.fields.own[i].isKey {
			value = k.echo()
		}
		if value != "" {
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
	e := p.keyed.engine
	fields := e.fields.claimed
	if p.isUnprotected {
		fields = e.fields.unprotected
	}
	if !e.cfg.Keep.EchoKey {
		return fields
	}
	fields = slices.Clone(fields)
	for i := range e.fields.own { // The lists begin with these fields.
		if e.fields.own[i].isKey {
			fields[i].Value = p.keyed.echo()
		}
	}
	return fields
}

// echo returns the key in the form in which responses carry it: a String of structured fields. It returns "" for a task, for a
// request that only asks what became of a key, and for a key that Key.Accept has made and that no header field can carry.
func (k *keyed) echo() string {
	quoted := strconv.Quote(k.identity.key)
	if _, ok := sfv.String(quoted); k.isTask || k.identity.key == "" || !ok { // the escapes of Quote that a String has not are errors there
		return ""
	}
	return quoted
}

// echoIn adds the key to a refusal, if Keep.EchoKey is set.
func (k *keyed) echoIn(r *Response) {
	if k.engine.cfg.Keep.EchoKey {
		r.Header = wire.ReplaceField(slices.Clone(r.Header), Field{k.engine.cfg.Key.Header, k.echo()})
	}
}
