package capture

import "github.com/go-idem/idem/core"

// memory is what an answer is held back in, to be used again for another when the answer is out. It is for one goroutine
// at a time.
type memory struct {
	lines [8]core.Field // most answers have no more
	body  []byte
}

// longMemory is the longest body whose memory is used again, in bytes.
const longMemory = 64 << 10

// clear forgets the answer, which nobody may use any more, and tells whether the memory is worth keeping: that of a body
// longer than 64 KiB is not.
func (m *memory) clear() bool {
	clear(m.lines[:])
	m.body = m.body[:0]
	return cap(m.body) <= longMemory
}
