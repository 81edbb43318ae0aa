package core

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/internal/recordname"
)

// Task is an operation that is no HTTP request: a message, a job, a gRPC call, a command. [Engine.DoTask] runs it.
type Task struct {
	// Kind says in one word, without spaces, what sort of operation this is, such as "JOB" or a gRPC method. Operations of two
	// kinds never share a record, and no task shares one with a request. Messages have the Kind of package consumer.
	Kind string

	// Scope says who the key belongs to, as Config.Scope does for requests. It is the Path of the task's Events: hooks see it.
	Scope string

	// Key names the operation in its scope and kind. It is used as it is: Config.Key does not apply.
	Key string

	// Route is the Route of the task's Events: a name that many tasks share, such as that of a queue. Messages have their group.
	Route string

	// Input makes two tasks with one key the same. It may be nil. DoTask does not keep it.
	Input []byte

	// OnWait, when set, is called before the task waits for a run elsewhere (Config.Wait), and done after that. A program that
	// bounds how many of its tasks use the store lets another one in meanwhile.
	OnWait func() (done func())

	// Fence is for [Engine.Resolve] alone, which then settles the run that has this fence and no other run, and revives no task.
	// Hooks.Unknown and driver.Inspector report it. With -1 Resolve settles no run, and only revives a task that is dead. By
	// default, 0, Resolve settles the run, or revives the task, that it finds.
	Fence int64
}

// The statuses that outcomes of tasks have for the engine.
const (
	statusStep     = 200 // of the result of a step
	statusDead     = 500 // Resolve revives the task
	statusReleased = 503 // not kept
)

var errKind = errors.New("idem: Task.Kind must be one word: without it the key of a task could be the key of a request")

// DoTask is [Engine.Do] for an operation that is no request: it runs each task at most once at a time, keeps what run returns,
// and hands that to every retry. Config.Key, Config.Scope, Config.Fingerprint and Config.Limits.Quota do not apply; everything
// else does. It is safe for concurrent use.
//
// A task without a scope or a key is refused, by Result.Problem. Inside a run of the same task Result is Bypassed: the caller
// runs it as a part of that run. The Response has no other header fields than run and the engine have set, and must not be
// modified. Its Status counts for Config.Keep.Policy, unless run has called [Decide]. A response that is kept with Status 500
// says that the task is dead: its record is COMPLETED, and only [Engine.Resolve] revives it.
//
// The first 200 bytes of an error of run are kept as the cause of the failure, and DoTask returns the error. If run has
// decided on [Release], nothing has run as far as attempts are concerned: none is used up, unless a [Step] was kept. The only
// other errors of DoTask say that Task.Kind is not one word, or that run has returned no valid response. A store that is unavailable
// is a refusal.
func (e *Engine) DoTask(ctx context.Context, task Task, run func(context.Context) (*Response, error)) (Result, error) {
	_, _, isTask := recordname.ParseKind(task.Kind)
	switch {
	case !isTask:
		return Result{}, errKind
	case task.Scope == "":
		return e.ended(ctx, task.request(), e.refusals.refuse(codeScopeMissing, 0)), nil
	case task.Key == "":
		return e.ended(ctx, task.request(), e.refusals.refuse(codeKeyMissing, 0)), nil
	}
	op := e.newTask(ctx, &task)
	if k := e.enclosing(ctx, task.Scope, task.Key, &op.req, true); k != nil {
		return op.ended(op.nestedIn(k)), nil
	}
	return op.doTask(run)
}

// request returns the request that stands for a task. The kind takes the place of a method, and the scope that of a path.
func (t *Task) request() *Request {
	return &Request{Method: t.Kind, Path: t.Scope, Route: t.Route, Header: func(string) []string { return nil }}
}

// newTask returns the operation of a task.
func (e *Engine) newTask(ctx context.Context, task *Task) *operation {
	op := &operation{onWait: task.OnWait}
	op.keyed = keyed{engine: e, ctx: ctx, req: *task.request(), identity: identity{task.Scope, task.Key}, body: task.Input, isTask: true}
	op.claim.Key = recordName(e.namings[0], task.Scope, task.Key, &op.req, true)
	op.claim.Fingerprint = (&FingerprintConfig{}).of(e.hasher, algorithm{algorithmBase}, &op.req, task.Input)
	return op
}

// nestedIn is the result of a task inside a run of the same task, around.
func (op *operation) nestedIn(around *run) Result {
	if err := op.engine.checkNesting(around.engine); err != nil {
		op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
		result := op.refuse(codeNestedEngine, 0)
		result.Err = err
		return result
	}
	return Result{Bypassed: true, Attempt: around.claim.Attempt}
}

// doTask takes a task through its life.
func (op *operation) doTask(run handler) (Result, error) {
	op.handler = func(ctx context.Context) (*Response, error) {
		response, err := run(ctx)
		if decision, _ := op.run.ownDecision(); err != nil && decision == Release {
			op.run.releaseErr = err
			return &Response{Status: statusReleased}, nil
		}
		return response, err
	}
	panicked := true
	defer op.endPanicking(&panicked)
	result, err := op.claimAndRun()
	panicked = false
	result.Attempt, result.Decision = op.claim.Attempt, op.run.disposed
	if result.Problem != "" {
		return result, nil
	}
	if op.found != nil && !result.Replayed { // otherwise another run has stored its own outcome meanwhile
		result.Replayed, result.Response = true, op.found
	}
	return result, cmp.Or(err, op.run.releaseErr)
}

// waitOutside is wait, with Task.OnWait around it.
func (op *operation) waitOutside(left time.Duration) (again bool) {
	if op.onWait != nil {
		defer op.onWait()()
	}
	return op.wait(left)
}
