package inspect

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// act is one of the things that an operator can do with a record.
type act struct {
	Name, Label string
	Consequence string
	NeedsKey    bool // the record's name is not enough
	HasResponse bool
	states      []driver.State
	do          func(*operator.Operator, context.Context, operator.By, core.Task, driver.Record, *core.Response) error
}

// acts are all acts, in the order in which a record shows them. An act that is about one request needs its key: the store
// has only a hash of it, and package operator checks that the record is the one of the key.
var acts = []*act{{
	Name: "resolve", Label: "It has happened", NeedsKey: true, HasResponse: true, states: []driver.State{driver.Unknown},
	Consequence: "The same request gets the response that you give here, and the handler does not run again.",
	do:          (*operator.Operator).Resolve,
}, {
	Name: "not-done", Label: "It has not happened", NeedsKey: true, states: []driver.State{driver.Unknown},
	Consequence: "The next time that the same request comes, the handler runs. " +
		"If the operation has happened after all, it happens again.",
	do: (*operator.Operator).Resolve,
}, {
	Name: "release", Label: "Free the key", NeedsKey: true, states: []driver.State{driver.Unknown, driver.Failed},
	Consequence: "The record is forgotten with the results of its steps. The next request under the key is new and runs, " +
		"also one with another body. Use it if the operation has not happened.",
	do: func(o *operator.Operator, ctx context.Context, by operator.By, task core.Task, seen driver.Record, _ *core.Response) error {
		return o.Release(ctx, by, task, seen)
	},
}, {
	Name: "forget", Label: "Forget the record",
	states: []driver.State{driver.Unknown, driver.Failed, driver.Completed, driver.Expired},
	Consequence: "The record is deleted. The next request under the key is new and runs, so an operation that has happened " +
		"happens again. Processes with Keep.LocalReplays replay the outcome for up to a minute more.",
	do: func(o *operator.Operator, ctx context.Context, by operator.By, task core.Task, seen driver.Record, _ *core.Response) error {
		return o.Forget(ctx, by, task, seen)
	},
}}

// fits reports whether the act can be done with a record as it was seen.
func (a *act) fits(seen *driver.Record, task core.Task) bool {
	return slices.Contains(a.states, seen.State) && (task.Key != "" || !a.NeedsKey)
}

// choices returns the acts that fit a record.
func choices(seen *driver.Record, task core.Task) (fitting []*act) {
	for _, a := range acts {
		if a.fits(seen, task) {
			fitting = append(fitting, a)
		}
	}
	return fitting
}

// auditError says that an act was not done, because the audit has failed. Handler wraps the errors of the audit in it, so that do
// can tell them from errors of the store, after which the act may have been done.
type auditError struct{ error }

// Unwrap returns the error of the audit.
func (e *auditError) Unwrap() error { return e.error }

// readOnly is what a request without an actor is told.
const readOnly = "This page is read-only for you: Options.Actor names nobody who asks. Nothing was changed."

// confirm shows the record once more, and what the act would do. The form that it shows names the version of the record, which
// act compares: the operator decides about what is on the page, and the record may change while the page is read.
func (p *page) confirm(r *http.Request) *view {
	if p.actor(r) == "" {
		return refusal(http.StatusForbidden, readOnly)
	}
	v := p.record(r)
	if v.Found == nil {
		return v
	}
	return p.ask(v, r.PostForm.Get("act"), "")
}

// ask makes a view of a record ask for an act. problem says why it asks again. If the act does not fit the record, the view says
// so and its Act stays nil.
func (p *page) ask(v *view, name, problem string) *view {
	for _, a := range v.Choices {
		if a.Name == name {
			v.Act, v.template, v.Title = a, "confirm", a.Label
		}
	}
	if v.Act == nil {
		return refuseOver(v, "The record is "+string(v.Found.State)+", so this cannot be done with it. Nothing was changed.")
	}
	if v.Problem = problem; problem != "" {
		v.status = http.StatusBadRequest
	}
	return v
}

// refuseOver makes a view say that the record is not as it was. It shows the new state.
func refuseOver(v *view, problem string) *view {
	v.status, v.Problem = http.StatusConflict, problem
	return v
}

// hasChanged is shown when the record is not the one that was confirmed.
const hasChanged = "Nothing was changed: the record is no longer as the page before has shown it, or its run is in progress. " +
	"This is its state now."

// act does what somebody has confirmed, if the record is as the confirm page has shown it. A missing reason or a response that
// cannot be read brings the same page back with what was typed. Package operator compares the record once more when it acts, so a
// change between this look and the act is noticed as well.
func (p *page) act(r *http.Request) *view {
	who, form := p.actor(r), r.PostForm
	if who == "" {
		return refusal(http.StatusForbidden, readOnly)
	}
	task, seen, err := p.lookFor(r)
	v := p.show(r, task, seen, err)
	if err != nil {
		return v
	}
	if string(seen.State) != form.Get("state") || seen.Version != form.Get("version") || v.Found == nil {
		v.Choices = nil
		return refuseOver(v, hasChanged)
	}
	by := operator.By{Who: who, Why: strings.TrimSpace(form.Get("why"))}
	v.Why, v.Response = by.Why, form.Get("response")
	if by.Why == "" {
		return p.ask(v, form.Get("act"), "Say why: the audit needs it. Nothing was changed.")
	}
	if v = p.ask(v, form.Get("act"), ""); v.Act == nil {
		return v
	}
	outcome, problem := p.outcomeOf(v)
	if problem != "" {
		return p.ask(v, v.Act.Name, problem+". Nothing was changed.")
	}
	return p.do(r, v, by, outcome)
}

// do does an act, which goes on if the browser leaves, and shows what became of the record. An error of the store leaves it open
// whether the act was done. The page says that, because the operator must look before another attempt.
func (p *page) do(r *http.Request, v *view, by operator.By, outcome *core.Response) *view {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), callTimeout)
	defer cancel()
	err := v.Act.do(p.operator, ctx, by, v.Task, *v.Found, outcome)
	if _, ok := errors.AsType[*auditError](err); ok {
		return refusal(http.StatusServiceUnavailable, "Nothing was changed, because the act could not be audited: "+err.Error())
	}
	isStale := errors.Is(err, core.ErrNotUnknown) || errors.Is(err, operator.ErrChanged)
	if err != nil && !isStale {
		return refusal(http.StatusServiceUnavailable, "The store does not respond, or refuses. "+
			"The act may have been done all the same: look at the record before you try again. "+err.Error())
	}
	_, seen, lookErr := p.look(ctx, nameOf(*v.Found), v.Task, "")
	now := p.show(r.WithContext(ctx), v.Task, seen, lookErr)
	if isStale {
		return refuseOver(now, hasChanged)
	}
	if now.Done = "Done: " + v.Act.Label + ". " + v.Act.Consequence; lookErr == nil {
		now.status, now.Problem = http.StatusOK, ""
	}
	return now
}

// outcomeOf returns the response of a form, with the ends of lines that its author has typed, or what is wrong with it. Other
// acts have none.
func (p *page) outcomeOf(v *view) (*core.Response, string) {
	if !v.Act.HasResponse {
		return nil, ""
	}
	outcome, err := operator.ParseOutcome([]byte(strings.ReplaceAll(v.Response, "\r\n", "\n"))) // browsers send \r\n for \n
	if err != nil {
		return nil, "The response cannot be read: " + err.Error()
	}
	if len(outcome.Body) > p.longest {
		return nil, "The body is longer than the " + strconv.Itoa(p.longest) + " bytes of Keep.MaxBody"
	}
	return outcome, ""
}
