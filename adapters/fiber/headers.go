package idem

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// noteChanges notes the header lines that differ from outer, and the names that outer has lines for and header has not. The
// Content-Type of a body always counts as changed: what fasthttp fills in by itself, other frameworks would not. So does
// Cache-Control, which core.OmitNoStore looks at, whoever set it.
func (a *handlerResponse) noteChanges(header *fasthttp.ResponseHeader, body bool) {
	r := &a.response
	r.Header = a.lines[:0]
	trailers := slices.Clone(header.PeekTrailerKeys()) // which come behind the body
	header.VisitAll(func(key, value []byte) {
		if slices.ContainsFunc(trailers, func(trailer []byte) bool { return bytes.Equal(trailer, key) }) {
			return
		}
		name := headerName(key)
		always := body && name == fiber.HeaderContentType || name == fiber.HeaderCacheControl
		switch {
		case !always && slices.EqualFunc(a.outer.PeekAll(name), header.PeekAll(name), bytes.Equal):
		case !always && name == fiber.HeaderContentType && !hasContentType(header):
			r.Removed = append(r.Removed, name)
		default:
			r.Header = append(r.Header, core.Field{Name: name, Value: string(value)})
		}
	})
	a.outer.VisitAll(func(key, _ []byte) {
		if line := header.PeekBytes(key); line == nil || len(line) == 0 && string(key) == fiber.HeaderContentType {
			r.Removed = append(r.Removed, string(key))
		}
	})
	a.handlerFields = len(r.Header)
}

// hasContentType tells whether a Content-Type was set, and is not the one that fasthttp shows without it.
func hasContentType(header *fasthttp.ResponseHeader) bool {
	var without fasthttp.ResponseHeader
	header.CopyTo(&without)
	without.SetNoDefaultContentType(true)
	return len(without.ContentType()) > 0
}

// headerName is a copy of a header name, where it is none of the usual ones.
func headerName(key []byte) string {
	for _, usual := range []string{fiber.HeaderContentType, fiber.HeaderContentLength, fiber.HeaderLocation, fiber.HeaderCacheControl} {
		if string(key) == usual {
			return usual
		}
	}
	return string(key)
}

// deleteMarker takes away the line that replays carry, whose name a handler may have written in any way.
func deleteMarker(c *fiber.Ctx, header *fasthttp.ResponseHeader, marker string) {
	for _, key := range header.PeekKeys() {
		if len(key) == len(marker) && strings.EqualFold(string(key), marker) {
			header.DisableNormalizing() // of the name to delete
			header.DelBytes(key)
			if !c.App().Config().DisableHeaderNormalizing {
				header.EnableNormalizing()
			}
		}
	}
}
