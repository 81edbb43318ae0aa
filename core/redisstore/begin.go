package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Begin implements driver.Store. A second round trip follows if a plain command found something that lua/begin.lua must
// judge, or if the script found an outcome that it is too slow to return. To repeat the script does no harm: it returns the
// same claim to its owner, and changes no state in any other case.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if entry, done, err := s.beginNative(ctx, &c); done || err != nil {
		return entry, err
	}
	for range 3 { // a COMPLETED record may expire between the script and the GET; then the key is free
		entry, retry, err := s.begin(ctx, &c)
		if !retry {
			return entry, err
		}
	}
	return driver.Entry{}, errors.New("idem: record changed on every read")
}

// begin sends the script once. The script returns short outcomes itself. A long outcome is read with GET, because Lua would
// take five times as long (see docs/layout.md); after one, the next calls pipeline a GET with the script. retry reports that
// script and GET saw different records.
func (s *Store) begin(ctx context.Context, c *driver.Claim) (entry driver.Entry, retry bool, err error) {
	q := s.beginQuery(c)
	if err = s.send(ctx, q); isSplitSlot(err) {
		q, err = s.beginSplit(ctx, c)
	}
	if err != nil {
		return driver.Entry{}, false, storeError(err)
	}
	// The script has succeeded, so this server may be asked for plain commands.
	s.probe(ctx, q.name)
	a, err := parseBeginReply(q.status())
	if err != nil {
		return driver.Entry{}, false, err
	}
	if a.status != "completed" {
		entry, err = entryFrom(a)
		return entry, false, err
	}
	outcome, found := parseOutcome(a.rest, c)
	if a.rest == "" {
		s.pipelinedGets.Store(pipelinedGetsAfterLongRecord)
		record, err := s.longRecord(ctx, c, q)
		if err != nil {
			return driver.Entry{}, false, storeError(err)
		}
		outcome, found = parseOutcome(record, c)
	}
	entry = driver.Entry{State: driver.Completed, Outcome: outcome}
	if c.WantRemaining {
		entry.Remaining = time.Duration(a.numbers[0]) * time.Millisecond
	}
	return entry, !found, nil
}

// pipelinedGetsAfterLongRecord is how many calls of Begin pipeline a GET after a long record. A GET of a record without an
// outcome costs the server little; a second round trip would delay a replay.
const pipelinedGetsAfterLongRecord = 100

// beginQuery returns the query of lua/begin.lua for c. A claim without a LateRetry names one key, and so never needs two
// nodes. Only a claim is a write that must be durable.
func (s *Store) beginQuery(c *driver.Claim) (q *query) {
	if c.LateRetry > 0 {
		q = s.newQuery(beginScript, c, tombstoneSuffix)
	} else {
		q = s.newQuery(beginScript, c)
	}
	q.fingerprint = c.Fingerprint
	q.args = append(q.args, &q.owner, &q.fingerprint, &q.lease, &q.retention, takeoverArgument(c), s.subscribedArgument(c))
	if c.WantRemaining {
		q.args = append(q.args, "1")
	}
	q.durableStatus = statusClaimed
	if s.pipelinedGets.Load() > 0 && s.pipelinedGets.Add(-1) >= 0 {
		q.second = "get"
	}
	return q
}

// longRecord returns the record that the pipelined GET has read, or reads it now. If the record has moved to another node, a
// script reads it, because scripts follow redirects.
func (s *Store) longRecord(ctx context.Context, c *driver.Claim, q *query) (string, error) {
	if q.second == "get" && !isRedirect(q.secondReply.Err()) {
		return getText(q.secondReply)
	}
	node, err := s.node(ctx, q.name)
	if err != nil {
		return "", err
	}
	found := node.Do(ctx, "get", q.name)
	if !isRedirect(found.Err()) {
		return getText(found)
	}
	record, err := s.runCommand(ctx, c, "", "GET")
	text, _ := record.(string)
	return text, err
}

// entryFrom translates every reply of the script except "completed". The script counts leases in µs, and the rest of a
// retention in ms.
func entryFrom(a beginReply) (driver.Entry, error) {
	switch n := a.numbers; a.status {
	case "claimed":
		return driver.Entry{
			State: driver.Claimed, Fence: n[0], Attempt: int(n[1]), Takeover: n[2] == 1, Remaining: microseconds(n[3]), Operation: n[4],
		}, nil
	case "in-progress":
		return driver.Entry{State: driver.InProgress, Remaining: microseconds(n[0])}, nil
	case "unknown":
		return driver.Entry{State: driver.Unknown, Fence: n[0]}, nil
	case "mismatch":
		entry := driver.Entry{State: driver.Mismatch}
		copy(entry.Fingerprint[:], a.rest)
		return entry, nil
	case "expired":
		return driver.Entry{State: driver.Expired}, nil
	}
	return driver.Entry{}, statusError(a.status)
}

// takeoverArgument returns the script's argument that says which vanished claims Begin may take over: "1" for any, 0 for
// none, or the fence of the only one.
func takeoverArgument(c *driver.Claim) any {
	if c.NoTakeover {
		return c.TakeoverFence
	}
	return "1"
}

// subscribedArgument returns the script's argument that says how the end of the running claim must be published, if at all.
// The script notes it in the record, so the process that ends the claim publishes what this process listens to, whatever it
// knows itself about sharded channels.
func (s *Store) subscribedArgument(c *driver.Claim) any {
	switch {
	case !c.Subscribed:
		return "0"
	case s.notifier.sharded():
		return "2"
	}
	return "1"
}

// beginReply is the parsed reply of lua/begin.lua: a status, its numbers, and for "completed" and "mismatch" the bytes of the
// record or of its fingerprint.
type beginReply struct {
	status  string
	numbers [5]int64
	rest    string
}

// parseBeginReply parses the reply of lua/begin.lua. A reply that begins with a digit is a COMPLETED record. It refuses a
// reply of any other form, since a mistake here would replay the wrong bytes.
func parseBeginReply(text string) (a beginReply, err error) {
	if text != "" && text[0] >= '0' && text[0] <= '9' { // a record's format
		return beginReply{status: "completed", rest: text}, nil
	}
	a.status, a.rest, _ = strings.Cut(text, " ")
	for i := range numberCount(a.status) {
		var number string
		number, a.rest, _ = strings.Cut(a.rest, " ")
		if a.numbers[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return beginReply{}, fmt.Errorf("idem: begin answered %q", text)
		}
	}
	isShort := a.status == "mismatch" && len(a.rest) != len(driver.Claim{}.Fingerprint)
	isLong := a.status != "mismatch" && a.status != "completed" && a.rest != ""
	if isShort || isLong {
		return beginReply{}, fmt.Errorf("idem: begin answered %q", text)
	}
	return a, nil
}

// numberCount returns how many numbers follow a status.
func numberCount(status string) int {
	switch status {
	case "claimed":
		return 5
	case "in-progress", "unknown", "completed":
		return 1
	}
	return 0
}
