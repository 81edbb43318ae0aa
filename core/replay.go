package core

import (
	"errors"
	"slices"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/replay"
)

// replay returns the stored outcome as the result, or refuses the request if the outcome cannot be read.
func (op *operation) replay(outcome []byte) Result {
	result := Result{Replayed: true, Response: op.cached}
	if result.Response == nil {
		var err error
		result.Response, result.Err, err = op.prepareReplay(outcome)
		switch {
		case errors.Is(err, errBlobUnavailable):
			op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
			return op.refuseAfterRun(codeStoreUnavailable)
		case err != nil:
			return op.unreadable(err)
		}
	}
	op.emit(op.engine.cfg.Hooks.Replay, result.Response.Status, nil)
	return result
}

// prepareReplay decodes an outcome and adds what replays carry. lost says why the response has no body, if its blob is lost. A
// response with its body in a blob is not cached: it is long, and a blob may be unavailable for a moment only.
func (op *operation) prepareReplay(outcome []byte) (response *Response, lost, err error) {
	response, blob, err := op.engine.codecs.decode(op.claim.Key, outcome)
	if err != nil {
		return nil, nil, err
	}
	if blob != "" {
		if response, lost, err = op.fetchBody(response, blob); err != nil {
			return nil, nil, err
		}
	}
	op.engine.rules.restrict(response)
	if status := op.engine.cfg.Keep.OmittedStatus; status != 0 && response.Omitted && hasBody(response.Status) && !op.isTask {
		response.Status = status
	}
	op.engine.decorateReplay(response)
	if blob == "" {
		op.cacheReplay(outcome, response)
	}
	return response, lost, nil
}

// preparedReplay is a replay that one engine has made of a cached outcome. Another engine makes its own, since it may mark replays
// otherwise, or have other codecs.
type preparedReplay struct {
	engine   *Engine
	response Response // its lists can be appended to, and not changed otherwise
}

// cachedEntry is what a Begin of op's claim would find, by the cache. It keeps the replay that op's engine has made before.
func (op *operation) cachedEntry(r *replay.Record[preparedReplay]) driver.Entry {
	if r.Fingerprint != op.claim.Fingerprint {
		return driver.Entry{State: driver.Mismatch, Fingerprint: r.Fingerprint}
	}
	if r.Prepared.engine == op.engine {
		response := r.Prepared.response
		op.cached = &response
	}
	return driver.Entry{State: driver.Completed, Outcome: r.Outcome}
}

// cacheReplay keeps the replay that op has made of an outcome, for the next retry.
func (op *operation) cacheReplay(outcome []byte, response *Response) {
	e := op.engine
	if e.replays == nil {
		return
	}
	own := *response
	own.Header, own.Removed, own.Added = slices.Clip(own.Header), slices.Clip(own.Removed), slices.Clip(own.Added)
	e.replays.Prepare(&op.claim.Key, outcome, preparedReplay{e, own}, replayBytes(response, len(e.cfg.Keep.Codecs) > 0))
}

// fieldBytes is what a Field takes besides its texts.
const fieldBytes = 32

// replayBytes is about what a replay takes besides the outcome. Its body is part of the outcome, unless codecs made another one of
// it.
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
