package redisstore

import (
	"strconv"

	"github.com/go-idem/idem/core"
)

// The header of a record, as lua/record.lua describes it.
const (
	headerLength     = 90
	fingerprintStart = 42
	fingerprintEnd   = 74
)

// completedRecord is the whole string of a COMPLETED record. Its lease end is of no use any more.
func completedRecord(c *core.Claim, outcome []byte) []byte {
	b := make([]byte, 0, headerLength+len(outcome))
	b = append(b, '1', '2')
	b = append(b, flag(c.Takeover)...)
	b = append(b, '0')
	b = appendPadded(appendPadded(appendPadded(b, int64(c.Attempt), 6), c.Fence, 16), 0, 16)
	b = append(append(b, c.Fingerprint[:]...), c.Owner[:]...)
	return append(b, outcome...)
}

// appendPadded appends n as decimal text of at least width digits.
func appendPadded(b []byte, n int64, width int) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], n, 10)
	for range width - len(text) {
		b = append(b, '0')
	}
	return append(b, text...)
}

// outcomeOf takes the outcome out of a COMPLETED record of c's request; false when the record is another by now.
func outcomeOf[T string | []byte](record T, c *core.Claim) ([]byte, bool) {
	if len(record) < headerLength || record[1] != '2' || string(record[fingerprintStart:fingerprintEnd]) != string(c.Fingerprint[:]) {
		return nil, false
	}
	return []byte(record[headerLength:]), true
}
