package core

import (
	"context"

	"github.com/go-idem/idem/core/internal/digest"
)

// Names of records are hashes under Config.Secret. While Config.PreviousSecrets lists others, or Key.PerRouteChanged is set, a
// record may lie under another name. An engine claims its own name first, and looks at the others then. Of two processes that
// know each other's names, at least one sees the other's claim: each has made its own before it looked.

// naming is one way to name records.
type naming struct {
	hasher   digest.Hasher
	perRoute bool
}

// recordName names the record of a key, and of a key on one route when the route is given.
func recordName(h digest.Hasher, scope, key string, route ...string) [32]byte {
	return h.Sum(nil, append([]string{"idem key 1", scope, key}, route...)...)
}

// namings returns the ways to name records that a config knows, its own first.
func namings(cfg *Config) (all []naming) {
	routes := []bool{cfg.Key.PerRoute}
	if cfg.Key.PerRouteChanged {
		routes = append(routes, !cfg.Key.PerRoute)
	}
	for _, secret := range append([][]byte{cfg.Secret}, cfg.PreviousSecrets...) {
		hasher := digest.New(secret)
		for _, perRoute := range routes {
			all = append(all, naming{hasher, perRoute})
		}
	}
	return all
}

// record names the record of a request, or of a message, whose name has no route.
func (n naming) record(scope, key string, req *Request, isTask bool) [32]byte {
	switch {
	case isTask:
		return recordName(n.hasher, scope, key, req.Method)
	case n.perRoute:
		return recordName(n.hasher, scope, key, req.Method, req.Path)
	}
	return recordName(n.hasher, scope, key)
}

// enclosing returns the keeper of a run around ctx that is one of the record of a request or a message, under whatever name;
// nil without one. To look for a previous name in the store would be to meet the run's own claim.
func (e *Engine) enclosing(ctx context.Context, scope, key string, req *Request, isTask bool) (k *keeper) {
	if placeOf(ctx) == nil {
		return nil
	}
	for i := 0; k == nil && i < len(e.namings); i++ {
		k = enclosing(ctx, e.namings[i].record(scope, key, req, isTask))
	}
	return k
}
