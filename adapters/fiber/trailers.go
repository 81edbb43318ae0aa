package idem

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// isChunked tells of a request that may have lines behind its body (KEY-19). fasthttp has put them behind those of the header,
// and says no more that it was chunked.
func isChunked(header *fasthttp.RequestHeader) bool {
	return countBeforeBody(header, fiber.HeaderTransferEncoding) > 0
}

// countBeforeBody counts the lines named name that came before the body.
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

// hideTrailers takes the lines that came behind the body out of header, and returns what puts them back.
func hideTrailers(header *fasthttp.RequestHeader) (show func()) {
	if !isChunked(header) {
		return func() {}
	}
	lines, hidden := map[string][]string{}, map[string][]string{}
	header.VisitAll(func(key, value []byte) { lines[string(key)] = append(lines[string(key)], string(value)) })
	for name, values := range lines {
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

// isFraming tells of the lines that fasthttp makes itself. None of them may come behind a body.
func isFraming(name string) bool {
	switch name {
	case fiber.HeaderHost, fiber.HeaderContentLength, fiber.HeaderContentType, fiber.HeaderTransferEncoding, fiber.HeaderTrailer,
		fiber.HeaderConnection:
		return true
	}
	return false
}
