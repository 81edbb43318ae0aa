package capture

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-idem/idem/core"
)

// frozenHeader is what WriteHeader fixes besides the fields of core.Response.
type frozenHeader struct {
	deleted          []string     // the names in response.Removed that the handler deleted; it set the others to no value
	earlyTrailers    []core.Field // the trailers with http.TrailerPrefix that were set before WriteHeader
	declaredTrailers []string     // the names that the handler listed in Trailer
	hasContentType   bool         // the handler set Content-Type, perhaps to no value
	isEncoded        bool         // the body has an encoding, so net/http does not detect a Content-Type
	isEncodedOutside bool         // middleware has set the Content-Encoding; it may remove it again, as gin-contrib/gzip does
	sniffedType      string       // the Content-Type that net/http detects; "" if it does not look
}

// freeze fills in frozenHeader from the header as it is now.
func (w *Writer) freeze() {
	for _, name := range w.response.Removed {
		if _, isThere := w.header[name]; !isThere {
			w.deleted = append(w.deleted, name)
		}
	}
	_, w.hasContentType = w.header["Content-Type"]
	w.isEncoded = w.header.Get("Content-Encoding") != "" || w.header.Get("Transfer-Encoding") != ""
	w.isEncodedOutside = w.header.Get("Content-Encoding") != "" && firstValue(w.response.Header, "Content-Encoding") == ""
	w.declaredTrailers, w.earlyTrailers = trailerNames(w.header), w.withoutEngineFields(prefixedTrailers(w.header))
}

// alwaysChanged has the names of fields that count as changed also where outer has the same values. core.OmitNoStore reads
// Cache-Control from the response. Content-Type says what the stored body is, and another process that sends the replay may have
// other middleware outside.
var alwaysChanged = map[string]bool{"Cache-Control": true, "Content-Type": true}

// setCookie is the name of the fields of which each value stands for itself: a cookie of middleware outside is not the handler's
// because the handler has set another one.
const setCookie = "Set-Cookie"

// headerChanges compares the handler's header with outer, the header as it was before the handler. It returns the fields that the
// handler added or changed, sorted by name, and the names that it removed or left without a value. Fields with http.TrailerPrefix
// are not included, because they are trailers. Cookies of outer are included, beside the name Set-Cookie among those removed, if the
// handler has changed them.
func headerChanges(outer, header http.Header) (changed []core.Field, removed []string) {
	changed = make([]core.Field, 0, len(header))
	for name, values := range header {
		before, was := outer[name]
		if len(values) == 0 && (!was || len(before) > 0) {
			removed = append(removed, name)
		}
		isSame := was && slices.Equal(values, before) && !alwaysChanged[name]
		if isSame || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		if name == setCookie && len(values) > 0 && was {
			if keepsCookies := len(values) > len(before) && slices.Equal(values[:len(before)], before); keepsCookies {
				values = values[len(before):]
			} else {
				removed = append(removed, name)
			}
		}
		for _, v := range values {
			changed = append(changed, core.Field{Name: name, Value: v})
		}
	}
	for name := range outer {
		if _, still := header[name]; !still {
			removed = append(removed, name)
		}
	}
	slices.SortStableFunc(changed, func(a, b core.Field) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(removed)
	return changed, removed
}

// trailerNames returns the canonical names that the handler has announced as trailers, in the Trailer field.
func trailerNames(header http.Header) (names []string) {
	for _, declared := range header["Trailer"] {
		for name := range strings.SplitSeq(declared, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// fieldsOf returns the fields of header with these names.
func fieldsOf(header http.Header, names []string) (fields []core.Field) {
	for _, name := range names {
		for _, v := range header[name] {
			fields = append(fields, core.Field{Name: name, Value: v})
		}
	}
	return fields
}

// prefixedTrailers returns the trailers that are marked by http.TrailerPrefix in their names. A handler need not announce them.
func prefixedTrailers(header http.Header) (trailers []core.Field) {
	for name, values := range header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			for _, v := range values {
				trailers = append(trailers, core.Field{Name: name, Value: v})
			}
		}
	}
	return trailers
}

// firstValue returns the value of the first field with this name, "" if there is none.
func firstValue(fields []core.Field, name string) string {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// replaceFields sets fields in header, in place of all values that header has under their names. Cookies are set beside those that
// are there.
func replaceFields(header http.Header, fields []core.Field) {
	for _, f := range fields {
		if f.Name != setCookie {
			delete(header, f.Name)
		}
	}
	addFields(header, fields)
}

// addFields adds fields to header, beside the values that are there. Names are written as they are, without canonicalisation.
func addFields(header http.Header, fields []core.Field) {
	for _, f := range fields {
		header[f.Name] = append(header[f.Name], f.Value)
	}
}
