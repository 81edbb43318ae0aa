package inspect

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// noRecord is shown where there is no record, since people may look for it with the wrong engine.
const noRecord = "No record has this name. No request with it came, or its retention is over. " +
	"Every name differs under another Secret, and another prefix, schema or scope has records of its own."

// named shows a record by the name that a list, a log or a hook has.
func (p *page) named(r *http.Request) *view {
	task, seen, err := p.look(r.Context(), r.Form.Get("name"), core.Task{}, "")
	return p.show(r, task, seen, err)
}

// record shows a record by what somebody has typed.
func (p *page) record(r *http.Request) *view {
	task, seen, err := p.lookFor(r)
	return p.show(r, task, seen, err)
}

// lookFor looks for the record that a form names.
func (p *page) lookFor(r *http.Request) (core.Task, driver.Record, error) {
	form := r.PostForm
	task := core.Task{Kind: form.Get("kind"), Scope: form.Get("scope"), Key: form.Get("key")}
	return p.look(r.Context(), form.Get("name"), task, form.Get("instance"))
}

// errNoName says that a form names no record.
var errNoName = errors.New("type a key, the instance of a problem, or the name of a record")

// look returns the record of a task, of the instance of a problem, or of a name, and the task if that has a key. A key counts
// before an instance, and an instance before a name. Without a key the task is empty, so no act that needs a key is offered.
func (p *page) look(ctx context.Context, name string, task core.Task, instance string) (core.Task, driver.Record, error) {
	if task.Key != "" {
		seen, err := p.operator.Look(ctx, task)
		return task, seen, err
	}
	if instance != "" {
		seen, err := p.operator.Find(ctx, task.Scope, instance)
		return core.Task{}, seen, err
	}
	parsed, ok := driver.ParseRecordName(name)
	if !ok {
		return task, driver.Record{}, errNoName
	}
	seen, err := p.store.Look(ctx, parsed)
	return core.Task{}, seen, err
}

// show shows a record that was looked for. Found is nil in the view if there is no record or the store did not respond.
func (p *page) show(r *http.Request, task core.Task, seen driver.Record, err error) *view {
	v := &view{status: http.StatusOK, template: "record", Title: "Record", Task: task}
	switch {
	case errors.Is(err, errNoName), errors.Is(err, operator.ErrNotInstance):
		return refusal(http.StatusBadRequest, err.Error())
	case err != nil:
		return refusal(http.StatusServiceUnavailable, unreached(err))
	case seen.State == driver.Absent:
		v.status, v.Problem = http.StatusNotFound, noRecord
		return v
	}
	v.Found, v.Choices = &seen, choices(&seen, task)
	v.Cause = quoted(seen.Cause)
	if seen.Steps > 0 {
		p.addSteps(r, v)
	}
	return v
}

// addSteps adds the finished steps, with their results if the request may see them. Results can be personal data, so they are
// removed from the view before the template sees it.
func (p *page) addSteps(r *http.Request, v *view) {
	steps, err := p.operator.Steps(r.Context(), *v.Found)
	if err != nil {
		v.Problem = cmp.Or(v.Problem, unreached(err))
		return
	}
	v.Steps, v.Revealed = steps, p.Reveal != nil && p.Reveal(r)
	if !v.Revealed {
		for i := range v.Steps {
			v.Steps[i].Result = nil
		}
	}
}

// quoted returns a text of others so that no control character of it hides another one. The template escapes HTML, and not those.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}
