package idem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// request is c's request as the engine reads it. fasthttp uses its memory again, so every string is a copy.
func request(c *fiber.Ctx) core.Request {
	path, query, _ := strings.Cut(string(c.Request().Header.RequestURI()), "?")
	return core.Request{
		Method:   string(c.Request().Header.Method()),
		Path:     path,
		RawQuery: query,
		Header: func(name string) (values []string) { // not PeekAll: with DisableHeaderNormalizing it minds the case
			c.Request().Header.VisitAll(func(key, value []byte) {
				if strings.EqualFold(string(key), name) {
					values = append(values, string(value))
				}
			})
			return values
		},
		Body: func(limit int64) ([]byte, error) { return body(c, limit) },
	}
}

// form is what makes two multipart requests the same. fasthttp has parsed them already, and would put the body together
// in another order each time.
func form(r *fasthttp.Request) ([]byte, error) {
	f, err := r.MultipartForm()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f.Value)) {
		fmt.Fprintf(h, "%q %q\n", name, f.Value[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.File)) {
		for _, part := range f.File[name] {
			fmt.Fprintf(h, "%q %q %d\n", name, part.Header, part.Size)
			file, err := part.Open()
			if err != nil {
				return nil, err
			}
			_, err = io.Copy(h, file)
			_ = file.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	return h.Sum(nil), nil
}

// body reads the request's body as it was sent. With StreamRequestBody it is still to be read.
func body(c *fiber.Ctx, limit int64) ([]byte, error) {
	r := c.Request()
	length := int64(r.Header.ContentLength())
	switch {
	case length > limit:
		return nil, core.ErrBodyTooLarge
	case length > 0 && len(r.Header.MultipartFormBoundary()) > 0 && !c.App().Config().DisablePreParseMultipartForm:
		return form(r)
	case !r.IsBodyStream():
		return r.Body(), nil
	}
	b, err := io.ReadAll(io.LimitReader(r.BodyStream(), limit+1))
	if err == nil && int64(len(b)) <= limit {
		r.SetBody(b)
	}
	return b, err
}

// run runs the handlers behind the middleware and takes their answer out of c, so that nothing of it is sent before it
// is kept. What can not be taken out, a stream or a hijacked connection, is left for fasthttp to send.
func run(ctx context.Context, c *fiber.Ctx, marker string) *core.Response {
	client, response := c.UserContext(), c.Response()
	ctx, unbind := bind(ctx)
	defer unbind()
	var outer fasthttp.ResponseHeader
	response.Header.CopyTo(&outer)
	c.SetUserContext(ctx)
	defer c.SetUserContext(client)
	if err := c.Next(); err != nil {
		if c.App().ErrorHandler(c, err) != nil {
			_ = c.SendStatus(fiber.StatusInternalServerError)
		}
	}
	late := c.Context().LastTimeoutErrorResponse()
	if late != nil {
		response = late
	}
	r := &core.Response{Status: response.StatusCode(), Hijacked: c.Context().Hijacked()}
	isStream := response.IsBodyStream() || late != nil
	if hasBody := r.Status >= 200 && r.Status != fiber.StatusNoContent && r.Status != fiber.StatusNotModified; hasBody && !isStream {
		r.Body = bytes.Clone(response.Body())
	}
	r.Header, r.Removed = changes(&outer, &response.Header, isStream || len(r.Body) > 0)
	if r.Hijacked || isStream {
		r.Sent, r.Omitted, r.Unfinished = true, true, true
		response.Header.Del(marker)
		if run, _ := core.FromContext(ctx); run.Unprotected {
			response.Header.Set("Idempotent-Unprotected", "true")
		}
		return r
	}
	outer.CopyTo(&response.Header)
	response.ResetBody()
	return r
}

// bind returns a context that ends with ctx until unbind is called, and not after: fasthttp writes a stream when its
// handler has returned.
func bind(ctx context.Context) (context.Context, func() bool) {
	bound, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return bound, context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
}

// changes returns the header lines that differ from outer, and the names that outer has lines for and header has not.
// The Content-Type of a body always counts as changed: what fasthttp fills in by itself, other frameworks would not. So does
// Cache-Control, which core.OmitNoStore looks at, whoever set it.
func changes(outer, header *fasthttp.ResponseHeader, body bool) (lines []core.Field, removed []string) {
	header.VisitAll(func(key, value []byte) {
		name := string(key)
		always := body && name == fiber.HeaderContentType || name == fiber.HeaderCacheControl
		if always || !slices.EqualFunc(outer.PeekAll(name), header.PeekAll(name), bytes.Equal) {
			lines = append(lines, core.Field{Name: name, Value: string(value)})
		}
	})
	outer.VisitAll(func(key, _ []byte) {
		if name := string(key); header.Peek(name) == nil {
			removed = append(removed, name)
		}
	})
	return lines, removed
}

// send writes a response: the headers around it stay, those it names are replaced.
func send(c *fiber.Ctx, r *core.Response) {
	header := &c.Response().Header
	for _, name := range r.Removed {
		header.Del(name)
	}
	for _, f := range r.Header {
		header.Del(f.Name)
	}
	for _, f := range r.Header {
		header.Add(f.Name, f.Value)
	}
	for _, f := range r.Added {
		header.Add(f.Name, f.Value)
	}
	c.Status(r.Status)
	c.Response().SetBody(r.Body)
}
