package fiberadapter

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"
)

// transferEncoding is the name of the field that tells of chunks.
const transferEncoding = "Transfer-Encoding"

// isChunked reports whether the request was sent in chunks, so that its header may contain trailers (KEY-19): fasthttp appends
// them to the header. It looks at the raw header, because fasthttp forgets that a request was chunked.
func isChunked(header *fasthttp.RequestHeader) bool {
	return countBeforeBody(header, transferEncoding) > 0
}

// countBeforeBody counts the header fields with this name that came before the body.
func countBeforeBody(header *fasthttp.RequestHeader, name string) (n int) {
	for raw := header.RawHeaders(); len(raw) > 0; {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte("\n"))
		if len(line) > len(name) && line[len(name)] == ':' && strings.EqualFold(string(line[:len(name)]), name) {
			n++
		}
	}
	return n
}

// hideTrailers removes the trailers from header until show is called. fasthttp appends a trailer to the values of its name, so
// the first values of each name are those that came before the body.
func hideTrailers(header *fasthttp.RequestHeader) (show func()) {
	if !isChunked(header) {
		return func() {}
	}
	fields, hidden := map[string][]string{}, map[string][]string{}
	header.VisitAll(func(key, value []byte) { fields[string(key)] = append(fields[string(key)], string(value)) })
	for name, values := range fields {
		before := countBeforeBody(header, name)
		if before == len(values) || isFraming(name) {
			continue
		}
		hidden[name] = values
		header.Del(name)
		for _, value := range values[:min(before, len(values))] {
			header.Add(name, value)
		}
	}
	return func() {
		for name, values := range hidden {
			header.Del(name)
			for _, value := range values {
				header.Add(name, value)
			}
		}
	}
}

// isFraming reports whether fasthttp handles this field itself. None of these fields may be a trailer.
func isFraming(name string) bool {
	switch name {
	case "Host", "Content-Length", contentType, transferEncoding, "Trailer", "Connection":
		return true
	}
	return false
}
