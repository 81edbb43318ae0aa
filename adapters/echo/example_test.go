package idem_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	idem "github.com/go-idem/idem/adapters/echo"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	made := 0
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		made++
		return c.String(http.StatusCreated, fmt.Sprint("payment ", made))
	}, idem.Echo(engine))
	e.GET("/payments", idem.Status(engine)) // what became of a key

	for _, key := range []string{"order-7", "order-7", "order-8"} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Println(key, w.Code, w.Header().Get("Idempotent-Replayed"), w.Body)
	}
	// Output:
	// order-7 201  payment 1
	// order-7 201 true payment 1
	// order-8 201  payment 2
}
