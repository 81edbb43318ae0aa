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

// Begin implements driver.Store.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	for range 3 { // a COMPLETED record may expire between the script and a GET: then the key is free
		entry, retry, err := s.begin(ctx, &c)
		if !retry {
			return entry, err
		}
	}
	return driver.Entry{}, errors.New("idem: record changed on every read")
}

// begin sends the script. Most outcomes come with its answer; one that is longer is read by a GET, since Lua would take five
// times as long for it, see docs/layout.md. Where that has happened, the next scripts have the GET behind them, in the same
// round trip. retry is true when the two did not see the same record.
func (s *Store) begin(ctx context.Context, c *driver.Claim) (entry driver.Entry, retry bool, err error) {
	q := s.beginQuery(c)
	if err = s.send(ctx, q); isSplitSlot(err) && c.LateRetry > 0 {
		q, err = s.beginSplit(ctx, c)
	}
	if err != nil {
		return driver.Entry{}, false, storeError(err)
	}
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

// pipelinedGetsAfterLongRecord is how many scripts have a GET behind them after a long record.
const pipelinedGetsAfterLongRecord = 100

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
	q.durableStatus, q.withGet = "claimed", s.pipelinedGets.Load() > 0 && s.pipelinedGets.Add(-1) >= 0
	return q
}

// longRecord returns what the GET behind the script has read, or reads now. A record that has moved to another node is read by a
// script, which follows it.
func (s *Store) longRecord(ctx context.Context, c *driver.Claim, q *query) ([]byte, error) {
	if q.withGet && !isRedirect(q.getReply.Err()) {
		return getBytes(q.getReply)
	}
	node, err := s.node(ctx, q.name)
	if err != nil {
		return nil, err
	}
	found := node.Get(ctx, q.name)
	if !isRedirect(found.Err()) {
		return getBytes(found)
	}
	record, err := s.runCommand(ctx, c, "", "GET")
	text, _ := record.(string)
	return []byte(text), err
}

// entryFrom gives begin's answers their meaning, but for completed.
func entryFrom(a beginReply) (driver.Entry, error) {
	switch n := a.numbers; a.status {
	case "claimed":
		return driver.Entry{State: driver.Claimed, Fence: n[0], Attempt: int(n[1]), Takeover: n[2] == 1, Remaining: microseconds(n[3]), Operation: n[4]}, nil
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

// takeoverArgument is what begin may take over: any claim, none, or one.
func takeoverArgument(c *driver.Claim) any {
	if c.NoTakeover {
		return c.TakeoverFence
	}
	return "1"
}

// subscribedArgument is how the record of a run that c waits for is to tell.
func (s *Store) subscribedArgument(c *driver.Claim) any {
	switch {
	case !c.Subscribed:
		return "0"
	case s.notifier.sharded():
		return "2"
	}
	return "1"
}

// beginReply is begin's: a word, whole numbers, and of two words bytes of a record.
type beginReply struct {
	status  string
	numbers [5]int64
	rest    string
}

// parseBeginReply takes begin's answer apart.
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

// numberCount is how many numbers come behind a word.
func numberCount(word string) int {
	switch word {
	case "claimed":
		return 5
	case "in-progress", "unknown", "completed":
		return 1
	}
	return 0
}
