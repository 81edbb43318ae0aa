package main

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
)

// rawAnswer is what a yardstick answers.
type rawAnswer struct {
	status   int
	body     []byte
	isReplay bool
}

// asker answers a request with a key and a body, which may be read once.
type asker func(ctx context.Context, key string, body func() []byte) rawAnswer

// rawScripts makes the two script calls that a guarded request needs around the handler, and does nothing else.
func rawScripts(client redis.Scripter, s *shop) asker {
	return func(ctx context.Context, key string, request func() []byte) rawAnswer {
		c := newWire("raw:{" + key + "}")
		word, fence, record, err := answer(c.begin(ctx, client))
		switch {
		case err != nil:
			return rawAnswer{status: http.StatusServiceUnavailable}
		case record != nil:
			return rawAnswer{http.StatusCreated, record[headBytes:], true}
		case word != "claimed":
			return rawAnswer{status: http.StatusConflict}
		}
		request()
		body := s.pay()
		if err := c.complete(ctx, client, fence, body).Err(); err != nil {
			return rawAnswer{status: http.StatusServiceUnavailable}
		}
		return rawAnswer{http.StatusCreated, body, false}
	}
}

// rawTable answers replays from a table in the process. It compares requests, for that is what a replay needs, and does
// nothing else: nothing is dropped from the table, and no two requests of one key meet.
func rawTable(s *shop) asker {
	type answered struct {
		request [sha256.Size]byte
		body    []byte
	}
	var mu sync.Mutex
	table := map[[sha256.Size]byte]answered{}
	return func(_ context.Context, key string, body func() []byte) rawAnswer {
		name, request := sha256.Sum256([]byte(key)), sha256.Sum256(body())
		mu.Lock()
		found, ok := table[name]
		mu.Unlock()
		switch {
		case ok && found.request != request:
			return rawAnswer{status: http.StatusUnprocessableEntity}
		case ok:
			return rawAnswer{http.StatusCreated, found.body, true}
		}
		made := s.pay()
		mu.Lock()
		defer mu.Unlock()
		table[name] = answered{request, made}
		return rawAnswer{http.StatusCreated, made, false}
	}
}

func rawHTTP(ask asker) mounted {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		a := ask(r.Context(), r.Header.Get(keyHeader), func() []byte { return readBody(r) })
		if a.isReplay {
			w.Header().Set(marker, "true")
		}
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // an error means that the client has left
	})
	return mounted{std: mux}
}

func rawGin(ask asker) mounted {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.POST(path, func(c *gin.Context) {
		a := ask(c.Request.Context(), c.GetHeader(keyHeader), func() []byte { return readBody(c.Request) })
		if a.isReplay {
			c.Header(marker, "true")
		}
		c.Data(a.status, mediaType, a.body)
	})
	return mounted{std: router}
}

func rawEcho(ask asker) mounted {
	router := echo.New()
	router.POST(path, func(c echo.Context) error {
		a := ask(c.Request().Context(), c.Request().Header.Get(keyHeader), func() []byte { return readBody(c.Request()) })
		if a.isReplay {
			c.Response().Header().Set(marker, "true")
		}
		return c.Blob(a.status, mediaType, a.body)
	})
	return mounted{std: router}
}

func rawFiber(ask asker) mounted {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post(path, func(c *fiber.Ctx) error {
		a := ask(c.UserContext(), c.Get(keyHeader), c.Body)
		if a.isReplay {
			c.Set(marker, "true")
		}
		c.Set(fiber.HeaderContentType, mediaType)
		return c.Status(a.status).Send(a.body)
	})
	app.Handler() // builds the routes
	return mounted{fast: app.Server()}
}
