package wire

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// place returns the place of a field in the dictionary, as an outcome has it.
func place(t *testing.T, f Field) byte {
	t.Helper()
	at := slices.Index(HeaderDict[:], f)
	assert.GreaterOrEqual(t, at, 0)
	return byte(at + 1)
}

// What is malformed stays so, whatever follows it, and nothing that follows is read outside of the data.
func TestWhatFollowsSomethingMalformedMakesItNoBetter(t *testing.T) {
	t.Parallel()
	name := place(t, Field{Name: "Content-Type"})
	field := place(t, Field{Name: "Content-Type", Value: "application/json"})
	long := append([]byte{0, 100}, make([]byte, 100)...)
	for what, test := range map[string]struct {
		names, fields []byte
		malformed     bool
	}{
		"nothing malformed":                        {[]byte{2, name, name}, []byte{1, field}, false},
		"an entry with a value as name":            {[]byte{2, field, name}, []byte{1, field}, true},
		"such an entry before a text":              {append([]byte{2, field}, 0, 1, 'a'), []byte{1, field}, true},
		"a name that is no token":                  {append([]byte{2, 0, 1, ' '}, 0, 1, 'a'), []byte{1, field}, true},
		"a place behind the dictionary":            {[]byte{2, 255, 1, name}, []byte{1, field}, true},
		"an entry with a value before a long text": {append([]byte{3, field, name}, long...), []byte{1, field}, true},
		"a value with a line break":                {[]byte{1, name}, append([]byte{2, name, 1, '\n'}, field), true},
		"more names than bytes":                    {[]byte{200, 1}, []byte{1, field}, true},
	} {
		outcome := slices.Concat(test.names, test.fields)
		d := NewDecoder(outcome, 0)
		d.ReadTexts()
		for n := d.Count(); n > 0; n-- {
			d.Name()
		}
		for n := d.Count(); n > 0; n-- {
			d.Field()
		}
		assert.Equal(t, test.malformed, d.Malformed, what)
	}
}
