package recordname

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseInstanceReversesInstance(t *testing.T) {
	t.Parallel()
	name := [32]byte{0: 1, 8: 2, 20: 0xFF, 31: 3}
	instance := Instance(name)
	text := strings.TrimPrefix(instance, "urn:idem:")
	for _, accepted := range []string{instance, text} {
		part, ok := ParseInstance(accepted)
		assert.True(t, ok, accepted)
		assert.Equal(t, name[8:], part[:])
	}
	for what, refused := range map[string]string{
		"nothing":                    "",
		"the beginning alone":        "urn:idem:",
		"another beginning":          "urn:other:" + text,
		"a letter less":              instance[:len(instance)-1],
		"a letter more":              instance + "A",
		"another letter":             "*" + text[1:],
		"a line break":               "\n" + text[1:],
		"a line break for bits of 0": "\n" + strings.Repeat("A", 31),
		"line breaks behind":         text + "\n",
		"the beginning twice":        "urn:idem:" + instance,
		"a name with its dot":        "AAAAAAAAAAA." + text,
		"padding in its place":       text[:len(text)-1] + "=",
	} {
		_, ok := ParseInstance(refused)
		assert.False(t, ok, what)
	}
}
