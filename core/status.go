package core

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/recordname"
)

// The states that a client sees. Package core's documentation defines them; expired is a tombstone.
var stateNames = map[driver.State]string{
	driver.Absent: "absent", driver.InProgress: "running", driver.Unknown: "unknown", driver.Completed: "completed",
	driver.Failed: "failed", driver.Expired: "expired",
}

// statusDocument is the body of a status response.
type statusDocument struct {
	State    string `json:"state"`
	Instance string `json:"instance"` // as in Problem
	Status   int    `json:"status,omitempty"`
}

// status returns the response to a request that asks what became of its key. It reads the record of the caller and the key, and
// nothing else: it claims nothing, and shows nothing of the stored response but its status (OPR-07).
func (e *Engine) status(ctx context.Context, req Request) *Response {
	req.Path = originForm(req.Path)
	key, problem := e.cfg.Key.read(&req)
	if problem != "" {
		return unstored(e.refusals.refuseKey(problem, &e.cfg.Key).Response)
	}
	scope := e.scopeOf(ctx, &req)
	if scope == "" {
		return unstored(e.refusals.refuse(codeScopeMissing, 0).Response)
	}
	k := &keyed{engine: e, ctx: ctx, req: req}
	k.claim.Key = recordName(e.namings[0], scope, key, &req, false)
	store, ok := e.cfg.Store.(driver.Inspector)
	if !ok {
		return unstored(k.refuse(codeStatusUnsupported, 0).Response)
	}
	seen, err := e.lookUp(ctx, store, scope, key, req)
	switch {
	case err != nil && !errors.Is(err, driver.ErrUnreadable):
		return unstored(k.refuse(codeStoreUnavailable, 0).Response)
	case stateNames[seen.State] == "": // as with an error
		return unstored(k.refuse(codeRecordUnreadable, 0).Response)
	}
	if seen.State == driver.Unknown && e.commits.Find(&seen.Name) != nil { // the store does not have the outcome yet
		seen.State, seen.Remaining = driver.InProgress, 0
	}
	return unstored(statusResponse(&seen, e.storedStatus(ctx, &seen)))
}

// lookUp returns the record of a key, under whichever of its names it is, or an absent one. With Key.PerRoute the route of the
// key is the path of req and one of the guarded methods.
func (e *Engine) lookUp(
	ctx context.Context, store driver.Inspector, scope, key string, req Request,
) (found driver.Record, err error) {
	for i, name := range e.namesOf(scope, key, req) {
		var seen driver.Record
		err := e.call(ctx, "Look", func(ctx context.Context) (err error) {
			seen, err = store.Look(ctx, name)
			return err
		})
		if err != nil {
			return driver.Record{}, err
		}
		if i == 0 || found.State == driver.Absent {
			found = seen
		}
		if seen.State != driver.Absent && !seen.IsReleased() {
			return seen, nil
		}
	}
	return found, nil
}

// namesOf returns the names that the record of a key may have, first the one that a new record would get.
func (e *Engine) namesOf(scope, key string, req Request) (names [][32]byte) {
	for _, naming := range e.namings {
		if !naming.PerRoute {
			names = append(names, recordName(naming, scope, key, &req, false))
			continue
		}
		for _, req.Method = range e.cfg.Key.Methods {
			names = append(names, recordName(naming, scope, key, &req, false))
		}
	}
	return names
}

// storedStatus returns the status of the response that is stored in a record, or 0 if there is none, or if it cannot be read. It
// returns 0 as well if Keep.OnReplay decides who may see a response.
func (e *Engine) storedStatus(ctx context.Context, seen *driver.Record) (status int) {
	store, ok := e.cfg.Store.(driver.OutcomeReader)
	if !ok || seen.State != driver.Completed || e.cfg.Keep.OnReplay != nil {
		return 0
	}
	_ = e.call(ctx, "Outcome", func(ctx context.Context) error {
		outcome, err := store.Outcome(ctx, seen.Name)
		if err != nil || outcome == nil {
			return err
		}
		if stored, _, err := e.codecs.decode(seen.Name, outcome); err == nil {
			status = stored.Status
		}
		return nil
	})
	return status
}

// statusResponse returns the response about a record, and about the status that is stored in it. A client that waits for a run sends its request again after Retry-After.
func statusResponse(seen *driver.Record, stored int) *Response {
	body, _ := json.Marshal(statusDocument{stateNames[seen.State], recordname.Instance(seen.Name), stored}) // cannot fail
	r := &Response{Status: 200, Body: body, Header: []Field{
		{"Content-Type", "application/json"}, {"Content-Length", strconv.Itoa(len(body))},
	}}
	switch seen.State {
	case driver.Absent:
		r.Status = 404
	case driver.InProgress:
		r.Header = append(r.Header, Field{"Retry-After", strconv.Itoa(int(retryAfter(seen.Remaining) / time.Second))})
	}
	return r
}

// unstored returns r with a header field that keeps caches from storing it.
func unstored(r *Response) *Response {
	own := *r // Problems.Render may return one value for every problem
	own.Header = append(own.Header[:len(own.Header):len(own.Header)], Field{"Cache-Control", "no-store"})
	return &own
}
