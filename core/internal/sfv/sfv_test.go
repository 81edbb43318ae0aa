package sfv

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestString(t *testing.T) {
	for line, want := range map[string]string{
		`"a"`:                         "a",
		`""`:                          "",
		`"a b;c=1"`:                   "a b;c=1",
		`"\"\\"`:                      `"\`,
		`"a\\b\"c"`:                   `a\b"c`,
		`"a";b`:                       "a",
		`"a";  b=?1;*c=1.5;d=-9`:      "a",
		`"a";b="x\"y";c=*t/o:k`:       "a",
		`"a";b=:YQ==:;c=:YQ:;d=::`:    "a",
		`"a";b=@1659578233;c=@-1`:     "a",
		`"a";b=%"f%c3%bc";c=%""`:      "a",
		`"a";b=999999999999999`:       "a",
		`"a";b=999999999999.999;b=-0`: "a",
		`"a";b9_-.*=1`:                "a",
		`"a";b=:0189:;c=:+/+/:`:       "a",
		`"a";b=%" ~f%22"`:             "a",
	} {
		got, ok := String(line)
		assert.True(t, ok, line)
		assert.Equal(t, want, got, line)
	}
}

func TestStringRefusesWhatIsMalformed(t *testing.T) {
	for _, line := range []string{
		``, `a`, `a"`, `"`, `"a`, `"a\`, `"a\x"`, `"a"b`, `"a" `, ` "a"`, `"a", "b"`, `("a")`, `:YQ==:`, `?1`, `1`,
		"\"a\tb\"", "\"\x7f\"", "\"ü\"", "\"a\x00\"",
		`"a";`, `"a" ;b`, `"a";B`, `"a";1=b`, "\"a\";\tb", `"a";b=`, `"a";b= 1`, `"a";b=(1)`, `"a";b=1;`,
		`"a";b=1000000000000000`, `"a";b=1000000000000.0`, `"a";b=1.2345`, `"a";b=1.`, `"a";b=.5`, `"a";b=-`, `"a";b=--1`,
		`"a";b=?2`, `"a";b=?`, `"a";b=:YQ==`, `"a";b=:Y:`, `"a";b=:YQ==YQ==:`, `"a";b=:YW_-:`, `"a";b=@`, `"a";b=@1.5`,
		`"a";b=%`, `"a";b=%a`, `"a";b=%"a`, `"a";b=%"%C3%BC"`, `"a";b=%"%c"`, `"a";b=%"%zz"`, `"a";b=%"%c3"`, "\"a\";b=%\"ü\"",
		`"a";b=;c=1`, `"a";b=-.5`, `"a";b=%a"`, `"a";b=%"%`, `"a";b=%"%;c=1`, "\"a\";b=%\"\x1f\"", "\"a\";b=%\"\x7f\"",
	} {
		_, ok := String(line)
		assert.False(t, ok, line)
	}
}

func TestIsToken(t *testing.T) {
	for _, token := range []string{"a", "Idempotency-Key", "1", "!#$%&'*+-.^_`|~09azAZ"} {
		assert.True(t, IsToken(token), token)
	}
	for _, text := range []string{
		"", " ", "a b", "a:", "a/b", "(a)", "a\"", "a\\", "ü", "a\n", "a\x00", "a\x7f", "a,b", "a;b", "a=b", "a@b", "[a]", "{a}",
	} {
		assert.False(t, IsToken(text), text)
	}
}

// printed returns the String of RFC 9651 that stands for a text.
func printed(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// Whatever is parsed can be printed and parsed again, and another implementation reads the same.
func FuzzString(f *testing.F) {
	for _, line := range []string{`"a"`, `"\"\\"`, `"a";b=?1;c=1.5`, `"a";b=:YQ==:`, `"a";b=%"f%c3%bc"`, `"a";b=@1`, `"a"b`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		text, ok := String(line)
		if !ok {
			return
		}
		again, ok := String(printed(text))
		require.True(t, ok, "%q", text)
		require.Equal(t, text, again)
		item, err := httpsfv.UnmarshalItem([]string{printed(text)})
		require.NoError(t, err)
		require.Equal(t, text, item.Value)
	})
}
