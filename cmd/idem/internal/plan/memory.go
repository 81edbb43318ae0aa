package plan

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Load is what a service asks of its Redis.
type Load struct {
	Rate      float64       // new keys per second
	Lease     time.Duration // Lease.Duration, and the TTL of the textbook's locks
	Handler   time.Duration // how long a handler runs
	Retention time.Duration // Keep.Retention
	Body      int           // the bytes of a response's body
	Headers   int           // the bytes of the header fields that are stored
	Ratio     float64       // of an outcome's size, after compression
	Quantum   Quantum
}

const (
	nameLength   = len("idem:{}") + driver.RecordNameLength
	claimLength  = 90 // of the record of a claim, see lua/record.lua
	headerLength = 58 // of a record with its outcome: what stands before that
	frameLength  = 10 // of an outcome, see core/outcome.go: format, flags, status 2, two counts, checksum 4

	objectLength = 16 // robj
	entryLength  = 24 // dictEntry: key, value, next
	bucketLength = 8

	textbookKey, textbookOwner, textbookStatus = 40, 36, 3
)

// part is some of the memory, and what for.
type part struct {
	bytes int
	what  string
}

type parts []part

func (p parts) sum() (sum int) {
	for _, part := range p {
		sum += part.bytes
	}
	return sum
}

// Quantum is the step of jemalloc's small sizes.
type Quantum int

// alloc is what jemalloc gives for n bytes: its sizes are a quantum apart, or an eighth of the next power of two if that is more.
func (q Quantum) alloc(n int) int {
	step := max(int(q), nextPower(n)/8)
	return (n + step - 1) / step * step
}

// key is one key of Redis with a string and a TTL. A string below 45 bytes lies in one piece with its object, and takes as
// much.
func (q Quantum) key(name, value int) parts {
	return parts{
		{q.alloc(entryLength), fmt.Sprintf("entry in the table of keys: %d", entryLength)},
		{q.alloc(entryLength), fmt.Sprintf("entry in the table of expiries: %d", entryLength)},
		{q.alloc(text(name)), fmt.Sprintf("name: %d, and %d around a string", name, text(name)-name)},
		{q.alloc(objectLength), fmt.Sprintf("object: %d", objectLength)},
		{q.alloc(text(value)), fmt.Sprintf("value: %s, and %d around a string", grouped(value), text(value)-value)},
	}
}

// claim is a record without an outcome.
func (q Quantum) claim() parts { return q.key(nameLength, claimLength) }

// completed is a record with an outcome.
func (q Quantum) completed(outcome int) parts { return q.key(nameLength, headerLength+outcome) }

// outcome is the length of what a store is given to keep.
func (l Load) outcome() int { return int(math.Ceil(l.Ratio * float64(frameLength+l.Headers+l.Body))) }

// text is the length of a string as sds keeps it: lengths and type before it, a zero behind.
func text(n int) int {
	switch {
	case n < 1<<8:
		return 3 + n + 1
	case n < 1<<16:
		return 5 + n + 1
	}
	return 9 + n + 1
}

// keys is how many keys there are at a time, of those that come at this rate and live so long.
func keys(rate float64, life time.Duration) int { return int(math.Ceil(rate * life.Seconds())) }

// tables is the memory of the buckets of both tables, between two doublings.
func tables(keys int) int { return 2 * bucketLength * buckets(keys) }

func buckets(keys int) int { return max(4, nextPower(keys)) }

// nextPower is the least power of two that is not below n.
func nextPower(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }
