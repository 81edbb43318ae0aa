package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/digest"
	"github.com/go-idem/idem/core/internal/inflight"
	"github.com/go-idem/idem/core/internal/recordname"
	"github.com/go-idem/idem/core/internal/replay"
	"github.com/go-idem/idem/core/internal/retry"
	"github.com/go-idem/idem/core/internal/waiting"
)

// Engine runs the handler of each key at most once at a time, and replays the stored outcome to every retry. It is immutable and
// safe for concurrent use.
type Engine struct {
	cfg       Config
	original  Config // the argument of New, which With needs to derive defaults anew
	hasher    digest.Hasher
	namings   []recordname.Naming // of records, the engine's own first
	algorithm algorithm
	rules     headerRules
	fields    decorations
	refusals  refusals
	codecs    codecs
	inflight  *inflight.Group
	waiters   *waiting.Limiter
	commits   *commitQueue // whose calls had no response from the store
	replays   *replay.Cache[preparedReplay]

	outers sync.Map // *Engine to nesting: the engines whose runs have enclosed requests of this one

	timers deadline.Queue // of calls to the store, and of lease renewals
}

// New returns an engine. If fields of cfg are not valid, the error joins one [*ConfigError] for each of them.
func New(cfg Config) (*Engine, error) {
	given := cfg
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	names := recordname.All(cfg.Secret, cfg.PreviousSecrets, cfg.Key.PerRoute, cfg.Key.PerRouteChanged)
	return &Engine{
		cfg:       cfg,
		original:  given,
		hasher:    names[0].Hasher,
		namings:   names,
		algorithm: cfg.Fingerprint.algorithm(),
		rules:     newHeaderRules(&cfg),
		fields:    newDecorations(&cfg),
		refusals:  newRefusals(cfg.Problems, cfg.engineFields()...),
		codecs:    cfg.Keep.Codecs,
		inflight:  inflight.New(),
		waiters:   waiting.NewLimiter(),
		commits:   retry.NewQueue[*pendingCommit](),
		replays:   replay.New[preparedReplay](cfg.Keep.LocalReplays),
	}, nil
}

// With returns an engine for one route. Its configuration is that of e after change, so it uses the same store unless change sets
// another. With panics with the error of [New] if the configuration is not valid, since it is called where routes are set up.
func (e *Engine) With(change func(*Config)) *Engine {
	cfg := e.Config()
	cfg.clearDerived(&e.original)
	change(&cfg)
	derived, err := New(cfg)
	if err != nil {
		panic(err)
	}
	derived.inflight, derived.waiters = e.inflight, e.waiters
	isSame := isSameStore(cfg.Store, e.cfg.Store)
	if isSame {
		derived.commits = e.commits
	}
	if isSame && cfg.Keep.LocalReplays == e.cfg.Keep.LocalReplays {
		derived.replays = e.replays
	}
	return derived
}

// Config returns a copy of e's configuration in which all defaults are filled in, also those that depend on other fields. To get an
// engine with other fields, call With: it derives these defaults anew.
func (e *Engine) Config() Config { return e.cfg.withDefaults() }

// Close waits until no commit is pending and no record is changed in the background. A commit is pending for at most ten leases. The
// subscription of a request that waited may end a moment later. Call Close when the server has stopped, on the first engine or on any
// engine that With has returned: all of them share what is pending. If ctx ends first, Close returns its cause.
func (e *Engine) Close(ctx context.Context) error { return e.inflight.Wait(ctx) }

// call calls the store once, with the deadline Limits.StoreTimeout. Hooks.StoreCall gets the name of the call.
func (e *Engine) call(ctx context.Context, name string, send func(context.Context) error) error {
	return e.callUntil(ctx, time.Now().Add(e.cfg.Limits.StoreTimeout), name, send)
}

// callUntil is call with another deadline. Without a name, send calls Hooks.StoreCall itself.
func (e *Engine) callUntil(ctx context.Context, deadline time.Time, name string, send func(context.Context) error) error {
	err := e.bounded(ctx, deadline, name, send)
	e.reportCall(err)
	return err
}

// bounded makes a call that ends with its deadline, and tells Hooks.StoreCall of it.
func (e *Engine) bounded(ctx context.Context, deadline time.Time, name string, send func(context.Context) error) error {
	call := e.timers.WithDeadline(ctx, deadline)
	defer call.Cancel()
	began := e.callBegins()
	err := callError(call, send(call))
	if name != "" {
		e.callEnded(ctx, name, began, err)
	}
	return err
}

// callError returns the error of a call to the store. A store may return the cause with which the context of the call has ended. That
// says nothing of a record, although the context of a run that has lost its claim ends with a cause that wraps ErrLost. So the error
// that callError returns wraps that of the context instead.
func callError(call context.Context, err error) error {
	if err == nil {
		return nil
	}
	ended, cause := call.Err(), context.Cause(call)
	if ended == nil || cause == ended || !errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %v", ended, err)
}

// callBlobs calls the blobs once, with the deadline Limits.StoreTimeout. Their response says nothing of the store.
func (e *Engine) callBlobs(ctx context.Context, name string, send func(context.Context) error) error {
	return e.bounded(ctx, time.Now().Add(e.cfg.Limits.StoreTimeout), name, send)
}

// patience is the time that a call has which holds a claim. It is longer than Limits.StoreTimeout: in a slow store the calls that
// new requests had sent before are over by then, so the call that holds a claim gets its turn.
func (e *Engine) patience() time.Duration {
	usual := e.cfg.Limits.StoreTimeout
	return max(usual, min(2*usual, e.cfg.Lease.Duration/3))
}
