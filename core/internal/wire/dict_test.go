package wire

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/internal/sfv"
)

// What is in the table goes out as it is, and what an outcome refers to stays what it was.
func TestDictionaryEntriesAreSafeAndShort(t *testing.T) {
	assert.LessOrEqual(t, len(HeaderDict), 127, "a place is one byte")
	assert.Len(t, headerIndex, len(HeaderDict), "no line is there twice")
	for i, f := range HeaderDict {
		assert.True(t, sfv.IsToken(f.Name), "%q", f.Name)
		assert.False(t, strings.ContainsAny(f.Value, "\r\n\x00"), "%q", f)
		assert.Equal(t, strings.TrimSpace(f.Value), f.Value, "%q", f)
		assert.Equal(t, i+1, int(headerIndex[f]), "%q", f)
		length := len(AppendField(nil, f))
		assert.Equal(t, map[bool]int{true: 2, false: 1}[f.Value == ""], length, "%q", f)
	}
}

// Outcomes are kept that refer to these headerIndex. New ones are added at the end; then this sum is of more of them.
func TestDictionaryEntriesStayWhereTheyAre(t *testing.T) {
	const known, sum = 115, "d45069518da423ef"
	assert.Equal(t, sum, fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", HeaderDict[:known])))[:16])
}
