package model

import (
	"bytes"
	"context"
	"errors"
	"reflect"

	"github.com/go-idem/idem/core/driver"
)

// apply sends a call to a store and returns the store's answer in the form of the model.
func apply(ctx context.Context, s driver.Store, c Call) (a Answer) {
	switch c.Verb {
	case Begin:
		a.Entry, a.Err = s.Begin(ctx, c.Claim)
	case Extend:
		a.Err = s.Extend(ctx, c.Claim)
	case Complete:
		a.Err = s.Complete(ctx, c.Claim, []byte(c.Outcome))
	case Fail:
		a.Err = s.Fail(ctx, c.Claim, driver.Failure{NoEffects: c.NoEffects, NotRun: c.NotRun})
	}
	switch {
	case errors.Is(a.Err, driver.ErrGone):
		a.Err = driver.ErrGone
	case errors.Is(a.Err, driver.ErrLost):
		a.Err = driver.ErrLost
	}
	return a
}

// equalAnswers reports whether two answers are equal.
func equalAnswers(a, b Answer) bool {
	x, y := a.Entry, b.Entry
	outcomes := bytes.Equal(x.Outcome, y.Outcome)
	x.Outcome, y.Outcome = nil, nil
	return outcomes && a.Err == b.Err && reflect.DeepEqual(x, y)
}
