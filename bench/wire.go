package main

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

const (
	leaseMicros     = 30_000_000
	retentionMillis = 86_400_000
)

// The library's scripts, called without its store.
var (
	beginScript    = redis.NewScript(lua.Begin)
	completeScript = redis.NewScript(lua.Complete)
)

// wire is one claim as the scripts see it.
type wire struct {
	key         string
	owner       [16]byte
	fingerprint [32]byte
}

func newWire(key string) *wire {
	c := &wire{key: key, fingerprint: [32]byte{1}}
	_, _ = rand.Read(c.owner[:]) // cannot fail
	return c
}

func (c *wire) begin(ctx context.Context, to redis.Scripter) *redis.Cmd {
	return beginScript.EvalSha(ctx, to, []string{c.key}, c.beginArgs()...)
}

func (c *wire) beginArgs() []any {
	return []any{c.owner[:], c.fingerprint[:], leaseMicros, retentionMillis, "1", "0"}
}

func (c *wire) complete(ctx context.Context, to redis.Scripter, fence int64, outcome []byte) *redis.Cmd {
	return completeScript.EvalSha(ctx, to, []string{c.key}, c.completeArgs(fence, outcome)...)
}

func (c *wire) completeArgs(fence int64, outcome []byte) []any {
	return []any{c.owner[:], fence, retentionMillis, c.record(fence, outcome)}
}

// record is the COMPLETED record of a first run.
func (c *wire) record(fence int64, outcome []byte) []byte {
	b := appendPadded(append(make([]byte, 0, headBytes+len(outcome)), '1', '2', '0', '0'), 1, 6)
	mark := c.owner
	binary.BigEndian.PutUint64(mark[8:], binary.BigEndian.Uint64(mark[8:])^uint64(fence))
	return append(append(append(b, mark[:]...), c.fingerprint[:]...), outcome...)
}

const (
	headBytes  = 58 // of a COMPLETED record: what is behind them is the outcome
	claimBytes = 90 // of the record of a claim
)

// answer takes begin's answer apart. The fence is 0 unless the claim was given; the record is nil unless it came along.
func answer(cmd *redis.Cmd) (word string, fence int64, record []byte, err error) {
	text, err := cmd.Text()
	if err != nil {
		return "", 0, nil, fmt.Errorf("begin answered %v: %w", cmd.Val(), err)
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

// loadScripts makes a server know all scripts, so that no subject pays for it.
func loadScripts(ctx context.Context, client *redis.Client) error {
	scripts := []*redis.Script{beginScript, completeScript, pairBegin, pairComplete, hashBegin, hashComplete, unlockScript}
	for _, s := range append(scripts, redis.NewScript(lua.Fail), redis.NewScript(lua.Extend)) {
		if err := s.Load(ctx, client).Err(); err != nil {
			return err
		}
	}
	return nil
}
