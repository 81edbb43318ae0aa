package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/go-idem/idem/adapters/internal/attempts"
)

// Client sends each call with one key, and sends it again when the response is lost or is no outcome. The adapters have types
// with the same fields, which say what they mean.
type Client struct {
	Header             string
	Bare               bool
	Skip               func(procedure string) bool
	Attempts           int
	MaxElapsed, Window time.Duration
	Pause              func(attempt int) time.Duration
	MaxPause           time.Duration
}

// Name returns the name of the metadata that carries the key.
func (c *Client) Name() string { return cmp.Or(c.Header, "idempotency-key") }

// Do calls send until there is an outcome, or until the bounds allow no further attempt. send sends the call with this value of
// the key's metadata, or without a key for "", and returns the status of what came back. isNew says that the caller has not set
// the value itself. The error of Do says that nothing was sent. After the last attempt Do returns nil: the caller has kept what
// its own send returned, and that is the result of the call.
func (c *Client) Do(ctx context.Context, call *Call, send func(value string, isNew bool) *status.Status) error {
	bounds := (&attempts.Bounds{
		Attempts: c.Attempts, MaxElapsed: c.MaxElapsed, Window: c.Window, Pause: c.Pause, MaxPause: c.MaxPause,
	}).WithDefaults()
	if err := c.validate(&bounds); err != nil {
		return err
	}
	if call.ReadOnly || isReadOnly(call.Schema) || c.Skip != nil && c.Skip(call.Procedure) {
		send("", false)
		return nil
	}
	value, isGiven, err := attempts.SentKey(c.Name(), call.Header(c.Name()))
	if err == nil && !isGiven {
		value, err = attempts.FormatKey(attempts.NewKey(), c.Bare)
	}
	if err != nil {
		return err
	}
	startedAt := time.Now()
	for attempt := 1; ; attempt++ {
		s := send(value, !isGiven)
		asked := retryDelay(s)
		if !shouldRetry(s, asked) {
			return nil
		}
		until, hasNext := bounds.Next(ctx, attempt, startedAt, asked)
		if !hasNext || attempts.Wait(ctx, nil, until) != nil {
			return nil
		}
	}
}

// validate returns one error that names every field with an invalid value.
func (c *Client) validate(b *attempts.Bounds) error {
	var bad []error
	refuse := func(field string, value any, fix string) {
		bad = append(bad, fmt.Errorf("idem: not sent: Client.%s is %v; %s", field, value, fix))
	}
	if !attempts.IsToken(c.Name()) {
		refuse("Header", fmt.Sprintf("%q", c.Header), "give it the name of metadata")
	}
	b.Validate(refuse)
	return errors.Join(bad...)
}

// retryDelay returns the pause that a status asks for, or 0. It is that of the first RetryInfo (google.rpc, error_details.proto)
// among the details.
func retryDelay(s *status.Status) time.Duration {
	for _, detail := range s.GetDetails() {
		var info errdetails.RetryInfo
		if detail.MessageIs(&info) && detail.UnmarshalTo(&info) == nil {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}

// shouldRetry reports whether another attempt can learn the outcome. Unavailable says that the response is lost, or that nothing
// has run. DeadlineExceeded is the server's own, as long as the caller's context lives. Aborted and ResourceExhausted with a
// pause say that an earlier attempt is still running, or that the caller is too fast.
func shouldRetry(s *status.Status, asked time.Duration) bool {
	switch code.Code(s.GetCode()) {
	case code.Code_UNAVAILABLE, code.Code_DEADLINE_EXCEEDED:
		return true
	case code.Code_ABORTED, code.Code_RESOURCE_EXHAUSTED:
		return asked > 0
	}
	return false
}
