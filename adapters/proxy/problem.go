package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"

	"github.com/go-idem/idem/core"
)

// The problems of a proxy, which docs/problems.md explains. A problem without a SafeNewKey says that the proxy cannot tell.
var (
	isUnsafe = false

	unreachable = core.Problem{
		Code: "upstream-unreachable", Status: http.StatusBadGateway, Title: "Upstream unreachable",
		Detail: "The service could not be reached, so nothing was done. Send the request again later with the same key.",
	}
	cut = core.Problem{
		Code: "upstream-cut", Status: http.StatusBadGateway, Title: "No whole response of the upstream",
		Detail: "The connection to the service broke, so the outcome of this request is not known. Send it again later with the same " +
			"key, and never with another one.",
		SafeNewKey: &isUnsafe,
	}
	timedOut = core.Problem{
		Code: "upstream-timeout", Status: http.StatusGatewayTimeout, Title: "Upstream did not respond in time",
		Detail: "The service did not respond in time, so the outcome of this request is not known. Send it again later with the same " +
			"key, and never with another one.",
		SafeNewKey: &isUnsafe,
	}
)

// fail implements ReverseProxy.ErrorHandler: the upstream has no whole response. It decides what becomes of the key.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	x, problem := exchangeOf(r.Context()), cut
	switch timeout := net.Error(nil); {
	case !x.hasConnection.Load():
		problem = unreachable
		core.Decide(r.Context(), core.Release) // The store remembers earlier runs that may have had effects.
	case errors.As(err, &timeout) && timeout.Timeout() || errors.Is(context.Cause(r.Context()), errBodyTimeout):
		problem = timedOut
		core.Decide(r.Context(), core.LeaveUnknown)
	default:
		core.Decide(r.Context(), core.LeaveUnknown)
	}
	p.cfg.ErrorLog.Printf("idem: proxy: %s: %v", problem.Code, err)
	p.respond(w, problem)
}

// respond sends a problem in the form that the engine is configured to give its own problems.
func (p *Proxy) respond(w http.ResponseWriter, problem core.Problem) {
	problem.Type = p.engine.Problems.BaseURL + problem.Code
	if render := p.engine.Problems.Render; render != nil {
		if response := render(problem); response != nil {
			for _, f := range response.Header {
				w.Header().Add(f.Name, f.Value)
			}
			w.WriteHeader(response.Status)
			_, _ = w.Write(response.Body)
			return
		}
	}
	body, _ := json.Marshal(problem) // strings and an int: cannot fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(problem.Status)
	_, _ = w.Write(body)
}
