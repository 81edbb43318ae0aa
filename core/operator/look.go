package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/recordname"
)

// errNoRoute says that keys are per route, and the operator has named none.
var errNoRoute = errors.New(`idem: operator: Task.Kind must be the method and path, such as "POST /refunds", because Key.PerRoute is set`)

// Look returns what the store knows of a request or task, under whichever of its names the record is. If there is none, the State is
// Absent and the Name is the one that a new record would get. The Key of a request has no quotes.
func (o *Operator) Look(ctx context.Context, task core.Task) (found driver.Record, err error) {
	isPerRoute := !slices.ContainsFunc(o.namings, func(n recordname.Naming) bool { return !n.PerRoute })
	if isPerRoute && task.Kind == "" {
		return driver.Record{}, errNoRoute
	}
	for i, naming := range o.namings {
		seen, err := o.store.Look(ctx, nameOf(naming, task))
		if err != nil {
			return driver.Record{}, err
		}
		if i == 0 || found.State == driver.Absent {
			found = seen
		}
		if seen.State != driver.Absent && !isReleased(&seen) {
			return seen, nil
		}
	}
	return found, nil
}

// isReleased reports whether the record is all that remains of claims under which nothing ran. A request leaves one under its own
// name when it finds its record under an earlier name.
func isReleased(seen *driver.Record) bool {
	return seen.State == driver.Failed && seen.Free && seen.Attempt == 0
}

// nameOf returns the name of the record of a request or task.
func nameOf(n recordname.Naming, task core.Task) [32]byte {
	method, path, isRoute := strings.Cut(task.Kind, " ")
	if isRoute || task.Kind == "" {
		return n.OfRequest(task.Scope, task.Key, method, path)
	}
	return n.OfTask(task.Scope, task.Key, task.Kind)
}

// Filter selects records. The zero value selects all of the store, also those of other engines.
type Filter struct {
	Scope  string         // "": every scope
	States []driver.State // nil: every state
	MinAge time.Duration  // since the claim; selects no record without a claim if it is not 0
}

// Scan calls found for each record that the filter selects, in no order, until found returns false: see [driver.Inspector].
func (o *Operator) Scan(ctx context.Context, filter Filter, found func(driver.Record) bool) error {
	goesOn := true
	visit := func(seen driver.Record) bool {
		goesOn = found(seen)
		return goesOn
	}
	for _, prefix := range o.prefixes(filter.Scope) {
		of := driver.Filter{Scope: prefix, States: filter.States, MinAge: filter.MinAge}
		if err := o.store.Scan(ctx, of, visit); err != nil || !goesOn {
			return err
		}
	}
	return nil
}

// prefixes returns the first bytes of the names of a scope, one for each secret, or one nil for every scope.
func (o *Operator) prefixes(scope string) (all [][]byte) {
	if scope == "" {
		return [][]byte{nil}
	}
	known := map[[driver.ScopeBytes]byte]bool{}
	for _, naming := range o.namings {
		if prefix := naming.Scope(scope); !known[prefix] {
			known[prefix] = true
			all = append(all, prefix[:])
		}
	}
	return all
}
