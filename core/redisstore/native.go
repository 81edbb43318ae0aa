package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// Most requests find no record, or an outcome. For both, plain commands take a server half the time of a script: SET with NX and
// GET claims an absent key or returns its record, and SET with IFEQ replaces exactly the record of that claim. Whatever else a
// command finds, the script of the call decides: so there is one state machine, and this file has two of its edges.
//
// A native claim is a claim that such a SET has made. Its record has durations in place of times, because SET cannot write
// the time of the server: see lua/record.lua. The server's own expiry tells when it was made, with PEXPIRETIME, in ms. The
// last three digits of the fence count the claims of the store, so that an owner of two claims, the first of which has
// vanished, does not take one for the other.

// Scripts makes the store send a script for every call. Without it, the store sends plain commands where the server has them:
// Redis 7.0 or later and Valkey for Begin; Redis 8.4 or Valkey 8.1 or later for Complete too. The store finds out by the
// server's replies. Processes of a version that knows only scripts refuse requests whose key was claimed by a plain command,
// until the claim ends: use Scripts while such processes run.
func Scripts() Option {
	return func(s *Store) { s.plainBegin.off() } // which is asked for outcomes, too
}

// ability is what the store knows of a command: whether the server has it. It is safe for concurrent use: the requests that
// find it out at the same time come to the same result.
type ability struct{ state atomic.Int32 }

const (
	unprobed int32 = iota
	available
	unavailable
)

func (a *ability) is(state int32) bool { return a.state.Load() == state }
func (a *ability) off()                { a.state.Store(unavailable) }

// learn notes the reply to a command. A server that does not have the command, or does not allow it to this user, says so with
// these errors. Other errors say nothing about the command. What was unavailable stays so, because one node of a Cluster may be
// older than the others.
func (a *ability) learn(err error) {
	switch {
	case err == nil:
		a.state.CompareAndSwap(unprobed, available)
	case strings.HasPrefix(err.Error(), "ERR "), strings.HasPrefix(err.Error(), "NOPERM "):
		a.off()
	}
}

// isReply reports whether err is an error that the server has replied with, so that it did not execute the command.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// beginNative claims an absent key, or returns the outcome of this request, with SET. It reports false if lua/begin.lua must
// decide: it found something else, or the server refused the SET, as a full server does even if there is an outcome to
// replay. An error that is no reply is returned, because the SET may have been executed; the engine then repeats the call or
// withdraws it. A claim with a LateRetry needs a look at a second key, which one SET cannot take.
func (s *Store) beginNative(ctx context.Context, c *driver.Claim) (driver.Entry, bool, error) {
	if c.LateRetry > 0 || !s.plainBegin.is(available) {
		return driver.Entry{}, false, nil
	}
	if entry, found := s.replayInBurst(ctx, c); found {
		return entry, true, nil
	}
	q := s.newPlainQuery("set", c)
	last := s.claims.Add(1) % 1000
	q.record = nativeRecord(c, last)
	q.args = append(q.args, &q.record, "nx", "get", "px", &q.retention)
	q.durableStatus, q.second = statusClaimed, "pexpiretime"
	if err := s.send(ctx, q); isReply(err) {
		s.plainBegin.learn(err)
		return driver.Entry{}, false, nil
	} else if err != nil {
		return driver.Entry{}, false, err
	}
	if record, isRecord := q.reply.Val().(string); isRecord {
		entry, found := replayOf(record, c)
		s.countReplay(found)
		return entry, found, nil
	}
	s.countReplay(false)
	expires, _ := q.secondReply.Int64() // 0 after an error
	fence := (expires-q.retention)*1000 + last
	return driver.Entry{State: driver.Claimed, Fence: fence, Attempt: 1, Remaining: microseconds(q.lease), Operation: fence},
		fence > 0, nil // otherwise lua/begin.lua recognises the claim
}

// replaysOfBurst is after how many replays in a row Begin reads the record with GET first, which takes a server half the time of
// SET and PEXPIRETIME. Replays come in bursts, when clients repeat what had no response. The request that ends a burst has one
// more round trip.
const replaysOfBurst = 8

// replayInBurst returns the outcome of this request, if a burst of replays goes on and there is one. Anything else ends the burst,
// and is left to the commands that follow, also an error: GET has changed nothing. The node is the master, since a replica may
// still have what an operator has deleted.
func (s *Store) replayInBurst(ctx context.Context, c *driver.Claim) (entry driver.Entry, found bool) {
	if s.replays.Load() < replaysOfBurst {
		return driver.Entry{}, false
	}
	q := s.newPlainQuery("get", c)
	node, err := s.node(ctx, q.name)
	if err == nil && s.exchange(ctx, node, q) == nil {
		entry, found = replayOf(q.status(), c)
	}
	s.countReplay(found)
	return entry, found
}

// countReplay counts a replay, or notes that Begin has found something else. It writes only what changes, since all requests share
// the count.
func (s *Store) countReplay(found bool) {
	switch n := s.replays.Load(); {
	case !found && n > 0:
		s.replays.Store(0)
	case found && n < replaysOfBurst:
		s.replays.Add(1)
	}
}

// replayOf returns the outcome in a record, if it is that of this request and the caller does not want to know more.
func replayOf(record string, c *driver.Claim) (driver.Entry, bool) {
	outcome, found := parseOutcome(record, c)
	return driver.Entry{State: driver.Completed, Outcome: outcome}, found && !c.WantRemaining
}

// completeNative keeps the outcome with SET, if the record is still as beginNative has made it. It reports false if
// lua/complete.lua must decide. IFEQ compares the whole record, so the SET has an effect only while this claim holds the key
// and nobody has noted anything in its record: a request that waits, or one that has withdrawn.
func (s *Store) completeNative(ctx context.Context, c *driver.Claim, outcome []byte) (bool, error) {
	if c.LateRetry > 0 || c.Steps || c.Attempt != 1 || !s.plainBegin.is(available) || s.plainComplete.is(unavailable) {
		return false, nil
	}
	q := s.newPlainQuery("set", c)
	q.record = completedRecord(c, outcome)
	claimed := bytesArgument(nativeRecord(c, c.Fence%1000))
	q.args = append(q.args, &q.record, "ifeq", &claimed, "px", &q.retention)
	q.durableStatus = "OK"
	err := s.send(ctx, q)
	if isReply(err) {
		s.plainComplete.learn(err)
		return false, nil
	}
	return err == nil && q.status() == "OK", err // a call whose context is over has no reply
}

// newPlainQuery returns a query of a command on the record of c.
func (s *Store) newPlainQuery(command string, c *driver.Claim) *query {
	q := s.newQueryOf(c)
	q.args = append(q.argsArray[:0], command, q.name)
	return q
}

// nativeRecord returns the STARTED record of a native claim whose fence has these last three digits: see lua/record.lua.
func nativeRecord(c *driver.Claim, last int64) []byte {
	b := append(make([]byte, 0, 90), "2100000001"...)
	b = appendPadded(appendPadded(b, milliseconds(c.Retention), 13), last, 3)
	b = append(b, c.Fingerprint[:]...)
	b = appendPadded(b, min(c.Lease, longestLease).Microseconds(), 16)
	return append(b, c.Owner[:]...)
}

// probe finds out whether the server has PEXPIRETIME, and this user may use it, unless that is known. A server that has it
// also has SET with NX and GET. Begin calls probe when a script has succeeded, since a native claim needs scripts after it.
// Usually that is one round trip for each Store.
func (s *Store) probe(ctx context.Context, name string) {
	if s.plainBegin.is(unprobed) {
		s.plainBegin.learn(s.client.Do(ctx, "pexpiretime", name).Err())
	}
}
