package adapters_test

import (
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// A handler for unknown routes may be one that has effects, as a proxy's: its own decision counts.
func TestAHandlerOfUnknownRoutesMayKeepItsAnswer(t *testing.T) {
	router := ginRoutes(adaptertest.NewEngine(t))
	router.NoRoute(func(c *gin.Context) {
		core.Decide(c, core.Keep)
		c.String(404, "from behind")
	})
	url := adaptertest.NewServer(t, router)
	for n := range 2 {
		r := adaptertest.Submit(t, url+"/elsewhere", "B")
		assert.Equal(t, "from behind", r.Body)
		assert.Equal(t, n == 1, r.Replayed())
	}
}
