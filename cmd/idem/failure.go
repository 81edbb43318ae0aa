package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// The exit codes of the command, besides 0.
const (
	finding     = 1
	badUsage    = 2
	storeFailed = 3
	changed     = 4
	interrupted = 130
)

// failure is an error with the exit code of the command.
type failure struct {
	code int
	text string
}

// Error returns what people read.
func (f *failure) Error() string { return f.text }

// fail returns a failure.
func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// errNobodyToAsk refuses an act that needs a confirmation, where nobody can give one.
var errNobodyToAsk = fail(badUsage, "standard input is no terminal, so nobody can be asked: add --yes")

// errNotAudited says that an audit line could not be written, so that an act is not done.
var errNotAudited = errors.New("the audit line cannot be written")

// Outcomes of a call of the store, for explain.
const (
	nothingChanged = "nothing was changed"
	mayBeDone      = "it may have been done all the same: look at the record before you try again"
)

// explain is the function explain, and says which other schemas there are if this one is missing.
func (o *storeOperator) explain(ctx context.Context, err error, consequence string) error {
	explained := explain(ctx, err, consequence)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !slices.Contains([]string{"3F000", "42P01", "42883"}, refused.Code) { // no such schema, table, function
		return explained
	}
	return fail(storeFailed, "%v%s", explained, o.otherPlaces(ctx))
}

// explain returns the failure for an error of the store. consequence says what became of the records.
func explain(ctx context.Context, err error, consequence string) error {
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotAudited), errors.Is(err, operator.ErrNotInstance):
		return fail(badUsage, "%v; %s", err, nothingChanged)
	case errors.Is(err, core.ErrNotUnknown), errors.Is(err, operator.ErrChanged):
		return fail(changed, "the record has changed since it was seen; %s: %v", nothingChanged, err)
	case ctx.Err() != nil:
		return fail(interrupted, "interrupted; %s", consequence)
	case isReadOnly(err):
		return fail(storeFailed, "this server is a read-only replica; %s: name the primary in the URL of the store", nothingChanged)
	case errors.Is(err, driver.ErrUnreadable):
		return fail(storeFailed, "%v; %s", err, nothingChanged)
	case isRefusal(err):
		return fail(storeFailed, "the store refuses; %s: %v", consequence, err)
	default:
		return fail(storeFailed, "the store does not respond; %s: %v", consequence, err)
	}
}

// isReadOnly reports whether a server has refused a write because it is a replica. Before version 7, Redis puts its error for a
// script into another one.
func isReadOnly(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "25006" || err != nil && strings.Contains(err.Error(), "READONLY You can't write")
}

// isRefusal reports whether a server has responded, with an error.
func isRefusal(err error) bool {
	_, ofPostgres := errors.AsType[*pgconn.PgError](err)
	_, ofRedis := errors.AsType[redis.Error](err)
	return ofPostgres || ofRedis
}
