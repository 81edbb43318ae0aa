package subject

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/lua"
)

// What every claim asks for, in the units of the scripts.
const (
	leaseMicros     = 30_000_000
	retentionMillis = 86_400_000
)

// The library's scripts, called without its store.
var (
	beginScript    = redis.NewScript(lua.Begin)
	completeScript = redis.NewScript(lua.Complete)
)

// Claim is one claim as the library's scripts see it.
type Claim struct {
	key         string
	owner       [16]byte
	fingerprint [32]byte
}

// NewClaim returns a claim of a random owner.
func NewClaim(key string) *Claim {
	c := &Claim{key: key, fingerprint: [32]byte{1}}
	_, _ = rand.Read(c.owner[:]) // cannot fail
	return c
}

// Begin sends the begin script. ParseBegin reads its result.
func (c *Claim) Begin(ctx context.Context, to redis.Scripter) *redis.Cmd {
	return beginScript.EvalSha(ctx, to, []string{c.key}, c.owner[:], c.fingerprint[:], leaseMicros, retentionMillis, "1", "0")
}

// Complete sends the complete script with the fence that Begin returned.
func (c *Claim) Complete(ctx context.Context, to redis.Scripter, fence int64, outcome []byte) *redis.Cmd {
	return completeScript.EvalSha(ctx, to, []string{c.key}, c.owner[:], fence, retentionMillis, c.record(fence, outcome))
}

// record is the COMPLETED record of a first run.
func (c *Claim) record(fence int64, outcome []byte) []byte {
	b := appendPadded(append(make([]byte, 0, HeadBytes+len(outcome)), '1', '2', '0', '0'), 1, 6)
	mark := c.owner
	binary.BigEndian.PutUint64(mark[8:], binary.BigEndian.Uint64(mark[8:])^uint64(fence))
	return append(append(append(b, mark[:]...), c.fingerprint[:]...), outcome...)
}

// HeadBytes is the length of a COMPLETED record before its outcome.
const HeadBytes = 58

// ParseBegin reads the result of a begin script. The fence is 0 unless the claim was granted; the record is nil unless it is
// part of the result.
func ParseBegin(cmd *redis.Cmd) (word string, fence int64, record []byte, err error) {
	text, err := cmd.Text()
	if err != nil {
		return "", 0, nil, fmt.Errorf("begin returned %v: %w", cmd.Val(), err)
	}
	if text[0] == '1' {
		return "completed", 0, []byte(text), nil
	}
	word, rest, _ := strings.Cut(text, " ")
	if word == "claimed" {
		number, _, _ := strings.Cut(rest, " ")
		fence, err = strconv.ParseInt(number, 10, 64)
	}
	return word, fence, nil, err
}

// rawCalls makes the two script calls that a guarded request needs around the handler, and does nothing else.
func rawCalls(client *redis.Client, p *Payments) handler {
	return func(ctx context.Context, key string, body func() []byte) reply {
		c := NewClaim("raw:{" + key + "}")
		word, fence, record, err := ParseBegin(c.Begin(ctx, client))
		switch {
		case err != nil:
			return unavailable
		case record != nil:
			return replayed(record[HeadBytes:])
		case word != "claimed":
			return conflict
		}
		return p.run(body, func(made []byte) error { return c.Complete(ctx, client, fence, made).Err() })
	}
}

// LoadScripts sends all scripts to a server, so that no subject pays for it.
func LoadScripts(ctx context.Context, client *redis.Client) error {
	for _, s := range []*redis.Script{beginScript, completeScript, pairBegin, pairComplete, unlockScript} {
		if err := s.Load(ctx, client).Err(); err != nil {
			return err
		}
	}
	return nil
}
