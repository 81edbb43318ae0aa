package fiberadapter

import (
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// send writes r into the Fiber context. If r is the response of the handlers, it is there already, and send only adds the fields
// that the engine has added.
func (a *handlerResponse) send(c *fasthttp.RequestCtx, r *core.Response) {
	if r != &a.response {
		a.resetResponse(&c.Response)
		sendResponse(c, r)
		return
	}
	header := &c.Response.Header
	for _, f := range r.Header[min(a.handlerFields, len(r.Header)):] {
		header.Set(f.Name, f.Value)
	}
	for _, f := range r.Added {
		header.Add(f.Name, f.Value)
	}
}

// sendResponse writes a replay or a refusal. Header fields that outer middleware has set stay, except those that r replaces or
// removes.
func sendResponse(c *fasthttp.RequestCtx, r *core.Response) {
	header := &c.Response.Header
	for _, name := range r.Removed {
		header.Del(name)
		if name == contentType {
			header.SetNoDefaultContentType(true)
		}
	}
	for _, f := range r.Header {
		if f.Name != setCookie { // a cookie is set beside others
			header.Del(f.Name)
		}
	}
	for _, f := range r.Header {
		header.Add(f.Name, f.Value)
	}
	for _, f := range r.Added {
		header.Add(f.Name, f.Value)
	}
	c.Response.SetStatusCode(r.Status)
	c.Response.SetBody(r.Body)
}
