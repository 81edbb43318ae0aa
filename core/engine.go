package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/digest"
	"github.com/go-idem/idem/core/internal/inflight"
	"github.com/go-idem/idem/core/internal/replay"
	"github.com/go-idem/idem/core/internal/retry"
	"github.com/go-idem/idem/core/internal/waiting"
)

// Engine runs each keyed request at most once at a time and replays its kept outcome to every retry. It is immutable
// and safe for concurrent use.
type Engine struct {
	cfg       Config
	original  Config // as New was told, to know which defaults may follow other fields
	hasher    digest.Hasher
	namings   []naming // of records, the engine's own first
	algorithm algorithm
	rules     headerRules
	refusals  refusals
	codecs    codecs
	inflight  *inflight.Group
	waiters   *waiting.Limiter
	commits   *commitQueue // that the store has not responded to
	replays   *replay.Cache[preparedReplay]

	outers sync.Map // *Engine to nesting: of those that stood around this one

	timers deadline.Queue // of calls to the store, and of runs
}

// New returns an engine, or every bad field of cfg in one error of joined [*ConfigError]s.
func New(cfg Config) (*Engine, error) {
	given := cfg
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	names := namings(&cfg)
	return &Engine{
		cfg:       cfg,
		original:  given,
		hasher:    names[0].hasher,
		namings:   names,
		algorithm: cfg.Fingerprint.algorithm(),
		rules:     newHeaderRules(cfg.Keep.AllowHeaders, append(slices.Clone(cfg.Keep.DenyHeaders), cfg.Keep.Marker)),
		refusals:  newRefusals(cfg.Problems),
		codecs:    cfg.Keep.Codecs,
		inflight:  inflight.New(),
		waiters:   waiting.NewLimiter(),
		commits:   retry.NewQueue[*pendingCommit](),
		replays:   replay.New[preparedReplay](cfg.Keep.LocalReplays),
	}, nil
}

// With returns an engine for one route: e's configuration after change, on the same store unless change says otherwise.
// It panics with the error of [New] when the result is not valid, because it is written where routes are set up.
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

// Config returns a copy of e's configuration with its defaults filled in. Defaults that depend on other fields are values
// then: to change such a field, use With on e.
func (e *Engine) Config() Config { return e.cfg.withDefaults() }

// Close waits until nothing is written to the store any more: outcomes that the store did not take when their handlers
// returned are sent again, for at most ten leases. Call it when the server has stopped, on the first engine or on any
// that came out of With. It returns ctx's cause if that comes first.
func (e *Engine) Close(ctx context.Context) error { return e.inflight.Wait(ctx) }

// call bounds one call of the store.
func (e *Engine) call(ctx context.Context, verb func(context.Context) error) error {
	return e.callUntil(ctx, time.Now().Add(e.cfg.Limits.StoreTimeout), verb)
}

// patience bounds the calls that hold a claim. They may last longer than those of new requests: of these, all that were sent
// before are answered or given up by then, so the store comes to this one, however many there are.
func (e *Engine) patience() time.Duration {
	usual := e.cfg.Limits.StoreTimeout
	return max(usual, min(2*usual, e.cfg.Lease.Duration/3))
}

// callUntil is call with another bound.
func (e *Engine) callUntil(ctx context.Context, deadline time.Time, verb func(context.Context) error) error {
	call := e.timers.WithDeadline(ctx, deadline)
	defer call.Cancel()
	err := verb(call)
	e.reportCall(err)
	return err
}
