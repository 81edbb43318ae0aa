package main

import (
	"log"
	"net/http"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	idem "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func main() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	var made atomic.Int64
	router := gin.Default()
	router.Use(idem.Gin(engine))
	router.POST("/payments", func(c *gin.Context) {
		c.String(http.StatusCreated, "payment %d\n", made.Add(1))
	})
	log.Fatal(router.Run("127.0.0.1:8080"))
}
