package adapters_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// RPL-31: first answers of many handlers, with the engine and without, byte for byte.

// deed is one thing that a Fiber handler does.
type deed struct {
	text string
	do   func(*fiber.Ctx)
}

// deeds are n handlers of deeds in any order.
func deeds(seed uint64, n int) (handlers [][]deed) {
	r := rand.New(rand.NewPCG(seed, 2))
	name := func() string {
		return []string{"X-A", "X-Outer", "Etag", "Content-Type", "Vary", "Cache-Control"}[r.IntN(6)]
	}
	choice := []func() deed{
		func() deed {
			code := []int{200, 201, 202, 204, 205, 206, 301, 304, 400, 404, 418, 422, 500, 503, 999}[r.IntN(15)]
			return deed{fmt.Sprint("status ", code), func(c *fiber.Ctx) { c.Status(code) }}
		},
		func() deed {
			text := []string{"", "x", adaptertest.HTML, adaptertest.Long, adaptertest.Huge}[r.IntN(5)]
			return deed{fmt.Sprint("send ", len(text)), func(c *fiber.Ctx) { _ = c.SendString(text) }}
		},
		func() deed { return deed{"write", func(c *fiber.Ctx) { _, _ = c.WriteString("abc") }} },
		func() deed { return deed{"json", func(c *fiber.Ctx) { _ = c.JSON([]int{1}) }} },
		func() deed { return deed{"send status", func(c *fiber.Ctx) { _ = c.SendStatus(418) }} },
		func() deed {
			n, v := name(), fmt.Sprint(r.IntN(3))
			return deed{"set " + n, func(c *fiber.Ctx) { c.Set(n, v) }}
		},
		func() deed {
			n, v := name(), fmt.Sprint(r.IntN(3))
			return deed{"add " + n, func(c *fiber.Ctx) { c.Response().Header.Add(n, v) }}
		},
		func() deed {
			n := name()
			return deed{"delete " + n, func(c *fiber.Ctx) { c.Response().Header.Del(n) }}
		},
		func() deed {
			return deed{"no default type", func(c *fiber.Ctx) { c.Response().Header.SetNoDefaultContentType(true) }}
		},
		func() deed {
			return deed{"cookie", func(c *fiber.Ctx) { c.Cookie(&fiber.Cookie{Name: "a", Value: "b"}) }}
		},
		func() deed {
			return deed{"stream", func(c *fiber.Ctx) { _ = c.SendStream(strings.NewReader(adaptertest.HTML)) }}
		},
		func() deed {
			return deed{"sized stream", func(c *fiber.Ctx) { _ = c.SendStream(strings.NewReader(adaptertest.Long), len(adaptertest.Long)) }}
		},
		func() deed {
			return deed{"trailer", func(c *fiber.Ctx) { _ = c.Response().Header.SetTrailer("X-Sum"); c.Set("X-Sum", "4") }}
		},
		func() deed { return deed{"redirect", func(c *fiber.Ctx) { _ = c.Redirect("/elsewhere", 303) }} },
	}
	for range n {
		var h []deed
		for range r.IntN(6) {
			h = append(h, choice[r.IntN(len(choice))]())
		}
		handlers = append(handlers, h)
	}
	return handlers
}

func TestFirstAnswersOfFiberAreAsWithoutTheEngineByteForByteAndReplaysLikeThem(t *testing.T) {
	for i, todo := range deeds(1, 300) {
		var texts []string
		for _, d := range todo {
			texts = append(texts, d.text)
		}
		outer := func(c *fiber.Ctx) error {
			if i%2 == 0 {
				c.Set("X-Outer", "outer")
				c.Set("Content-Type", "text/x-outer")
			}
			return c.Next()
		}
		title := fmt.Sprint(strings.Join(texts, ", "), "; outer lines ", i%2 == 0)
		h := func(c *fiber.Ctx) error {
			for _, d := range todo {
				d.do(c)
			}
			return nil
		}
		engine := adaptertest.NewEngine(t).With(func(c *core.Config) { c.Keep.MaxBody, c.Keep.Policy = 10_000, core.KeepAll })
		bare, guarded := fiber.New(fiber.Config{DisableStartupMessage: true}), fiber.New(fiber.Config{DisableStartupMessage: true})
		bare.Use(outer)
		guarded.Use(outer, idemfiber.Fiber(engine))
		bare.Post("/", h)
		guarded.Post("/", h)
		bareAddr, addr := strings.TrimPrefix(serveFiber(t, bare), "http://"), strings.TrimPrefix(serveFiber(t, guarded), "http://")
		want, first := adaptertest.Ask(t, bareAddr, "POST"), adaptertest.Ask(t, addr, "POST")
		if strings.Contains(title, "stream") { // one of a known length is held back
			want, first = want.Unframed(), first.Unframed()
		}
		require.Equal(t, want, first, title)
		adaptertest.IsLike(t, first, adaptertest.Ask(t, addr, "POST"), title)
		require.False(t, t.Failed())
	}
}
