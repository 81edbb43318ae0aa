package capture

import (
	"net/http"

	"github.com/go-idem/idem/core"
)

// Send writes r to w: the response of the handler, a replay or a refusal. Header fields that outer middleware has set stay,
// except those that r replaces or removes. Call it once, last, and only with a Response that Engine.Do has returned.
func (x *Exchange) Send(w http.ResponseWriter, r *core.Response) error {
	if x.handler == nil || r != &x.handler.writer.response {
		return sendResponse(w, r)
	}
	err := x.handler.writer.send(w, false)
	x.handler.writer.setTrailers(w.Header())
	return err
}

// sendResponse writes a response that does not come from the exchange's Writer: a replay or a refusal.
func sendResponse(w http.ResponseWriter, r *core.Response) error {
	header := w.Header()
	for _, name := range r.Removed {
		header[name] = nil
	}
	replaceFields(header, r.Header)
	addFields(header, r.Added)
	w.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		return nil
	}
	_, err := w.Write(r.Body)
	return err
}

// send writes the captured response to outer as the handler wrote it, up to the body that there is so far. If the handler set no
// Content-Type, send sets none either: net/http then detects it, as it does without this library. bodyFollows says that the caller
// writes more of the body at once.
func (w *Writer) send(outer http.ResponseWriter, bodyFollows bool) error {
	header, r := outer.Header(), &w.response
	for _, name := range r.Removed {
		header[name] = nil
	}
	for _, name := range w.deleted {
		delete(header, name)
	}
	replaceFields(header, r.Header)
	if w.sniffedType != "" {
		delete(header, "Content-Type")
	}
	addFields(header, r.Added)
	addFields(header, w.earlyTrailers)
	outer.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		_, err := outer.Write(r.Body)
		return err
	}
	// Gin's writer sends the status with the first byte, so middleware can still change the header in Write, as gin-contrib/gzip does.
	if deferring, ok := outer.(interface{ WriteHeaderNow() }); ok && !bodyFollows {
		deferring.WriteHeaderNow()
	}
	return nil
}

// setTrailers puts the trailers into outer's header, where net/http reads them after the body.
func (w *Writer) setTrailers(header http.Header) {
	for _, f := range w.earlyTrailers {
		delete(header, f.Name)
	}
	for _, name := range w.declaredTrailers {
		delete(header, name)
	}
	replaceFields(header, w.response.Trailer)
}
