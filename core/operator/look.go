package operator

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/recordname"
)

// errNoRoute says that keys are per route, and the operator has named none.
var errNoRoute = errors.New(`idem: operator: Task.Kind must be the method and path, such as "POST /refunds", because keys are per route`)

// ErrNotInstance says that a text is not the instance of a problem.
var ErrNotInstance = errors.New(`idem: operator: this is not the instance of a problem, such as "urn:idem:" and 32 characters`)

// Look returns what the store knows of a request or task, under whichever of its names the record is. If there is none, the State
// is Absent and the Name is the one that a new record would get. The Key of a request has no quotes.
func (o *Operator) Look(ctx context.Context, task core.Task) (found driver.Record, err error) {
	names, lacksRoute := o.names(task)
	for i, name := range names {
		seen, err := o.store.Look(ctx, name)
		if err != nil {
			return driver.Record{}, err
		}
		if i == 0 || found.State == driver.Absent {
			found = seen
		}
		if seen.State != driver.Absent && !seen.IsReleased() {
			return seen, nil
		}
	}
	if lacksRoute {
		return driver.Record{}, errNoRoute
	}
	return found, nil
}

// Find returns the record that the instance of a problem names. With the scope of the caller that is one call of the store for
// each secret; with scope "" Find scans the store. If there is no such record, the State is Absent.
func (o *Operator) Find(ctx context.Context, scope, instance string) (found driver.Record, err error) {
	part, ok := recordname.ParseInstance(instance)
	if !ok {
		return found, ErrNotInstance
	}
	found.State = driver.Absent
	if scope == "" {
		err = o.Scan(ctx, Filter{}, func(seen driver.Record) bool {
			if [len(part)]byte(seen.Name[driver.ScopeBytes:]) == part {
				found = seen
			}
			return found.State == driver.Absent
		})
		return found, err
	}
	for _, prefix := range o.prefixes(scope) {
		found, err = o.store.Look(ctx, [32]byte(append(prefix, part[:]...)))
		if err != nil || found.State != driver.Absent {
			return found, err
		}
	}
	return found, nil
}

// names returns the names that the record of a request or task may have, first the one that a new record would get. lacksRoute
// says that there are more, which are per route, and that the operator has named no route.
func (o *Operator) names(task core.Task) (names [][32]byte, lacksRoute bool) {
	method, path, isTask := recordname.ParseKind(task.Kind)
	for _, naming := range o.namings {
		switch {
		case isTask:
			names = append(names, naming.OfTask(task.Scope, task.Key, task.Kind))
		case naming.PerRoute && task.Kind == "":
			lacksRoute = true
		default:
			names = append(names, naming.OfRequest(task.Scope, task.Key, method, path))
		}
	}
	return names, lacksRoute
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
