package hangtest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEveryCallThatCanHangIsFound(t *testing.T) {
	assert.ElementsMatch(t, []string{"Transport.RoundTrip", "WithKey"}, exported(t, "../../adapters/client"))
	assert.Contains(t, exported(t, "../../core/redisstore"), "Store.Begin")
}

func TestAGoroutineIsFoundByThePackageOfItsFunctions(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := &http.Server{Addr: "127.0.0.1:0"}
	go func() { <-ctx.Done(); _ = server.Close() }()
	go func() { _ = server.ListenAndServe() }()
	assert.Eventually(t, func() bool { return goroutineIn([]string{"net/http"}) != "" }, 5*time.Second, time.Millisecond)
	cancel()
	NoGoroutine(t, 5*time.Second, "net/http")
}
