package fiberadapter

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// chunked is the header of a request in chunks.
func chunked(t *testing.T, fields string) *fasthttp.RequestHeader {
	var header fasthttp.RequestHeader
	raw := "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + fields + "\r\n"
	require.NoError(t, header.Read(bufio.NewReader(strings.NewReader(raw))))
	return &header
}

// fieldsOf lists the fields of a header.
func fieldsOf(header *fasthttp.RequestHeader) (all []string) {
	header.VisitAll(func(key, value []byte) { all = append(all, fmt.Sprintf("%s: %s", key, value)) })
	return all
}

// KEY-19: fields of the same length, or with more behind the name, are others.
func TestOnlyFieldsWithTheWholeNameCountAsBeforeTheBody(t *testing.T) {
	header := chunked(t, "X-User: a\r\nx-user: b\r\nX-Usex: c\r\nX-User2: d\r\n")
	assert.Equal(t, 2, countBeforeBody(header, "X-User"))
}

// KEY-19: fasthttp has added trailers to the header. They are hidden from the scope, and the handler has them again.
func TestTrailersAreHiddenForATimeOnly(t *testing.T) {
	for name, isChunked := range map[string]bool{"in chunks": true, "of a known length": false} {
		t.Run(name, func(t *testing.T) {
			header := chunked(t, "X-User: a\r\nCookie: c=1\r\nContent-Type: text/plain\r\nConnection: close\r\n")
			if !isChunked {
				header = new(fasthttp.RequestHeader)
				header.Set("X-User", "a")
			}
			before := fieldsOf(header)
			header.Add("X-User", "b")
			header.Add("X-User", "c")
			header.Add("X-Sum", "4")
			all := fieldsOf(header)
			show := hideTrailers(header)
			if isChunked {
				assert.ElementsMatch(t, before, fieldsOf(header))
			} else {
				assert.Equal(t, all, fieldsOf(header))
			}
			show()
			assert.ElementsMatch(t, all, fieldsOf(header))
		})
	}
}

// Fields that fasthttp handles itself stay where middleware has set them, also while trailers are hidden.
func TestFieldsOfTheFramingAreNeverHidden(t *testing.T) {
	header := chunked(t, "")
	header.Set("Content-Type", "text/plain")
	show := hideTrailers(header)
	assert.Equal(t, "text/plain", string(header.ContentType()))
	show()
	assert.Equal(t, "text/plain", string(header.ContentType()))
}

// A field without a value is not one that the handlers have removed.
func TestAFieldFromOutsideWithoutAValueIsNotRemoved(t *testing.T) {
	var a handlerResponse
	a.outer.Set("X-Empty", "")
	a.outer.Set("X-Gone", "1")
	var header fasthttp.ResponseHeader
	header.Set("X-Empty", "")
	a.noteChanges(&header, false)
	assert.Equal(t, []string{"X-Gone"}, a.response.Removed)
}

// A cookie of middleware outside is of one exchange: the next one has its own, beside those of the handlers.
func TestACookieFromOutsideIsNotTheHandlers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fasthttp.ResponseHeader)
		replay []string
	}{
		"which add one": {
			func(h *fasthttp.ResponseHeader) { h.Add("Set-Cookie", "a=1; path=/"); h.Add("Set-Cookie", "b=2") },
			[]string{"sid=2", "a=1; path=/", "b=2"},
		},
		"which replace it": {func(h *fasthttp.ResponseHeader) {
			var cookie fasthttp.Cookie
			cookie.SetKey("sid")
			cookie.SetValue("3")
			h.SetCookie(&cookie)
		}, []string{"sid=3"}},
		"which have none": {func(h *fasthttp.ResponseHeader) { h.DelAllCookies() }, nil},
		"which leave it":  {func(*fasthttp.ResponseHeader) {}, []string{"sid=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var a handlerResponse
			a.outer.Add("Set-Cookie", "sid=1")
			var header fasthttp.ResponseHeader
			a.outer.CopyTo(&header)
			test.change(&header)
			a.noteChanges(&header, false)
			var c fasthttp.RequestCtx
			c.Response.Header.Add("Set-Cookie", "sid=2")
			sendResponse(&c, &core.Response{Status: 200, Header: a.response.Header, Removed: a.response.Removed})
			assert.Equal(t, test.replay, cookiesOf(&c.Response.Header))
		})
	}
}

// fasthttp has a default for Content-Type, which only the removal of that very field takes away.
func TestTheDefaultTypeIsRemovedWithItsOwnFieldOnly(t *testing.T) {
	for name, want := range map[string]string{"X-A": "text/plain; charset=utf-8", "Content-Type": ""} {
		var c fasthttp.RequestCtx
		sendResponse(&c, &core.Response{Status: 200, Removed: []string{name}, Body: []byte("x")})
		assert.Equal(t, want, string(c.Response.Header.ContentType()))
	}
}

// CON-12: a stream that was sent at once has left its length and no bytes. Other responses without bytes have not.
func TestAResponseWithoutBytesIsNotTakenForAStreamThatWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fasthttp.Response)
		isSent bool
	}{
		"a length and no bytes":   {func(*fasthttp.Response) {}, true},
		"a status without a body": {func(r *fasthttp.Response) { r.SetStatusCode(304) }, false},
		"a body that is skipped":  {func(r *fasthttp.Response) { r.SkipBody = true }, false},
		"no length":               {func(r *fasthttp.Response) { r.Header.SetContentLength(0) }, false},
		"the bytes":               {func(r *fasthttp.Response) { r.SetBodyString("paid") }, false},
		"a stream":                {func(r *fasthttp.Response) { r.SetBodyStream(strings.NewReader(""), 4) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var response fasthttp.Response
			response.Header.SetContentLength(4)
			test.change(&response)
			assert.Equal(t, test.isSent, isStreamSent(&response))
		})
	}
}

// The value that finds out whose context it is does not stay.
func TestTheContextOfARequestIsLeftAsItWas(t *testing.T) {
	var c fasthttp.RequestCtx
	ctx, own := clientContextOf(context.WithoutCancel(&c), &c)
	assert.Equal(t, ctx, own)
	c.VisitUserValuesAll(func(key, _ any) { assert.Fail(t, "left", "%v", key) })
}

// A form that was read from a stream has its long files on the disk, where others can reach them.
func TestAFormWhoseFileIsGoneIsAnError(t *testing.T) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", "file.bin")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	var r fasthttp.Request
	r.Header.SetContentType(w.FormDataContentType())
	r.SetBodyStream(&body, body.Len())
	form, err := r.MultipartForm()
	require.NoError(t, err)
	defer r.RemoveMultipartFormFiles()
	_, err = formDigest(&r)
	require.NoError(t, err)
	file, err := form.File["file"][0].Open()
	require.NoError(t, err)
	path := file.(*os.File).Name()
	require.NoError(t, file.Close())
	require.NoError(t, os.Remove(path))
	_, err = formDigest(&r)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Mkdir(path, 0o700)) // can be opened, and not be read
	_, err = formDigest(&r)
	require.Error(t, err)
}

// FPR-01: fasthttp reads a stream once.
func TestAStreamedBodyThatWasReadOutsideIsTaken(t *testing.T) {
	for text, want := range map[string]error{"": driver.ErrBodyTaken, "order": nil} {
		c := &fasthttp.RequestCtx{}
		c.Request.SetBodyStream(strings.NewReader(text), len("order"))
		x := &exchange[int]{version: &Version[int]{}, fasthttp: c}
		body, err := x.body(10)
		assert.Equal(t, want, err)
		assert.Equal(t, text, string(body))
	}
}

// FPR-01: and where middleware outside has parsed a form from it, in chunks or not, the form stands for the body and stays for the
// handlers.
func TestAFormThatWasParsedOutsideStandsForAStreamedBody(t *testing.T) {
	bodies := map[string]bool{}
	for _, amount := range []string{"1", "2"} {
		var text bytes.Buffer
		w := multipart.NewWriter(&text)
		require.NoError(t, w.SetBoundary("b"))
		require.NoError(t, w.WriteField("amount", amount))
		require.NoError(t, w.Close())
		text.WriteString(strings.Repeat("x", 10_000)) // more than a reader of forms takes
		for _, length := range []int{text.Len(), -1} {
			c := &fasthttp.RequestCtx{}
			c.Request.Header.SetContentType(w.FormDataContentType())
			c.Request.SetBodyStream(bytes.NewReader(text.Bytes()), length)
			_, err := c.MultipartForm()
			require.NoError(t, err)
			x := &exchange[int]{version: &Version[int]{ParsesForms: func(int) bool { return false }}, fasthttp: c}
			body, err := x.body(20_000)
			require.NoError(t, err)
			bodies[string(body)] = true
			assert.Equal(t, amount, string(c.FormValue("amount")))
		}
	}
	assert.Len(t, bodies, 2)
}
