package capture

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-idem/idem/core"
)

// frozenHeader is what the status fixes of an answer, besides the lines of its response.
type frozenHeader struct {
	deleted          []string     // those of response.Removed that the handler's header has no name of
	earlyTrailers    []core.Field // lines behind the body that were there already, under the names of http.TrailerPrefix
	declaredTrailers []string     // names of lines behind the body
	hasContentType   bool         // there is a Content-Type, be it none at all
	isEncoded        bool         // net/http does not look for one in the body
	sniffedType      string       // what it finds there
}

// freeze notes what the header says now besides its lines.
func (w *Writer) freeze() {
	for _, name := range w.response.Removed {
		if _, isThere := w.header[name]; !isThere {
			w.deleted = append(w.deleted, name)
		}
	}
	_, w.hasContentType = w.header["Content-Type"]
	w.isEncoded = w.header.Get("Content-Encoding") != "" || w.header.Get("Transfer-Encoding") != ""
	w.declaredTrailers, w.earlyTrailers = trailerNames(w.header), prefixedTrailers(w.header)
}

// originalHeader is outer's header as it was before the handler.
func (w *Writer) originalHeader() http.Header {
	if w.sharedHeader {
		return nil
	}
	return w.outer.Header()
}

// headerChanges returns the lines of header that differ from outer, sorted by name, and the names that header has no lines for.
func headerChanges(outer, header http.Header) (lines []core.Field, removed []string) {
	lines = make([]core.Field, 0, len(header))
	for name, values := range header {
		before, was := outer[name]
		if len(values) == 0 && (!was || len(before) > 0) {
			removed = append(removed, name)
		}
		alike := was && slices.Equal(values, before) && name != "Cache-Control" // OmitNoStore looks at that, whoever set it
		if alike || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, v := range values {
			lines = append(lines, core.Field{Name: name, Value: v})
		}
	}
	for name := range outer {
		if _, still := header[name]; !still {
			removed = append(removed, name)
		}
	}
	slices.SortStableFunc(lines, func(a, b core.Field) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(removed)
	return lines, removed
}

// trailerNames are the names of lines that the handler has declared to come behind the body.
func trailerNames(header http.Header) (names []string) {
	for _, declared := range header["Trailer"] {
		for name := range strings.SplitSeq(declared, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// fieldsOf are those of names.
func fieldsOf(header http.Header, names []string) (lines []core.Field) {
	for _, name := range names {
		for _, v := range header[name] {
			lines = append(lines, core.Field{Name: name, Value: v})
		}
	}
	return lines
}

// prefixedTrailers are the lines that come behind the body without having been declared.
func prefixedTrailers(header http.Header) (lines []core.Field) {
	for name, values := range header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			for _, v := range values {
				lines = append(lines, core.Field{Name: name, Value: v})
			}
		}
	}
	return lines
}

// firstValue returns the value of the first line named name; "" when there is none.
func firstValue(lines []core.Field, name string) string {
	for _, f := range lines {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// replaceFields puts lines in the place of those of the same names.
func replaceFields(header http.Header, lines []core.Field) {
	for _, f := range lines {
		delete(header, f.Name)
	}
	addFields(header, lines)
}

func addFields(header http.Header, lines []core.Field) {
	for _, f := range lines {
		header[f.Name] = append(header[f.Name], f.Value)
	}
}
