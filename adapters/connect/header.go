package idem

import (
	"maps"
	"net/http"
	"slices"

	"github.com/go-idem/idem/core"
)

// fieldsOf returns the fields of a header, sorted by name, so that equal headers are stored in equal bytes. Values of names that
// end in "-Bin" are in base64 already.
func fieldsOf(h http.Header) (fields []core.Field) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fields = append(fields, core.Field{Name: name, Value: value})
		}
	}
	return fields
}

// headerOf reverses fieldsOf.
func headerOf(fields []core.Field) http.Header {
	h := http.Header{}
	for _, f := range fields {
		h.Add(f.Name, f.Value)
	}
	return h
}

// moved empties h and returns what was in it.
func moved(h http.Header) http.Header {
	content := maps.Clone(h)
	clear(h)
	return content
}

// addAll adds the fields of from to h.
func addAll(h, from http.Header) {
	for name, values := range from {
		h[name] = append(h[name], values...)
	}
}
