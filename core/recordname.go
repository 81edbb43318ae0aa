package core

import (
	"context"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/digest"
)

// naming is one way to name records. A name is a hash under Config.Secret. While Config.PreviousSecrets lists other secrets, or
// Key.PerRouteChanged is set, a record may have a name under another naming.
type naming struct {
	hasher   digest.Hasher
	perRoute bool
}

// recordName returns the name of the record of a key, or of a key on one route if route is given. The name begins with a hash of
// the scope alone, so that an operator can find all records of one caller; see driver.ScopeBytes.
func recordName(h digest.Hasher, scope, key string, route ...string) (name [32]byte) {
	ofScope := h.Sum(nil, "idem scope 2", scope)
	ofKey := h.Sum(nil, append([]string{"idem key 2", scope, key}, route...)...)
	copy(name[:driver.ScopeBytes], ofScope[:])
	copy(name[driver.ScopeBytes:], ofKey[:])
	return name
}

// namings returns all namings of a config: first the one for new records, then those under which it looks for earlier ones.
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

// record returns the name of the record of a request, or of a task, whose kind is the Method of req and whose name has no path.
func (n naming) record(scope, key string, req *Request, isTask bool) [32]byte {
	switch {
	case isTask:
		return recordName(n.hasher, scope, key, req.Method)
	case n.perRoute:
		return recordName(n.hasher, scope, key, req.Method, req.Path)
	}
	return recordName(n.hasher, scope, key)
}

// enclosing returns the run that encloses ctx and has the record of this request or task, under any naming. It
// returns nil if there is none. Such a run must be found before the store is called, since the store would report the run's
// own claim as in progress.
func (e *Engine) enclosing(ctx context.Context, scope, key string, req *Request, isTask bool) (around *run) {
	if placeOf(ctx) == nil {
		return nil
	}
	for i := 0; around == nil && i < len(e.namings); i++ {
		around = enclosing(ctx, e.namings[i].record(scope, key, req, isTask))
	}
	return around
}
