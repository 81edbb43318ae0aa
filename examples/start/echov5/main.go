package main

import (
	"fmt"
	"log"
	"net/http"
	"sync/atomic"

	"github.com/labstack/echo/v5"

	idem "github.com/go-idem/idem/adapters/echov5"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func main() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	var made atomic.Int64
	e := echo.New()
	e.Use(idem.Echo(engine))
	e.POST("/payments", func(c *echo.Context) error {
		return c.String(http.StatusCreated, fmt.Sprintf("payment %d\n", made.Add(1)))
	})
	log.Fatal(e.Start("127.0.0.1:8080"))
}
