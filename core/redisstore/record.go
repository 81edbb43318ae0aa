package redisstore

import (
	"bytes"
	"fmt"

	"github.com/go-idem/idem/core"
)

// The header of a record, as lua/record.lua describes it.
const (
	headerLength     = 89
	fingerprintStart = 41
	fingerprintEnd   = 73
)

// completedRecord is the whole string of a COMPLETED record. Its lease end is of no use any more.
func completedRecord(c *core.Claim, outcome []byte) []byte {
	b := make([]byte, 0, headerLength+len(outcome))
	b = append(b, '1', '2')
	b = append(b, flag(c.Takeover)...)
	b = fmt.Appendf(b, "%06d%016d%016d", c.Attempt, c.Fence, 0)
	b = append(append(b, c.Fingerprint[:]...), c.Owner[:]...)
	return append(b, outcome...)
}

// outcomeOf takes the outcome out of a COMPLETED record of c's request; false when the record is another by now.
func outcomeOf(record []byte, c *core.Claim) ([]byte, bool) {
	if len(record) < headerLength || record[1] != '2' || !bytes.Equal(record[fingerprintStart:fingerprintEnd], c.Fingerprint[:]) {
		return nil, false
	}
	return record[headerLength:], true
}
