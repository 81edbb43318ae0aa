package core

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
)

// keyCases are header lines and what they mean, under the default bounds.
var keyCases = []struct {
	check, name  string
	lines        []string
	key, problem string
}{
	{"KEY-02", "no line at all", nil, "", codeKeyMissing},

	{"KEY-05", "a quoted key", []string{`"K"`}, "K", ""},
	{"KEY-05", "a quoted key may have spaces, commas and semicolons inside", []string{`"a b, c; d"`}, "a b, c; d", ""},
	{"KEY-06", "a bare key is the same key", []string{`K`}, "K", ""},
	{"KEY-06", "a bare UUID", []string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, "8e03978e-40d5-43e8-bc93-6894a57f9324", ""},
	{"KEY-06", "a bare key may have a backslash", []string{`a\b`}, `a\b`, ""},
	{"KEY-17", "case is kept", []string{"aBc"}, "aBc", ""},

	{"KEY-08", "escaped quote and backslash", []string{`"a\"b\\c"`}, `a"b\c`, ""},
	{"KEY-08", "escapes side by side", []string{`"\\\""`}, `\"`, ""},
	{"KEY-08", "nothing else is escaped", []string{`"a\xb"`}, "", codeKeyMalformed},
	{"KEY-08", "an escape without an end", []string{`"a\`}, "", codeKeyMalformed},
	{"KEY-08", "an escaped quote does not end", []string{`"a\"`}, "", codeKeyMalformed},

	{"KEY-09", "a string without an end", []string{`"abc`}, "", codeKeyMalformed},
	{"KEY-09", "a quote alone", []string{`"`}, "", codeKeyMalformed},
	{"KEY-09", "something behind the string", []string{`"abc"x`}, "", codeKeyMalformed},
	{"KEY-09", "a second string behind the first", []string{`"abc" "def"`}, "", codeKeyMalformed},
	{"KEY-09", "a list of strings", []string{`"a", "b"`}, "", codeKeyMalformed},
	{"KEY-09", "a list of bare keys", []string{`a, b`}, "", codeKeyMalformed},
	{"KEY-09", "a list without a space", []string{`a,b`}, "", codeKeyMalformed},
	{"KEY-09", "an inner list", []string{`("a" "b")`}, "", codeKeyMalformed},
	{"KEY-09", "a quote inside a bare key", []string{`a"b`}, "", codeKeyMalformed},
	{"KEY-09", "a quote behind a bare key", []string{`ab"`}, "", codeKeyMalformed},

	{"KEY-10", "a parameter", []string{`"K";v=2`}, "K", ""},
	{"KEY-10", "a parameter without a value", []string{`"K";v`}, "K", ""},
	{"KEY-10", "a parameter twice", []string{`"K";v=1;v=2`}, "K", ""},
	{"KEY-10", "spaces before a parameter's name", []string{`"K";  v=2`}, "K", ""},
	{"KEY-10", "every byte of a parameter's name", []string{`"K";*a_-.*9=1`}, "K", ""},
	{"KEY-10", "integers", []string{`"K";a=0;b=-42;c=999999999999999;d=-0`}, "K", ""},
	{"KEY-10", "decimals", []string{`"K";a=1.5;b=-0.125;c=999999999999.999`}, "K", ""},
	{"KEY-10", "a string", []string{`"K";a="x\"y\\z;"`}, "K", ""},
	{"KEY-10", "tokens", []string{`"K";a=tok;b=*t/o:k;c=A!#$%&'*+-.^_` + "`|~"}, "K", ""},
	{"KEY-10", "byte sequences", []string{`"K";a=:YWJj:;b=::;c=:YQ==:`}, "K", ""},
	{"KEY-10", "a byte sequence without padding", []string{`"K";a=:YQ:`}, "K", ""},
	{"KEY-10", "booleans", []string{`"K";a=?0;b=?1`}, "K", ""},
	{"KEY-10", "dates", []string{`"K";a=@1659578233;b=@-1`}, "K", ""},
	{"KEY-10", "display strings", []string{`"K";a=%"f%c3%bc%22";b=%""`}, "K", ""},

	{"KEY-10", "parameters need a quoted key", []string{`K;v=2`}, "", codeKeyMalformed},
	{"KEY-10", "a parameter without a name", []string{`"K";`}, "", codeKeyMalformed},
	{"KEY-10", "a name in upper case", []string{`"K";V=2`}, "", codeKeyMalformed},
	{"KEY-10", "a name that begins with a digit", []string{`"K";2=v`}, "", codeKeyMalformed},
	{"KEY-10", "a value that is not there", []string{`"K";v=`}, "", codeKeyMalformed},
	{"KEY-10", "a value of no type", []string{`"K";v=(1)`}, "", codeKeyMalformed},
	{"KEY-10", "a space before the semicolon", []string{`"K" ;v=2`}, "", codeKeyMalformed},
	{"KEY-10", "a space before the value", []string{`"K";v= 2`}, "", codeKeyMalformed},
	{"KEY-10", "a tab before the name", []string{"\"K\";\tv=2"}, "", codeKeyMalformed},
	{"KEY-10", "an integer of 16 digits", []string{`"K";v=1000000000000000`}, "", codeKeyMalformed},
	{"KEY-10", "a minus alone", []string{`"K";v=-`}, "", codeKeyMalformed},
	{"KEY-10", "two minuses", []string{`"K";v=--1`}, "", codeKeyMalformed},
	{"KEY-10", "a decimal of 13 digits", []string{`"K";v=1000000000000.0`}, "", codeKeyMalformed},
	{"KEY-10", "a decimal with four places", []string{`"K";v=1.2345`}, "", codeKeyMalformed},
	{"KEY-10", "a decimal with no places", []string{`"K";v=1.`}, "", codeKeyMalformed},
	{"KEY-10", "a decimal with two points", []string{`"K";v=1.2.3`}, "", codeKeyMalformed},
	{"KEY-10", "a decimal that begins with its point", []string{`"K";v=.5`}, "", codeKeyMalformed},
	{"KEY-10", "a string without an end as value", []string{`"K";v="x`}, "", codeKeyMalformed},
	{"KEY-10", "a byte sequence without an end", []string{`"K";v=:YWJj`}, "", codeKeyMalformed},
	{"KEY-10", "a byte sequence of one letter", []string{`"K";v=:Y:`}, "", codeKeyMalformed},
	{"KEY-10", "a byte sequence padded in the middle", []string{`"K";v=:YQ==YQ==:`}, "", codeKeyMalformed},
	{"KEY-10", "a byte sequence of another alphabet", []string{`"K";v=:YW_-:`}, "", codeKeyMalformed},
	{"KEY-10", "a boolean that is neither", []string{`"K";v=?2`}, "", codeKeyMalformed},
	{"KEY-10", "a boolean without an end", []string{`"K";v=?`}, "", codeKeyMalformed},
	{"KEY-10", "a date with places", []string{`"K";v=@1.5`}, "", codeKeyMalformed},
	{"KEY-10", "a date without a number", []string{`"K";v=@`}, "", codeKeyMalformed},
	{"KEY-10", "a display string without quotes", []string{`"K";v=%a`}, "", codeKeyMalformed},
	{"KEY-10", "a display string without an end", []string{`"K";v=%"a`}, "", codeKeyMalformed},
	{"KEY-10", "a display string in upper-case hex", []string{`"K";v=%"%C3%BC"`}, "", codeKeyMalformed},
	{"KEY-10", "a display string with half an octet", []string{`"K";v=%"%c"`}, "", codeKeyMalformed},
	{"KEY-10", "a display string cut inside an octet", []string{`"K";v=%"%c`}, "", codeKeyMalformed},
	{"KEY-10", "a display string that is not hex", []string{`"K";v=%"%zz"`}, "", codeKeyMalformed},
	{"KEY-10", "a display string that is not UTF-8", []string{`"K";v=%"%c3"`}, "", codeKeyMalformed},
	{"KEY-10", "a display string with a raw byte", []string{"\"K\";v=%\"\xc3\xbc\""}, "", codeKeyMalformed},

	{"KEY-11", "two keys", []string{"K1", "K2"}, "", codeKeyRepeated},
	{"KEY-11", "one key twice", []string{"K", "K"}, "", codeKeyRepeated},
	{"KEY-11", "a key and an empty line", []string{"K", ""}, "", codeKeyRepeated},
	{"KEY-11", "a string that would end on the next line", []string{`"a`, `b"`}, "", codeKeyRepeated},

	{"KEY-12", "an empty line", []string{""}, "", codeKeyEmpty},
	{"KEY-12", "an empty string", []string{`""`}, "", codeKeyEmpty},
	{"KEY-12", "an empty string with a parameter", []string{`"";v=2`}, "", codeKeyEmpty},
	{"KEY-12", "spaces", []string{"   "}, "", codeKeyEmpty},
	{"KEY-12", "tabs", []string{"\t\t"}, "", codeKeyEmpty},
	{"KEY-12", "spaces in quotes", []string{`"   "`}, "", codeKeyEmpty},

	{"KEY-13", "255 bytes", []string{strings.Repeat("k", 255)}, strings.Repeat("k", 255), ""},
	{"KEY-13", "256 bytes", []string{strings.Repeat("k", 256)}, "", codeKeyTooLong},
	{"KEY-13", "quotes do not count", []string{`"` + strings.Repeat("k", 255) + `"`}, strings.Repeat("k", 255), ""},
	{"KEY-13", "256 quoted bytes", []string{`"` + strings.Repeat("k", 256) + `"`}, "", codeKeyTooLong},
	{"KEY-13", "an escape counts as what it stands for", []string{`"` + strings.Repeat(`\\`, 255) + `"`}, strings.Repeat(`\`, 255), ""},
	{"KEY-13", "parameters do not count", []string{`"K";v="` + strings.Repeat("v", 300) + `"`}, "K", ""},

	{"KEY-16", "spaces and tabs around a bare key", []string{" \t K \t "}, "K", ""},
	{"KEY-16", "spaces and tabs around a quoted key", []string{" \t\"K\"\t "}, "K", ""},
	{"KEY-16", "spaces around a key with parameters", []string{` "K";v=2 `}, "K", ""},
	{"KEY-16", "spaces inside quotes belong to the key", []string{`" K "`}, " K ", ""},
	{"KEY-16", "a space inside a bare key", []string{"a b"}, "", codeKeyMalformed},
}

func TestKeyIsReadFromItsLines(t *testing.T) {
	for _, c := range keyCases {
		t.Run(c.check+" "+c.name, func(t *testing.T) {
			key, problem := (&KeyConfig{MinLength: 1, MaxLength: 255}).parse(c.lines)
			assert.Equal(t, c.problem, problem)
			assert.Equal(t, c.key, key)
		})
	}
}

// KEY-15: no byte but visible ASCII, and spaces in quotes, ever becomes part of a key.
func TestKeyIsMadeOfVisibleASCII(t *testing.T) {
	for b := range 256 {
		c := string([]byte{byte(b)})
		_, problem := (&KeyConfig{MinLength: 1, MaxLength: 255}).parse([]string{"a" + c + "z"})
		assert.Equal(t, b > ' ' && b < 0x7F && !strings.Contains(`",;`, c), problem == "", "bare %#x: %q", b, problem)

		_, problem = (&KeyConfig{MinLength: 1, MaxLength: 255}).parse([]string{`"a` + c + `z"`})
		assert.Equal(t, b >= ' ' && b < 0x7F && !strings.Contains(`"\`, c), problem == "", "quoted %#x: %q", b, problem)
	}
}

// KEY-13, KEY-14.
func TestKeyIsAsLongAsItMayBe(t *testing.T) {
	for _, c := range []struct {
		length, min, max int
		want             string
	}{
		{19, 20, 30, codeKeyTooShort},
		{20, 20, 30, ""},
		{30, 20, 30, ""},
		{31, 20, 30, codeKeyTooLong},
		{20, 20, 20, ""},
		{0, 20, 30, codeKeyEmpty},
	} {
		key := strings.Repeat("k", c.length)
		for _, line := range []string{key, `"` + key + `"`, "\t" + key + " "} {
			_, problem := (&KeyConfig{MinLength: c.min, MaxLength: c.max}).parse([]string{line})
			assert.Equal(t, c.want, problem, "%d bytes within %d and %d: %q", c.length, c.min, c.max, line)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, c := range keyCases {
		if len(c.lines) == 1 {
			f.Add(c.lines[0])
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		wantKey, wantProblem := oracleKey(line)
		key, problem := (&KeyConfig{MinLength: 1, MaxLength: math.MaxInt}).parse([]string{line})
		assert.Equal(t, wantProblem, problem, "%q", line)
		assert.Equal(t, wantKey, key, "%q", line)

		bounded, problem := (&KeyConfig{MinLength: 8, MaxLength: 16}).parse([]string{line})
		assert.Equal(t, wantProblem == "" && len(key) >= 8 && len(key) <= 16, problem == "", "%q: %s", line, problem)
		assert.True(t, bounded == key || bounded == "", "%q gives %q within bounds and %q without", line, bounded, key)
	})
}

// FuzzReadKey reads the lines of Header and of two aliases; each text is its lines, one behind each line break.
func FuzzReadKey(f *testing.F) {
	for _, c := range keyCases {
		lines := linesOf(c.lines)
		f.Add(lines, "", "")
		f.Add("", lines, "")
		f.Add("\nK", "", lines)
		f.Add(lines, lines, lines)
	}
	f.Fuzz(func(t *testing.T, header, first, second string) {
		names := map[string]string{"Key": header, "First": first, "Second": second}
		k := &KeyConfig{Header: "Key", Aliases: []string{"First", "Second"}, MinLength: 1, MaxLength: math.MaxInt}
		key, problem := k.read(&Request{Header: func(name string) []string { return strings.Split(names[name], "\n")[1:] }})
		wantKey, wantProblem := oracleKeys(header, first, second)
		assert.Equal(t, wantProblem, problem, "%q, %q, %q", header, first, second)
		assert.Equal(t, wantKey, key, "%q, %q, %q", header, first, second)
	})
}

func linesOf(lines []string) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString("\n" + line)
	}
	return text.String()
}

// oracleKeys reads headers in another way: the first one that is wrong counts, then how many keys the others make.
func oracleKeys(headers ...string) (key, problem string) {
	var keys []string
	for _, lines := range headers {
		switch _, line, _ := strings.Cut(lines, "\n"); {
		case !strings.Contains(lines, "\n"):
			continue
		case strings.Contains(line, "\n"):
			return "", codeKeyRepeated
		default:
			key, problem = oracleKey(line)
		}
		if problem != "" {
			return "", problem
		}
		if keys = append(keys, key); key != keys[0] {
			return "", codeKeyRepeated
		}
	}
	if len(keys) == 0 {
		return "", codeKeyMissing
	}
	return keys[0], ""
}

// FuzzStrictKey: Strict takes what a parser of structured fields reads as a String, and nothing else; what it takes is the same
// key without Strict, which takes bare keys besides: where that parser reads them as a Token, as the same text.
func FuzzStrictKey(f *testing.F) {
	for _, c := range keyCases {
		for _, line := range c.lines {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		strict, strictProblem := (&KeyConfig{Strict: true, MinLength: 1, MaxLength: math.MaxInt}).parse([]string{line})
		lenient, lenientProblem := (&KeyConfig{MinLength: 1, MaxLength: math.MaxInt}).parse([]string{line})
		item, err := unmarshalItem(strings.Trim(line, " \t"))
		text, isString := item.Value.(string)
		isKey := err == nil && isString && strings.Trim(text, " ") != ""
		assert.Equal(t, isKey, strictProblem == "", "%q: %s", line, strictProblem)
		if isKey {
			assert.Equal(t, []string{text, text, ""}, []string{strict, lenient, lenientProblem}, "%q", line)
			return
		}
		assert.Empty(t, strict, "%q", line)
		if token, ok := item.Value.(httpsfv.Token); ok && err == nil && lenientProblem == "" {
			assert.Equal(t, string(token), lenient, "%q", line)
		}
		if lenientProblem == "" {
			assert.Regexp(t, bareKey, lenient, "%q", line)
		}
	})
}

var bareKey = regexp.MustCompile(`^[!#-+\--:<-~]*$`) // visible ASCII but quote, comma and semicolon

// oracleKey reads a line of any length in another way: with an independent parser of structured fields when it begins
// with a quote, with a pattern when it does not.
func oracleKey(line string) (key, problem string) {
	line = strings.Trim(line, " \t")
	if strings.HasPrefix(line, `"`) {
		item, err := unmarshalItem(line)
		if err != nil {
			return "", codeKeyMalformed
		}
		key = item.Value.(string)
	} else if key = line; !bareKey.MatchString(line) {
		return "", codeKeyMalformed
	}
	if strings.Trim(key, " ") == "" {
		return "", codeKeyEmpty
	}
	return key, ""
}

// unmarshalItem is httpsfv.UnmarshalItem but for one thing. RFC 9651, section 4.2.7, synthesizes the padding of a Byte
// Sequence where it is missing, and RFC 4648, section 3.3, lets a reader ignore too much of it; httpsfv refuses both. A
// sequence that it refuses is padded and read again; whatever else is wrong with it stays wrong.
func unmarshalItem(line string) (httpsfv.Item, error) {
	item, err := httpsfv.UnmarshalItem([]string{line})
	var corrupt base64.CorruptInputError
	if !errors.As(err, &corrupt) {
		return item, err
	}
	if padded := padSequence(line, err); padded != line {
		return unmarshalItem(padded)
	}
	return item, err
}

// padSequence pads the Byte Sequence that err of httpsfv speaks of. Its text ends with where the sequence does.
func padSequence(line string, err error) string {
	text := err.Error()
	end, _ := strconv.Atoi(text[strings.LastIndexByte(text, ' ')+1:])
	begin := strings.LastIndexByte(line[:end], ':') + 1
	digits := strings.TrimRight(line[begin:end], "=")
	return line[:begin] + digits + strings.Repeat("=", -len(digits)&3) + line[end:]
}

func TestOracleReadsSequencesWithoutPadding(t *testing.T) {
	for sequence, ok := range map[string]bool{"": true, "YQ": true, "YQ=": true, "YQ==": true, "YWJj": true, "Y": false, "Y===": false, "Y=Q": false} {
		_, err := unmarshalItem(fmt.Sprintf(`"a:b";x=:YWI:;v=:%s:`, sequence))
		assert.Equal(t, ok, err == nil, "%q: %v", sequence, err)
	}
}
