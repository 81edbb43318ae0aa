package proxy

import (
	"context"
	"net/http"
	"time"
)

// Health returns a handler for the probes of an orchestrator. GET /live is 200 while the process serves. GET /ready is 200 while
// ready returns nil, and 503 otherwise; ready gets a second. ready must be safe for concurrent use. Serve Health on a listener of
// its own, since all paths of the proxy's listener belong to the upstream.
func Health(ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("live\n")) })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := ready(ctx); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}
