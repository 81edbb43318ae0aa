package core

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
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

	// Input makes two tasks with one key the same. It may be nil. DoTask does not keep it.
	Input []byte

	// OnWait, when set, is called before the task waits for a run elsewhere (Config.Wait), and done after that. A program that
	// bounds how many of its tasks use the store lets another one in meanwhile.
	OnWait func() (done func())
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
// says that the task is dead; [Engine.Resolve] revives it.
//
// The first 200 bytes of an error of run are kept as the cause of the failure, and DoTask returns the error. If run has
// decided on [Release], nothing has run as far as attempts are concerned: none is used up, unless a [Step] was kept. The only
// other error of DoTask says that Task.Kind is not one word. A store that is unavailable is a refusal.
func (e *Engine) DoTask(ctx context.Context, task Task, run func(context.Context) (*Response, error)) (Result, error) {
	switch {
	case task.Kind == "" || strings.Contains(task.Kind, " "):
		return Result{}, errKind
	case task.Scope == "":
		return e.refusals.refuse(codeScopeMissing, 0), nil
	case task.Key == "":
		return e.refusals.refuse(codeKeyMissing, 0), nil
	}
	op := e.newTask(ctx, &task)
	if k := e.enclosing(ctx, task.Scope, task.Key, &op.req, true); k != nil {
		return op.nestedIn(k), nil
	}
	return op.doTask(run)
}

// taskRun is a task on its way through the engine.
type taskRun struct {
	Task
	decision Disposition // what became of the key after the run
	released error       // of a run that has decided on Release
}

// newTask returns the operation of a task. The kind takes the place of a method, and the scope that of a path.
func (e *Engine) newTask(ctx context.Context, task *Task) *operation {
	req := Request{Method: task.Kind, Path: task.Scope, Header: func(string) []string { return nil }}
	op := &operation{
		engine: e, ctx: ctx, req: req, identity: identity{task.Scope, task.Key}, body: task.Input, task: &taskRun{Task: *task},
	}
	op.claim.Key = e.namings[0].record(task.Scope, task.Key, &op.req, true)
	op.claim.Fingerprint = (&FingerprintConfig{}).of(e.hasher, algorithm{algorithmBase}, &op.req, task.Input)
	return op
}

// nestedIn is the result of a task inside a run of the same task, which k keeps alive.
func (op *operation) nestedIn(k *run) Result {
	if err := op.engine.checkNesting(k.op.engine); err != nil {
		op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
		result := op.engine.refusals.refuse(codeNestedEngine, 0)
		result.Err = err
		return result
	}
	return Result{Bypassed: true, Attempt: k.op.claim.Attempt}
}

// doTask claims the task, runs it, and settles it.
func (op *operation) doTask(run handler) (Result, error) {
	op.handler = func(ctx context.Context) (*Response, error) {
		response, err := run(ctx)
		if decision, _ := op.run.ownDecision(); err != nil && decision == Release {
			op.task.released = err
			return &Response{Status: statusReleased}, nil
		}
		return response, err
	}
	result, err := op.begin()
	result.Attempt, result.Decision = op.claim.Attempt, op.task.decision
	if result.Problem != "" {
		return result, err
	}
	if err == nil && op.found != nil {
		result.Replayed, result.Response = true, op.found
	}
	return result, cmp.Or(err, op.task.released)
}

// released is how the claim of r ends when its handler had no effects. The attempt of a task is given back: it was not
// handled, as when a database is unavailable.
func (op *operation) released(r *Response) driver.Failure {
	failure := driver.Failure{Cause: "status " + strconv.Itoa(r.Status), NoEffects: true, NotRun: op.task != nil}
	if op.task != nil && op.task.released != nil {
		failure.Cause = truncate(op.task.released.Error())
	}
	return failure
}

// waitOutside is wait. A task gives up its place at the store meanwhile.
func (op *operation) waitOutside(left time.Duration) (again bool) {
	if op.task != nil && op.task.OnWait != nil {
		defer op.task.OnWait()()
	}
	return op.wait(left)
}
