package core

import (
	"slices"
	"strconv"
	"strings"
)

// decorateFirst removes a marker that the handler has set from a first response, since only replays carry it (RPL-25), and adds the
// engine's own header fields.
func (e *Engine) decorateFirst(r *Response) Result {
	keep := &e.cfg.Keep
	r.Header = slices.DeleteFunc(r.Header, func(f Field) bool { return strings.EqualFold(f.Name, keep.Marker) })
	if keep.MarkAll {
		r.Header = append(r.Header, Field{keep.Marker, "false"})
	}
	e.exposeMarker(r)
	return Result{Response: r}
}

// decorateReplay adds to a stored response the header fields that only replays carry.
func (e *Engine) decorateReplay(r *Response) {
	if !e.cfg.Keep.NoMarker {
		r.Header = append(r.Header, Field{e.cfg.Keep.Marker, "true"})
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
