package idem

import (
	"github.com/gofiber/fiber/v2"

	"github.com/go-idem/idem/core"
)

// send writes a response, which may be the one that is there.
func (a *handlerResponse) send(c *fiber.Ctx, r *core.Response) {
	if r != &a.response {
		a.resetResponse(c.Response())
		sendResponse(c, r)
		return
	}
	header := &c.Response().Header
	for _, f := range r.Header[min(a.handlerFields, len(r.Header)):] {
		header.Set(f.Name, f.Value)
	}
	for _, f := range r.Added {
		header.Add(f.Name, f.Value)
	}
}

// sendResponse writes a response: the headers around it stay, those it names are replaced.
func sendResponse(c *fiber.Ctx, r *core.Response) {
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
