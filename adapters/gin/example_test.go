package idem_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	idem "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	made := 0
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.POST("/payments", idem.Gin(engine), func(c *gin.Context) {
		made++
		c.String(http.StatusCreated, "payment %d", made)
	})
	router.GET("/payments", idem.Status(engine)) // what became of a key

	for _, key := range []string{"order-7", "order-7", "order-8"} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		fmt.Println(key, w.Code, w.Header().Get("Idempotent-Replayed"), w.Body)
	}
	// Output:
	// order-7 201  payment 1
	// order-7 201 true payment 1
	// order-8 201  payment 2
}
