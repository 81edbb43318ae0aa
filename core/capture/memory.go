package capture

import "github.com/go-idem/idem/core"

// Memory is what an answer is held back in, to be used again for another when the answer is out. It is for one goroutine
// at a time.
type Memory struct {
	Lines [8]core.Field // most answers have no more
	Body  []byte
}

// longMemory is the longest body whose memory is used again, in bytes.
const longMemory = 64 << 10

// Clear forgets the answer, which nobody may use any more, and tells whether the memory is worth keeping: that of a body
// longer than 64 KiB is not.
func (m *Memory) Clear() bool {
	clear(m.Lines[:])
	m.Body = m.Body[:0]
	return cap(m.Body) <= longMemory
}
