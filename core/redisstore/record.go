package redisstore

import (
	"bytes"
	"fmt"

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

// fingerprintOf takes the fingerprint out of a record of another request than c's; false when the record is another by now.
func fingerprintOf(record []byte, c *core.Claim) (fingerprint [32]byte, ok bool) {
	if len(record) < headerLength {
		return fingerprint, false
	}
	copy(fingerprint[:], record[fingerprintStart:fingerprintEnd])
	return fingerprint, fingerprint != c.Fingerprint && fingerprint != [32]byte{}
}
