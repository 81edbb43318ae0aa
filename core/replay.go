package core

import (
	"errors"
	"slices"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/replay"
)

// replay returns the stored outcome as the result, or refuses the request if the outcome cannot be read or Keep.OnReplay does not
// let it go.
func (op *operation) replay(outcome []byte) Result {
	result, origin := op.makeReplay(outcome)
	if result.Replayed {
		op.emitReplay(result.Response, len(outcome), origin)
	}
	op.done(&result, op.isLocal, len(outcome), origin)
	return result
}

// makeReplay is replay without its hooks. origin is what Keep.Origin returned for the run that made the outcome.
func (op *operation) makeReplay(outcome []byte) (result Result, origin string) {
	if op.cached != nil {
		return Result{Replayed: true, Response: op.cached}, op.cached.origin
	}
	stored, isInBlob, lost, err := op.readOutcome(outcome)
	switch {
	case errors.Is(err, errBlobUnavailable):
		if !op.hasLeft(err) {
			op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
		}
		return op.refuseAfterRun(codeStoreUnavailable), ""
	case err != nil:
		return op.unreadable(err), ""
	}
	response, problem, err := op.askOnReplay(stored)
	if problem != "" {
		refused := op.refuse(problem, 0)
		refused.Err = err
		return refused, stored.origin
	}
	op.prepareReplay(response)
	if !isInBlob {
		op.cacheReplay(outcome, response)
	}
	return Result{Replayed: true, Response: response, Err: lost}, stored.origin
}

// readOutcome decodes an outcome, and fetches its body if that is in a blob. lost says why the response has no body, if its blob
// is lost.
func (op *operation) readOutcome(outcome []byte) (response *Response, isInBlob bool, lost, err error) {
	response, blob, err := op.engine.codecs.decode(op.claim.Key, outcome)
	if blob != "" {
		response, lost, err = op.fetchBody(response, blob)
	}
	if err != nil {
		return nil, false, nil, err
	}
	op.engine.rules.restrict(response)
	return response, blob != "", lost, nil
}

// prepareReplay adds to a stored response what replays carry.
func (op *operation) prepareReplay(response *Response) {
	if status := op.engine.cfg.Keep.OmittedStatus; status != 0 && response.Omitted && hasBody(response.Status) && !op.isTask {
		response.Status = status
	}
	op.decorateReplay(response)
}

// preparedReplay is a replay that one engine has made of a cached outcome. Another engine makes its own, since it may mark
// replays otherwise, or have other codecs.
type preparedReplay struct {
	engine   *Engine
	response Response // its lists can be appended to, and not changed otherwise
}

// cachedEntry is what a Begin of op's claim would find, by the cache. It keeps the replay that op's engine has made before.
func (op *operation) cachedEntry(r *replay.Record[preparedReplay]) driver.Entry {
	if r.Fingerprint != op.claim.Fingerprint {
		return driver.Entry{State: driver.Mismatch, Fingerprint: r.Fingerprint}
	}
	op.isLocal = true
	if r.Prepared.engine == op.engine {
		response := r.Prepared.response
		op.cached = &response
	}
	return driver.Entry{State: driver.Completed, Outcome: r.Outcome}
}

// cacheReplay keeps the replay that op has made of an outcome, for the next retry. A body from a blob is not cached: it is long,
// and a blob may be unavailable for a moment only. Keep.OnReplay is asked about each replay, so that its response is not cached
// either.
func (op *operation) cacheReplay(outcome []byte, response *Response) {
	e := op.engine
	if e.replays == nil || e.cfg.Keep.OnReplay != nil {
		return
	}
	own := *response
	own.Header, own.Removed, own.Added = slices.Clip(own.Header), slices.Clip(own.Removed), slices.Clip(own.Added)
	e.replays.Prepare(&op.claim.Key, outcome, preparedReplay{e, own}, replayBytes(response, len(e.cfg.Keep.Codecs) > 0))
}

// fieldBytes is what a Field takes besides its texts.
const fieldBytes = 32

// replayBytes is about what a replay takes besides the outcome. Its body is part of the outcome, unless codecs made another one
// of it.
func replayBytes(response *Response, isCoded bool) (size int) {
	texts := 0
	for _, f := range response.Header {
		size += fieldBytes
		texts += len(f.Name) + len(f.Value)
	}
	if isCoded {
		return size + texts + texts + len(response.Body)
	}
	return size + texts
}
