// Package consumer handles the messages of a broker at most once at a time, and hands kept results to later deliveries.
//
// A message is a [core.Task]: its group is the scope, its ID the key, its payload the input, and [Kind] the kind. What the
// consumer counts as attempts are runs. A message that is dead is kept with the status 500 and the cause as its body; an operator
// revives it with [core.Engine.Resolve].
package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-idem/idem/core"
)

// Kind is the kind of tasks that messages are. It names a message for [core.Engine.Resolve]:
//
//	core.Task{Kind: consumer.Kind, Scope: group, Key: id}
//
// The body of an outcome is the result as core.Config.Marshal makes it.
const Kind = "MESSAGE"

// Config says how a [Consumer] handles messages. Its zero value is the default.
type Config struct {
	// MaxAttempts is how often a message is handled at most, including runs that ended with their process. After that it is Dead,
	// until Engine.Resolve revives it. A delivery that was not handled does not count, whatever the reason, but for one: with
	// core.Config.DangerouslyFailOpen, a message of a Batch counts that was about to be handled without a claim when its batch
	// ended. At most 999,999.
	// Default 0: a message is handled as often as it is delivered.
	MaxAttempts int

	// SkipMismatch treats a message whose ID came with another payload before as a Duplicate of that one. By default it is
	// Dead (EVT-06).
	SkipMismatch bool

	// MaxUnreadable is how long a message whose record cannot be read is Busy, counted from when this consumer first found the
	// record unreadable. After that the message is Dead, with an error that wraps driver.ErrUnreadable. It should outlast a
	// rolling deploy, in which a newer process may have written the record. From 1 ms to 100 years. Default 15 minutes.
	MaxUnreadable time.Duration
}

// Consumer handles messages with [Consume] and [Batch]. It is immutable and safe for concurrent use.
type Consumer struct {
	cfg        Config
	engine     *core.Engine
	engines    core.Config // of engine, copied once, because Engine.Config makes a copy at each call
	unreadable unreadable
}

// Bounds of a Config.
const (
	maxAttempts       = 999_999 // as far as stores count
	maxDuration       = 100 * 365 * 24 * time.Hour
	defaultUnreadable = 15 * time.Minute
)

// New returns a consumer of messages under engine, or every bad field of cfg in one error of joined [*core.ConfigError]s.
func New(engine *core.Engine, cfg Config) (*Consumer, error) {
	if engine == nil {
		return nil, errors.New("idem: consumer.New needs an engine")
	}
	if cfg.MaxUnreadable == 0 {
		cfg.MaxUnreadable = defaultUnreadable
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, engine: engine, engines: engine.Config(), unreadable: newUnreadable()}, nil
}

// validate returns every bad field of a config with defaults, joined.
func (c *Config) validate() error {
	var attempts, unreadable error
	if c.MaxAttempts < 0 || c.MaxAttempts > maxAttempts {
		attempts = &core.ConfigError{Field: "MaxAttempts", Reason: fmt.Sprintf(
			"%d: must be positive and at most %d, which is as far as stores count, or 0 for no limit", c.MaxAttempts, maxAttempts)}
	}
	if c.MaxUnreadable < time.Millisecond || c.MaxUnreadable > maxDuration {
		unreadable = &core.ConfigError{Field: "MaxUnreadable", Reason: fmt.Sprintf(
			"%v: must be at least 1ms and at most 100 years", c.MaxUnreadable)}
	}
	return errors.Join(attempts, unreadable)
}
