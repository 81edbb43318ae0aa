package idem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// exchange is one request on its way through the engine, and its answer on the way back.
type exchange struct {
	ctx    *fiber.Ctx
	given  core.Request // what the engine reads of it by functions
	run    func(context.Context) (*core.Response, error)
	asked  bool      // for a header
	line   [1]string // memory for the first header that is asked for
	answer answer    // of the handlers. A replay does without
}

func newExchange(c *fiber.Ctx, o *options) *exchange {
	x := &exchange{ctx: c}
	x.given = core.Request{Header: x.header, Body: x.body}
	if o.scope != nil {
		x.given.Scope = func() string {
			defer hideTrailers(&x.ctx.Request().Header)()
			return strings.Clone(o.scope(x.ctx)) // what Fiber returns is memory that is used again
		}
	}
	x.run = func(ctx context.Context) (*core.Response, error) { return x.answer.run(ctx, x.ctx, &o.keep) }
	return x
}

// do lets an engine take the request, and writes what it answers.
func (x *exchange) do(e *core.Engine) (isBypassed bool, err error) {
	c, answered := x.ctx, false
	ctx, own := clientOf(c)
	defer func() {
		if !answered {
			x.answer.takeBack(c.Response()) // who recovers, or handles err, has an answer of its own
		}
		if !answered || !x.answer.streams {
			own.end()
		}
	}()
	x.answer.client = own
	result, err := e.Do(ctx, x.request(), x.run)
	answered = err == nil
	if result.Response != nil {
		x.answer.send(c, result.Response)
		if c.Request().IsBodyStream() { // what nobody has read would be taken for the next request
			c.Context().SetConnectionClose()
		}
	}
	return result.Bypassed, err
}

// request is the request as the engine reads it. fasthttp uses its memory again, so every string is a copy.
func (x *exchange) request() core.Request {
	header, r := &x.ctx.Request().Header, x.given
	r.Method = method(header)
	r.Path, r.RawQuery, _ = strings.Cut(string(header.RequestURI()), "?")
	return r
}

// method is a copy of the request's method, where it may be a guarded one.
func method(header *fasthttp.RequestHeader) string {
	for _, m := range []string{fiber.MethodPost, fiber.MethodPatch, fiber.MethodGet} {
		if string(header.Method()) == m {
			return m
		}
	}
	return string(header.Method())
}

// header is not fasthttp's PeekAll: with DisableHeaderNormalizing that minds the case.
func (x *exchange) header(name string) (values []string) {
	if strings.EqualFold(name, fiber.HeaderHost) { // an absolute target names another one than the line
		return []string{string(x.ctx.Request().URI().Host())}
	}
	if !x.asked { // for the key, which has one line
		x.asked, values = true, x.line[:0]
	}
	x.ctx.Request().Header.VisitAll(func(key, value []byte) {
		if len(key) == len(name) && strings.EqualFold(string(key), name) {
			values = append(values, string(value))
		}
	})
	if len(values) > 0 && isChunked(&x.ctx.Request().Header) {
		values = values[:min(len(values), linesBeforeBody(&x.ctx.Request().Header, name))]
	}
	return values
}

// isChunked tells of a request that may have lines behind its body (KEY-19). fasthttp has put them behind those of the header,
// and says no more that it was chunked.
func isChunked(header *fasthttp.RequestHeader) bool {
	return linesBeforeBody(header, fiber.HeaderTransferEncoding) > 0
}

// linesBeforeBody counts the lines named name that came before the body.
func linesBeforeBody(header *fasthttp.RequestHeader, name string) (n int) {
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
		before := linesBeforeBody(header, name)
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
func (x *exchange) body(limit int64) ([]byte, error) {
	c := x.ctx
	r := c.Request()
	length := int64(r.Header.ContentLength())
	switch {
	case length > limit:
		return nil, &http.MaxBytesError{Limit: limit}
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

// answer is what the handlers leave in the Fiber context. It stays there, for nothing is sent before the middleware returns.
type answer struct {
	outer    fasthttp.ResponseHeader // as it was before the handlers
	response core.Response
	lines    [8]core.Field // memory for those of most responses
	own      int           // how many lines of the response are the handlers'
	ran      bool          // the handlers, up to their end or not
	streams  bool          // it goes on when the middleware has returned
	client   *client       // whose request it is; nil where no care is needed
}

// run runs the handlers behind the middleware, and says what they have left in the Fiber context. A timeout or a hijacked
// connection counts as sent: fasthttp sends it whatever becomes of the claim.
func (a *answer) run(ctx context.Context, c *fiber.Ctx, keep *core.KeepConfig) (*core.Response, error) {
	c.Response().Header.CopyTo(&a.outer)
	a.ran = true
	isUnrouted := handle(ctx, c)
	r, response, isSent := &a.response, c.Response(), c.Context().Hijacked()
	r.Hijacked, r.Unrouted = isSent, isUnrouted
	if late := c.Context().LastTimeoutErrorResponse(); late != nil {
		response, isSent = late, true
		core.Decide(ctx, core.LeaveUnknown) // who had to be timed out still works
	}
	r.Status = response.StatusCode()
	hasBody := r.Status >= 200 && r.Status != fiber.StatusNoContent && r.Status != fiber.StatusNotModified
	streams := hasBody && !isSent && response.IsBodyStream()
	isTyped := isSent || streams
	if streams && !response.SkipBody {
		if err := hold(response, keep.MaxBody); err != nil {
			return nil, err
		}
		streams = response.IsBodyStream()
	}
	if hasBody && !isSent && !streams {
		r.Body = response.Body()
	}
	unmark(c, &response.Header, keep.Marker)
	a.changes(&response.Header, isTyped || len(r.Body) > 0)
	if streams && !response.SkipBody {
		unprotected(ctx, response)
		return a.later(response, keep.MaxBody), nil
	}
	r.Omitted = streams // which nobody reads
	if isSent {
		unprotected(ctx, response)
		r.Sent, r.Omitted, r.Unfinished = true, true, true
	}
	return r, nil
}

// handle runs the handlers under ctx, those of errors included, and tells whether Fiber's router has found none.
func handle(ctx context.Context, c *fiber.Ctx) (isUnrouted bool) {
	client := c.UserContext()
	around := c.Context().UserValue(core.ContextKey)
	c.SetUserContext(ctx)
	c.Context().SetUserValue(core.ContextKey, ctx)
	defer func() {
		c.SetUserContext(client)
		c.Context().SetUserValue(core.ContextKey, around)
	}()
	err := c.Next()
	if err == nil {
		return false
	}
	isUnrouted = isRouters(c, err)
	if c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError)
	}
	return isUnrouted
}

// isRouters tells of an error whether Fiber's router has made it, which has found no handler.
func isRouters(c *fiber.Ctx, err error) bool {
	notFound := (*fiber.Error)(nil)
	if errors.As(err, &notFound) && notFound.Code == fiber.StatusNotFound {
		return strings.HasPrefix(notFound.Message, "Cannot "+c.Method()+" /")
	}
	return errors.Is(err, fiber.ErrMethodNotAllowed) && len(c.Response().Header.Peek(fiber.HeaderAllow)) > 0
}

// unprotected says of an answer that the engine does not send whether its run had no claim.
func unprotected(ctx context.Context, response *fasthttp.Response) {
	if run, _ := core.FromContext(ctx); run.Unprotected {
		response.Header.Set("Idempotent-Unprotected", "true")
	}
}

// later leaves the end of the run to the stream of response.
func (a *answer) later(response *fasthttp.Response, limit int) *core.Response {
	a.streams = true
	s := watch(response, limit, a.response)
	s.client = a.client
	return &core.Response{Status: a.response.Status, Sent: true, Later: func(end func(*core.Response, error)) { s.end = end }}
}

// unmark takes away the line that replays carry, whose name a handler may have written in any way.
func unmark(c *fiber.Ctx, header *fasthttp.ResponseHeader, marker string) {
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

// takeBack leaves of the handlers' answer nothing in the response.
func (a *answer) takeBack(response *fasthttp.Response) {
	if a.ran {
		a.outer.CopyTo(&response.Header)
		response.ResetBody()
		response.SkipBody, response.ImmediateHeaderFlush = false, false
	}
}

// send writes a response, which may be the one that is there.
func (a *answer) send(c *fiber.Ctx, r *core.Response) {
	if r != &a.response {
		a.takeBack(c.Response())
		send(c, r)
		return
	}
	header := &c.Response().Header
	for _, f := range r.Header[min(a.own, len(r.Header)):] {
		header.Set(f.Name, f.Value)
	}
	for _, f := range r.Added {
		header.Add(f.Name, f.Value)
	}
}

// changes notes the header lines that differ from outer, and the names that outer has lines for and header has not. The
// Content-Type of a body always counts as changed: what fasthttp fills in by itself, other frameworks would not. So does
// Cache-Control, which core.OmitNoStore looks at, whoever set it.
func (a *answer) changes(header *fasthttp.ResponseHeader, body bool) {
	r := &a.response
	r.Header = a.lines[:0]
	trailers := slices.Clone(header.PeekTrailerKeys()) // which come behind the body
	header.VisitAll(func(key, value []byte) {
		if slices.ContainsFunc(trailers, func(trailer []byte) bool { return bytes.Equal(trailer, key) }) {
			return
		}
		name := name(key)
		always := body && name == fiber.HeaderContentType || name == fiber.HeaderCacheControl
		switch {
		case !always && slices.EqualFunc(a.outer.PeekAll(name), header.PeekAll(name), bytes.Equal):
		case !always && name == fiber.HeaderContentType && !isTyped(header):
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
	a.own = len(r.Header)
}

// isTyped tells whether a Content-Type was set, and is not the one that fasthttp shows without it.
func isTyped(header *fasthttp.ResponseHeader) bool {
	var without fasthttp.ResponseHeader
	header.CopyTo(&without)
	without.SetNoDefaultContentType(true)
	return len(without.ContentType()) > 0
}

// name is a copy of a header name, where it is none of the usual ones.
func name(key []byte) string {
	for _, usual := range []string{fiber.HeaderContentType, fiber.HeaderContentLength, fiber.HeaderLocation, fiber.HeaderCacheControl} {
		if string(key) == usual {
			return usual
		}
	}
	return string(key)
}

// send writes a response: the headers around it stay, those it names are replaced.
func send(c *fiber.Ctx, r *core.Response) {
	header := &c.Response().Header
	for _, name := range r.Removed {
		header.Del(name)
		if name == fiber.HeaderContentType {
			header.SetNoDefaultContentType(true)
		}
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
