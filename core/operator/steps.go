package operator

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/hidden"
)

// Step is a finished step of a run, with the result that the next run gets in place of doing the step again. When a step ended is
// not stored.
type Step struct {
	Name   string
	Bytes  int    // the length of what is stored
	Result []byte // as Config.Marshal has made it, which is JSON by default; nil with an Err
	Err    error  // the result cannot be read with the codecs of this engine
}

// Steps returns the finished steps of a record that was seen, sorted by name. A completed record has none, and neither has one
// whose next run does all steps again.
func (o *Operator) Steps(ctx context.Context, seen driver.Record) ([]Step, error) {
	stored, err := o.store.Steps(ctx, seen.Name)
	steps := make([]Step, 0, len(stored))
	for name, result := range stored {
		step := Step{Name: name, Bytes: len(result)}
		step.Result, step.Err = hidden.StepResult(o.engine, seen.Name, name, result)
		steps = append(steps, step)
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Name, b.Name) })
	return steps, err
}
