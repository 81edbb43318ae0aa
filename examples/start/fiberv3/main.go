package main

import (
	"fmt"
	"log"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func main() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	var made atomic.Int64
	app := fiber.New()
	app.Use(idem.Fiber(engine))
	app.Post("/payments", func(c fiber.Ctx) error {
		return c.Status(fiber.StatusCreated).SendString(fmt.Sprintf("payment %d\n", made.Add(1)))
	})
	log.Fatal(app.Listen("127.0.0.1:8080"))
}
