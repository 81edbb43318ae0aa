package adapters_test

import (
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// A handler for unknown routes may be one that has effects, as a proxy's: its own decision counts, and so does a response that is not
// a router's.
func TestAHandlerOfUnknownRoutesMayKeepItsAnswer(t *testing.T) {
	for name, h := range map[string]gin.HandlerFunc{
		"it decides so": func(c *gin.Context) { core.Decide(c, core.Keep); c.String(404, "from behind") },
		"201":           func(c *gin.Context) { c.String(201, "from behind") },
	} {
		t.Run(name, func(t *testing.T) {
			router := ginRoutes(adaptertest.NewEngine(t))
			router.NoRoute(h)
			url := adaptertest.NewServer(t, router)
			for n := range 2 {
				r := adaptertest.Submit(t, url+"/elsewhere", "B")
				assert.Equal(t, "from behind", r.Body)
				assert.Equal(t, n == 1, r.Replayed())
			}
		})
	}
}
