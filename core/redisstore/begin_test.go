package redisstore

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

// FuzzAnswer reads begin's answers.
func FuzzAnswer(f *testing.F) {
	for _, first := range []string{"/", "0", "9", ":"} { // beside and at the ends of the digits
		f.Add(first + "2")
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, ok := oracleAnswer(text)
		a, err := parseBeginReply(text)
		if !ok {
			require.Error(t, err)
			require.Zero(t, a)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, a)
		if a.status == "completed" {
			readsOutcomesOfItsRequest(t, a.rest)
			return
		}
		entry, err := entryFrom(a)
		known := slices.Contains([]string{"claimed", "in-progress", "unknown", "mismatch", "expired"}, a.status)
		assert.Equal(t, known, err == nil, "%q: %v", text, err)
		assert.Equal(t, a.status == "claimed", err == nil && entry.State == driver.Claimed)
	})
}

// readsOutcomesOfItsRequest shows that a record is read by a claim of its own fingerprint alone.
func readsOutcomesOfItsRequest(t *testing.T, record string) {
	var own driver.Claim
	if len(record) >= headerLength {
		copy(own.Fingerprint[:], record[fingerprintStart:fingerprintEnd])
	}
	outcome, ok := parseOutcome(record, &own)
	require.Equal(t, len(record) >= headerLength && record[:2] == "12", ok)
	if ok {
		assert.Equal(t, record[headerLength:], string(outcome))
	}
	own.Fingerprint[31] ^= 1
	_, ok = parseOutcome(record, &own)
	assert.False(t, ok, "the outcome of another request")
}

var oracleNumbers = map[string]int{"claimed": 5, "in-progress": 1, "unknown": 1, "completed": 1}

// oracleAnswer reads an answer in another way: split at as many spaces as its word has numbers, and one more.
func oracleAnswer(text string) (a beginReply, ok bool) {
	if strings.IndexAny(text, "0123456789") == 0 {
		return beginReply{status: "completed", rest: text}, true
	}
	word, _, _ := strings.Cut(text, " ")
	n := oracleNumbers[word]
	parts := append(strings.SplitN(text, " ", n+2), "")
	if len(parts) < n+2 {
		return beginReply{}, false
	}
	a.status, a.rest = word, parts[n+1]
	for i, number := range parts[1 : n+1] {
		var err error
		if a.numbers[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return beginReply{}, false
		}
	}
	if word == "mismatch" {
		return a, len(a.rest) == 32
	}
	return a, a.rest == "" || word == "completed"
}
