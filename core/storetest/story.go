package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// story wraps the store of one test. It notes each call with its result, so that the message of a failed test tells what
// happened before. It also has the methods of Reopener, Notifier and Checkpointer; a test calls those that the wrapped store
// has. It is safe for concurrent use, and notes a call when it returns: calls that overlap are noted in the order of their
// results.
type story struct {
	store driver.Store

	mu    sync.Mutex
	lines []string
	calls int            // how many calls were noted
	names map[any]int    // the numbers by which lines name keys, runs and requests, in the order of their appearance
	kinds map[string]int // how many names there are of each kind
	last  string         // the call that was noted last
}

// newStory returns a story without calls.
func newStory(store driver.Store) *story {
	return &story{store: store, names: map[any]int{}, kinds: map[string]int{}}
}

// keyName, runName and requestName distinguish the names of a story: the same bytes can be the name of a key and of a request,
// and are then two names.
type (
	keyName     [32]byte
	runName     [16]byte
	requestName [32]byte
)

// note adds a line about one call of the claim c.
func (y *story) note(call string, c *driver.Claim, details, result string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	run, request, key := y.number(runName(c.Owner)), y.number(requestName(c.Fingerprint)), y.number(keyName(c.Key))
	y.last = call
	y.add(fmt.Sprintf("%s by run %d of request %d, key %d, fence %d, lease %v, retention %v%s -> %s",
		call, run, request, key, c.Fence, c.Lease, c.Retention, details, result))
}

// number returns the number of a name. The caller holds mu.
func (y *story) number(name any) int {
	if y.names[name] == 0 {
		kind := fmt.Sprintf("%T", name)
		y.kinds[kind]++
		y.names[name] = y.kinds[kind]
	}
	return y.names[name]
}

// add adds the line of a call, with its number. The caller holds mu.
func (y *story) add(line string) {
	y.calls++
	y.lines = append(y.lines, fmt.Sprintf("%3d  %s", y.calls, line))
}

// passed notes that time passes.
func (y *story) passed(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lines = append(y.lines, fmt.Sprintf("     (%v pass)", d))
}

// lastCall returns the name of the last call.
func (y *story) lastCall() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.last
}

// String returns the last lines, at most 60, since the end of a long random sequence is what explains its failure.
func (y *story) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return strings.Join(y.lines[max(0, len(y.lines)-60):], "\n")
}

// Begin implements driver.Store.
func (y *story) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	entry, err := y.store.Begin(ctx, c)
	details := ""
	for _, option := range []struct {
		set  bool
		text string
	}{
		{c.NoTakeover && c.TakeoverFence == 0, ", no takeover"},
		{c.NoTakeover && c.TakeoverFence != 0, fmt.Sprintf(", takeover of fence %d only", c.TakeoverFence)},
		{c.LateRetry > 0, fmt.Sprintf(", late retry %v", c.LateRetry)},
		{c.Subscribed, ", subscribed"},
		{c.WantRemaining, ", remaining wanted"},
	} {
		if option.set {
			details += option.text
		}
	}
	result := entryText(entry)
	if err != nil {
		result = errorText(err)
	}
	y.note("Begin", &c, details, result)
	return entry, err
}

// Extend implements driver.Store.
func (y *story) Extend(ctx context.Context, c driver.Claim) error {
	err := y.store.Extend(ctx, c)
	y.note("Extend", &c, "", errorText(err))
	return err
}

// Complete implements driver.Store.
func (y *story) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	err := y.store.Complete(ctx, c, outcome)
	y.note("Complete", &c, fmt.Sprintf(", late retry %v, outcome %s", c.LateRetry, bytesText(outcome)), errorText(err))
	return err
}

// Fail implements driver.Store.
func (y *story) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	err := y.store.Fail(ctx, c, f)
	y.note("Fail", &c, fmt.Sprintf(", NoEffects %t, NotRun %t", f.NoEffects, f.NotRun), errorText(err))
	return err
}

// Reopen calls the store's Reopen: see core.Engine.Resolve.
func (y *story) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	err := y.store.(driver.Reopener).Reopen(ctx, c, outcome)
	y.note("Reopen", &c, ", outcome "+bytesText(outcome), errorText(err))
	return err
}

// Watch implements driver.Notifier.
func (y *story) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	stop, err = y.store.(driver.Notifier).Watch(ctx, key, wake)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.last = "Watch"
	y.add(fmt.Sprintf("Watch of key %d -> %s", y.number(keyName(key)), errorText(err)))
	return stop, err
}

// Checkpoint implements driver.Checkpointer.
func (y *story) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	err := y.store.(driver.Checkpointer).Checkpoint(ctx, c, step, result)
	y.note("Checkpoint", &c, fmt.Sprintf(", step %q, result %s", step, bytesText(result)), errorText(err))
	return err
}

// Checkpoints implements driver.Checkpointer.
func (y *story) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	steps, err := y.store.(driver.Checkpointer).Checkpoints(ctx, c)
	result := fmt.Sprintf("%q", steps)
	if err != nil {
		result = errorText(err)
	}
	y.note("Checkpoints", &c, "", result)
	return steps, err
}

// entryText returns the fields of e that are not zero.
func entryText(e driver.Entry) string {
	text := string(e.State)
	if e.Fence != 0 {
		text += fmt.Sprintf(", fence %d", e.Fence)
	}
	if e.State == driver.Claimed {
		text += fmt.Sprintf(", attempt %d, operation %d, takeover %t", e.Attempt, e.Operation, e.Takeover)
	}
	if e.State == driver.Completed {
		text += ", outcome " + bytesText(e.Outcome)
	}
	if e.Remaining != 0 {
		text += fmt.Sprintf(", remaining %v", e.Remaining)
	}
	return text
}

// bytesText returns data in quotes, or its length if it is long, as the outcome of 1 MiB is.
func bytesText(data []byte) string {
	if len(data) > 40 {
		return fmt.Sprintf("of %d bytes", len(data))
	}
	return fmt.Sprintf("%q", data)
}
