package capture

import (
	"net/http"

	"github.com/go-idem/idem/core"
)

// Send writes a response: the headers around it stay, those it names are replaced. It is the end of the exchange.
func (x *Exchange) Send(w http.ResponseWriter, r *core.Response) error {
	if x.handler == nil || r != &x.handler.writer.response {
		return sendResponse(w, r)
	}
	err := x.handler.writer.send(w)
	x.handler.writer.setTrailers(w.Header())
	return err
}

// sendResponse is Send for an answer that no writer has captured.
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

// send writes the answer as far as there is one, as the handler has written it: a Content-Type that it has left to net/http to
// find, net/http will find.
func (w *Writer) send(outer http.ResponseWriter) error {
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
	if puts, ok := outer.(interface{ WriteHeaderNow() }); ok { // as Gin's, which puts the status off
		puts.WriteHeaderNow()
	}
	if len(r.Body) == 0 {
		return nil
	}
	_, err := outer.Write(r.Body)
	return err
}

// setTrailers leaves in header the lines that come behind the body.
func (w *Writer) setTrailers(header http.Header) {
	for _, f := range w.earlyTrailers {
		delete(header, f.Name)
	}
	for _, name := range w.declaredTrailers {
		delete(header, name)
	}
	replaceFields(header, w.response.Trailer)
}
