package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// The exit codes of the command, besides 0. Each says what a script can do next. After finding, a person must look at the
// result. After badUsage, the call or this machine must be corrected; no record was changed unless the message says so. After
// storeFailed, the same call may succeed later, and the message says whether it may have been done already. After changed,
// the record must be looked at again, since the decision was about an earlier one. interrupted is what a shell reports for a
// process that an interrupt has ended.
const (
	finding     = 1
	badUsage    = 2
	storeFailed = 3
	changed     = 4
	interrupted = 130
)

// failure is an error with the exit code of the command. A script can tell by the code whether to go on, to correct its call,
// to try again later, or to look at the record first; the text is for people.
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

// errNobodyToAsk refuses an act that needs a confirmation, where nobody can give one. Silence is no consent: an act that
// deletes needs a yes, by a person or by a flag.
var errNobodyToAsk = fail(badUsage, "standard input is no terminal, so nobody can be asked: add --yes")

// errNotAudited says that an audit line could not be written, so that an act is not done.
var errNotAudited = errors.New("the audit line cannot be written")

// Outcomes of a call of the store, for explain. A call that only reads has the first. An act that got no response has the
// second, since the server may have executed it. A Resolve whose first call has succeeded, and whose second was refused, has the
// third.
const (
	nothingChanged = "nothing was changed"
	mayBeDone      = "it may have been done all the same: look at the record before you try again"
	mayBeClaimed   = "the record may be claimed for a lease: look at it before you try again"
)

// explain is the function explain, and says which other schemas there are if this one is missing. A wrong --schema is the
// usual reason for a missing table, and the name of the right one is what the operator needs next.
func (o *storeOperator) explain(ctx context.Context, err error, consequence string) error {
	explained := explain(ctx, err, consequence)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !slices.Contains([]string{"3F000", "42P01", "42883"}, refused.Code) { // no such schema, table, function
		return explained
	}
	return fail(storeFailed, "%v%s", explained, o.otherPlaces(ctx))
}

// explain returns the failure for an error of the store. consequence says what became of the records, because an operator who
// does not know that cannot decide whether to repeat the command. The order of the cases matters: an error of this command or
// of the audit comes before any act, so nothing was changed whatever the caller says; and an interrupt makes calls fail in
// any way, so it is examined before the errors of servers.
func explain(ctx context.Context, err error, consequence string) error {
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	switch {
	// Callers pass the result of an act as it is.
	case err == nil:
		return nil
	case errors.Is(err, errNotAudited), errors.Is(err, operator.ErrNotInstance):
		return fail(badUsage, "%v; %s", err, nothingChanged)
	case errors.Is(err, core.ErrNotUnknown), errors.Is(err, operator.ErrChanged):
		return fail(changed, "the record has changed since it was seen; %s: %v", nothingChanged, err)
	// The store reports an ended context in many forms, some of which look like an error of the server.
	case ctx.Err() != nil:
		return fail(interrupted, "interrupted; %s", consequence)
	case isReadOnly(err):
		if consequence == mayBeDone { // an act on one record, which the server has refused
			consequence = nothingChanged
		}
		return fail(storeFailed, "this server is a read-only replica; %s: name the primary in the URL of the store", consequence)
	case errors.Is(err, driver.ErrUnreadable):
		return fail(storeFailed, "%v; %s", err, nothingChanged)
	case isRefusal(err):
		return fail(storeFailed, "the store refuses; %s: %v", consequence, err)
	default:
		return fail(storeFailed, "the store does not respond; %s: %v", consequence, err)
	}
}

// isReadOnly reports whether a server has refused a write because it is a replica. Before version 7, Redis puts its error for
// a script into another one. Nothing was changed then, which is more than is known of other errors.
func isReadOnly(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "25006" || err != nil && strings.Contains(err.Error(), "READONLY You can't write")
}

// isRefusal reports whether a server has responded, with an error. Without such an error nobody knows whether the server has
// executed the call, or whether there is a server at all.
func isRefusal(err error) bool {
	_, ofPostgres := errors.AsType[*pgconn.PgError](err)
	_, ofRedis := errors.AsType[redis.Error](err)
	_, ofDynamoDB := errors.AsType[smithy.APIError](err)
	return ofPostgres || ofRedis || ofDynamoDB
}
