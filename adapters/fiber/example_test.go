package idem_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v2"

	idem "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	made := 0
	app := fiber.New()
	app.Post("/payments", idem.Fiber(engine), func(c *fiber.Ctx) error {
		made++
		return c.Status(fiber.StatusCreated).SendString(fmt.Sprint("payment ", made))
	})
	app.Get("/payments", idem.Status(engine)) // what became of a key

	for _, key := range []string{"order-7", "order-7", "order-8"} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", key)
		response, err := app.Test(r)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		fmt.Println(key, response.StatusCode, response.Header.Get("Idempotent-Replayed"), string(body))
	}
	// Output:
	// order-7 201  payment 1
	// order-7 201 true payment 1
	// order-8 201  payment 2
}
