package redisstore

import (
	"encoding/binary"
	"strconv"

	"github.com/go-idem/idem/core/driver"
)

// The header of every record, as lua/record.lua describes it.
const (
	headerLength     = 58
	fingerprintStart = 26
	fingerprintEnd   = 58
)

// completedRecord is the whole string of a COMPLETED record. Owner and fence are in it as one, so that only the claim that
// completed can make it again.
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

// parseOutcome takes the outcome out of a COMPLETED record of c's request; false when the record is another by now.
func parseOutcome[T string | []byte](record T, c *driver.Claim) ([]byte, bool) {
	if len(record) < headerLength || record[1] != '2' || string(record[fingerprintStart:fingerprintEnd]) != string(c.Fingerprint[:]) {
		return nil, false
	}
	return []byte(record[headerLength:]), true
}
