package redisstore

import (
	"encoding/binary"
	"strconv"

	"github.com/go-idem/idem/core/driver"
)

// Positions in the header of a record: see lua/record.lua.
const (
	headerLength     = 58
	fingerprintStart = 26
	fingerprintEnd   = 58
)

// completedRecord returns the whole string of a COMPLETED record. It contains owner XOR fence, so that only the claim that
// completed it can send the same record again. A fence of its own would need 16 bytes more, and no script needs the owner or
// the fence of an outcome.
func completedRecord(c *driver.Claim, outcome []byte) []byte {
	b := make([]byte, 0, headerLength+len(outcome))
	b = append(b, '1', '2')
	b = append(b, flag(c.Takeover)...)
	b = append(b, '0')
	mark := c.Owner
	binary.BigEndian.PutUint64(mark[8:], binary.BigEndian.Uint64(mark[8:])^uint64(c.Fence))
	b = append(appendPadded(b, int64(c.Attempt), 6), mark[:]...)
	return append(append(b, c.Fingerprint[:]...), outcome...)
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

// parseOutcome returns the outcome in a COMPLETED record of the request of c. It reports false if the record is no longer
// that. It compares the fingerprint once more, because GET and script are two commands: another request may have the key by
// now.
func parseOutcome(record string, c *driver.Claim) ([]byte, bool) {
	if !isCompleted(record) || record[fingerprintStart:fingerprintEnd] != string(c.Fingerprint[:]) {
		return nil, false
	}
	return []byte(record[headerLength:]), true
}

// isCompleted reports whether a record is COMPLETED and of format 1, so that its outcome follows its header.
func isCompleted(record string) bool {
	return len(record) >= headerLength && record[:2] == "12"
}
