package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
)

// do is one call of an engine for one attempt of a client.
type do struct {
	name    string
	key     int
	variant int
	script  script
	process *process
	start   time.Duration

	// The history's lock guards these.
	counts  map[string]int // calls of hooks
	sent    map[string]int // calls to the store
	fence   int64          // of the claim under which the handler runs; 0 for none
	attempt int            // of that claim
	runs    int            // handlers that were started
	busy    time.Duration  // how long the handler ran
	isDeaf  bool           // a call to the store did not end with its context, so the do has no bound

	isInside    bool // of a run of the same message, which passes by
	isFound     bool // OnUnknown has returned an outcome
	mayOmitBody bool // the store, or the store of blobs, has not accepted the body of its outcome at once
	hasNoBlob   bool // the blob of the outcome could not be read
}

func (d *do) String() string { return d.name }

// kinds are the kinds of keys. Two keys of different kinds have different records.
var kinds = []string{"request", "task", "message"}

// kind returns the kind of the do's key.
func (d *do) kind() string { return kinds[d.key%len(kinds)] }

// record names the record of the do's key in a story.
func (d *do) record() string { return d.kind() + " " + strconv.Itoa(d.key) }

// input is the body of a request, or the input of a task.
func (d *do) input() []byte { return strconv.AppendInt([]byte("variant "), int64(d.variant), 10) }

// path is the path of a request. It is part of what makes two requests the same, whatever the options say.
func (d *do) path() string { return "/" + strconv.FormatBool(d.variant == 2) }

// isSameAs reports whether an engine may take two requests for the same.
func (d *do) isSameAs(other *do) bool {
	comparesBodies := !d.process.config.Fingerprint.Off || !other.process.config.Fingerprint.Off
	return d.variant == other.variant || d.kind() == "request" && !comparesBodies && d.path() == other.path()
}

// doKey is the key of a do in its context. The context of a batch has the dos of all messages.
type doKey struct{}

func dosOf(ctx context.Context) []*do { return ctx.Value(doKey{}).([]*do) }

// doOf returns the do to which a record belongs.
func doOf(ctx context.Context, key [32]byte) *do {
	return doOfRecord(ctx, string(driver.AppendRecordName(nil, key)))
}

// doOfRecord is doOf for the name of a record.
func doOfRecord(ctx context.Context, name string) *do {
	all := dosOf(ctx)
	if len(all) > 1 {
		key := messageRecords()[name]
		for _, d := range all {
			if d.key == key {
				return d
			}
		}
	}
	return all[0]
}

// newDo makes the do of a request to process p.
func (h *history) newDo(name string, key, variant int, s script, p *process) *do {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &do{
		name: name, key: key, variant: variant, script: s, process: p, start: h.now(), counts: map[string]int{}, sent: map[string]int{},
	}
	h.dos = append(h.dos, d)
	return d
}

// act is the life of one client.
func (h *history) act(number int, c *clientPlan) {
	time.Sleep(c.start)
	if c.isHTTP && len(c.attempts) > 0 {
		h.actHTTP(number, c)
		return
	}
	for i, a := range c.attempts {
		h.mu.Lock()
		p := h.processes[a.slot]
		h.mu.Unlock()
		d := h.newDo(fmt.Sprintf("client %d.%d", number+1, i+1), c.key, c.variant, a.script, p)
		if h.attempt(d, a.leaves) {
			return
		}
		time.Sleep(c.pause)
	}
}

// attempt sends one request and waits for its result, or for the death of the process. It reports whether the client has what it
// wants.
func (h *history) attempt(d *do, leaves time.Duration) (satisfied bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if leaves > 0 {
		timer := time.AfterFunc(leaves, cancel)
		defer timer.Stop()
	}
	finished := make(chan bool, 1)
	h.calls.Go(func() {
		defer cancel()
		finished <- h.send(ctx, d)
	})
	select {
	case satisfied = <-finished:
		return satisfied
	case <-d.process.death:
		return false
	}
}

// errHandler is the error and the panic of handlers.
var errHandler = errors.New("handler failed")

// send calls the engine and checks the result. It reports whether the client has a response that it need not ask for again.
func (h *history) send(ctx context.Context, d *do) (satisfied bool) {
	ctx = context.WithValue(ctx, doKey{}, []*do{d})
	panicked := true
	defer func() {
		if panicked {
			h.checkPanic(d, recover())
		}
		h.checkBound(d)
	}()
	satisfied = h.dispatch(ctx, d)
	panicked = false
	return satisfied
}

// dispatch calls the engine in the way of the do's kind.
func (h *history) dispatch(ctx context.Context, d *do) (satisfied bool) {
	run := func(ctx context.Context) (*core.Response, error) { return h.handle(ctx, d) }
	switch d.kind() {
	case "message":
		if d.script.isBatch {
			return h.dispatchBatch(ctx, d)
		}
		delivery := consumer.Consume(ctx, d.process.consumer, d.message(), func(ctx context.Context) (string, error) {
			r, err := h.handle(ctx, d)
			if err != nil || r.Status >= 400 {
				return "", errHandler
			}
			return string(r.Body), nil
		})
		return h.checkDelivery(d, &delivery)
	case "task":
		result, err := d.process.engine.DoTask(ctx, core.Task{Kind: "JOB", Scope: "scope", Key: d.record(), Input: d.input()}, run)
		return h.checkResult(d, &result, err)
	}
	result, err := d.process.engine.Do(ctx, d.request(), run)
	if result.Bypassed {
		_, _ = h.perform(ctx, d, nil)
	}
	return h.checkResult(d, &result, err)
}

// message is the do as a message.
func (d *do) message() consumer.Message {
	return consumer.Message{Group: "group", ID: d.record(), Payload: d.input()}
}

// request is the do as a request.
func (d *do) request() core.Request {
	return core.Request{
		Method: "POST", Path: d.path(),
		Header: func(name string) []string {
			if name == "Idempotency-Key" {
				return []string{"key-" + strconv.Itoa(d.key)}
			}
			return nil
		},
		Body: func(int64) ([]byte, error) { return d.input(), nil },
	}
}

// handle is the handler. It notes when it runs.
func (h *history) handle(ctx context.Context, d *do) (*core.Response, error) {
	r, _ := core.FromContext(ctx)
	s := d.script
	if d.kind() != "request" && s.ending >= streams {
		s.ending = created // tasks have nothing to stream
	}
	run := h.started(d, s, r.Fence, func() bool { return errors.Is(context.Cause(ctx), core.ErrLost) })
	start, isLater := h.now(), false
	defer func() {
		h.mu.Lock()
		d.busy += h.now() - start
		h.mu.Unlock()
		if !isLater {
			h.ended(run)
		}
	}()
	response, err := h.perform(ctx, d, run)
	if run != nil && s.ending == later {
		isLater = true
		response.Later = func(end func(*core.Response, error)) { h.endLater(run, end) }
	}
	return response, err
}

// endLater ends a response after its handler has returned.
func (h *history) endLater(r *run, end func(*core.Response, error)) {
	h.calls.Go(func() {
		time.Sleep(r.script.length)
		h.ended(r)
		end(&core.Response{Status: r.status, Body: []byte(r.body), Sent: true}, nil)
	})
}

// perform does what the script of d says. r is nil in a run without a claim, and in a run inside another one of the same record.
func (h *history) perform(ctx context.Context, d *do, r *run) (*core.Response, error) {
	s := d.script
	if s.ending != later {
		time.Sleep(s.length)
	}
	if r != nil {
		h.performInside(ctx, d, r)
	}
	response := &core.Response{Status: s.status(), Body: []byte("no claim")}
	if r != nil {
		response.Body = []byte(r.body)
	}
	switch s.ending {
	case decidedRelease:
		core.Decide(ctx, core.Release)
	case decidedUnknown:
		core.Decide(ctx, core.LeaveUnknown)
	case returnsError:
		return nil, errHandler
	case panics:
		panic(errHandler)
	case hangs:
		timer := time.NewTimer(4 * lease)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return nil, errHandler
	case streams, cutShort:
		response.Sent, response.Unfinished = true, s.ending == cutShort
	}
	return response, nil
}

// performInside does the steps of a run, and the request that it sends itself.
func (h *history) performInside(ctx context.Context, d *do, r *run) {
	for i := range r.script.steps {
		_, err := core.Step(ctx, fmt.Sprintf("step %d", i), func(context.Context) (int, error) {
			h.hadSteps(r)
			return i, nil
		})
		if err != nil {
			break
		}
		h.hadSteps(r) // of an earlier run
	}
	if d.script.nested < 0 {
		return
	}
	short := script{ending: created, nested: -1, length: lease / 10, isBatch: d.script.isBatch, also: d.script.also}
	h.send(ctx, h.newDo(d.name+"/inside", d.script.nested, d.variant, short, d.process))
}

// hadSteps notes that a run has done a step, or got the result of one.
func (h *history) hadSteps(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.hadSteps = true
}

// status is that of the script's response.
func (s script) status() int {
	switch s.ending {
	case refused:
		return 402
	case failed:
		return 500
	case freed:
		return 429
	}
	return 201
}
