package fiberadapter

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// The names of fields that are treated apart.
const (
	contentType  = "Content-Type"
	setCookie    = "Set-Cookie"
	cacheControl = "Cache-Control"
)

// noteChanges compares header with outer, the header as it was before the handlers. It sets response.Header to the fields that
// the handlers added or changed, and response.Removed to the names that they removed. Two fields always count as changed:
//   - the Content-Type of a response with a body, because fasthttp has a default for it and other frameworks do not, and one that
//     the handlers have set, because it may equal that default;
//   - Cache-Control, because core.OmitNoStore reads it from the response.
//
// Trailers are left out, and so are cookies that were there before, unless the handlers have removed one of them.
func (a *handlerResponse) noteChanges(header *fasthttp.ResponseHeader, hasBody bool) {
	r := &a.response
	r.Header = a.fieldBuffer[:0]
	trailers, outerCookies := slices.Clone(header.PeekTrailerKeys()), cookiesOf(&a.outer)
	if cookies := cookiesOf(header); slices.ContainsFunc(outerCookies, func(c string) bool { return !slices.Contains(cookies, c) }) {
		outerCookies, r.Removed = nil, append(r.Removed, setCookie)
	}
	header.VisitAll(func(key, value []byte) {
		if slices.ContainsFunc(trailers, func(trailer []byte) bool { return bytes.Equal(trailer, key) }) {
			return
		}
		name := headerName(key)
		isType := name == contentType
		always := isType && (hasBody || hasContentType(header) && !hasContentType(&a.outer)) || name == cacheControl
		switch {
		case name == setCookie && slices.Contains(outerCookies, string(value)):
		case name == setCookie:
			r.Header = append(r.Header, core.Field{Name: name, Value: string(value)})
		case !always && slices.EqualFunc(a.outer.PeekAll(name), header.PeekAll(name), bytes.Equal):
		case !always && isType && !hasContentType(header):
			r.Removed = append(r.Removed, name)
		default:
			r.Header = append(r.Header, core.Field{Name: name, Value: string(value)})
		}
	})
	a.outer.VisitAll(func(key, _ []byte) {
		if string(key) == setCookie {
			return
		}
		if value := header.PeekBytes(key); value == nil || len(value) == 0 && string(key) == contentType {
			r.Removed = append(r.Removed, string(key))
		}
	})
	a.handlerFields = len(r.Header)
}

// cookiesOf returns the cookies that a header sets.
func cookiesOf(header *fasthttp.ResponseHeader) (cookies []string) {
	header.VisitAllCookie(func(_, value []byte) { cookies = append(cookies, string(value)) })
	return cookies
}

// hasContentType reports whether a Content-Type was set. fasthttp shows its default otherwise.
func hasContentType(header *fasthttp.ResponseHeader) bool {
	var without fasthttp.ResponseHeader
	header.CopyTo(&without)
	without.SetNoDefaultContentType(true)
	return len(without.ContentType()) > 0
}

// headerName returns key as a string. The usual names are constants, which saves the copy.
func headerName(key []byte) string {
	for _, usual := range []string{
		contentType, "Content-Length", "Location", cacheControl,
	} {
		if string(key) == usual {
			return usual
		}
	}
	return string(key)
}

// setEngineFields removes from header what the handlers have set under names that only the engine sets. If withValues is true, it
// sets the engine's own values as well, because the engine never sees the response.
func (x *exchange[C]) setEngineFields(ctx context.Context, header *fasthttp.ResponseHeader, withValues bool) {
	for _, own := range capture.EngineFields(ctx) {
		x.deleteField(header, own.Name)
		if withValues && own.Value != "" {
			header.Set(own.Name, own.Value)
		}
	}
}

// deleteField removes the fields with this name from header. The app may have DisableHeaderNormalizing, so the handler's spelling
// of the name may differ in case.
func (x *exchange[C]) deleteField(header *fasthttp.ResponseHeader, name string) {
	for _, key := range header.PeekKeys() {
		if len(key) == len(name) && strings.EqualFold(string(key), name) {
			header.DisableNormalizing() // DelBytes would change the case of key.
			header.DelBytes(key)
			if !x.version.KeepsCase(x.ctx) {
				header.EnableNormalizing()
			}
		}
	}
}
