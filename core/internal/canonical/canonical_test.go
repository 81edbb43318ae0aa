package canonical

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// spellings say the same, and something else than those of every other case. Fingerprints outlive the process that made
// them: a form that changes needs another tag.
type spellings struct {
	check, name, form string
	texts             []string
}

func testSpellings(t *testing.T, canonical func(string) (string, bool), cases []spellings) {
	t.Helper()
	owners := map[string]string{}
	for _, c := range cases {
		t.Run(c.check+" "+c.name, func(t *testing.T) {
			assert.NotContains(t, owners, c.form, "two cases of one form")
			owners[c.form] = c.name
			for _, text := range append(c.texts, c.form) {
				form, ok := canonical(text)
				assert.True(t, ok, "%q", text)
				assert.Equal(t, c.form, form, "%q", text)
			}
		})
	}
}

func canonicalJSONText(text string) (string, bool) {
	form, ok := JSON([]byte(text))
	return string(form), ok
}

var jsonSpellings = []spellings{
	{"FPR-06", "space around everything", `{"a":[1,{"b":2}]}`, []string{" \t\r\n{ \"a\" :\n[ 1\t,\r{ \"b\" : 2 } ] } \n"}},
	{"FPR-06", "members in any order", `{"a":1,"b":2,"c":3}`, []string{`{"c":3,"a":1,"b":2}`, `{"b":2,"c":3,"a":1}`}},
	{"FPR-06", "values belong to their names", `{"a":2,"b":1}`, []string{`{"b":1,"a":2}`}},
	{"FPR-06", "members in any order at every depth", `{"a":[{"c":{"d":1,"e":2},"f":3},{"g":4}],"b":{"h":5,"i":{}},"j":"k"}`,
		[]string{`{"j":"k","b":{"i":{},"h":5},"a":[{"f":3,"c":{"e":2,"d":1}},{"g":4}]}`}},
	{"FPR-06", "members with escapes in their names", `{"A":2,"\"":3,"\\":4,"\n":1}`, []string{`{"\u005C":4,"\u000a":1,"\u0041":2,"\u0022":3}`}},
	{"FPR-06", "a name that begins with another", `{"a!":2,"a":1,"aa":3}`, []string{`{"aa":3,"a!":2,"a":1}`, `{"a":1,"a!":2,"aa":3}`}},
	{"FPR-06", "an object", `{}`, []string{" { } "}},
	{"FPR-06", "an object in an object", `{"":{}}`, []string{`{"" : { } }`}},
	{"FPR-06", "objects side by side", `[{},{"a":{}},{}]`, []string{` [ { } , { "a" : { } } , { } ] `}},

	{"FPR-07", "one", `1`, []string{`1.0`, `1e0`, `1E+0`, `1e-0`, `10e-1`, `0.1e1`, `0.01e2`, `100.00e-002`, `1e0000000000000000000000000`}},
	{"FPR-07", "minus one", `-1`, []string{`-1.0`, `-10E-1`}},
	{"FPR-07", "zero, which has no sign", `0`, []string{`-0`, `0.0`, `-0.000e5`, `0e-7`, `0e9223372036854775807`}},
	{"FPR-07", "ten", `1e1`, []string{`10`, `10.0`, `0.1e2`, `1E+01`}},
	{"FPR-07", "a tenth", `1e-1`, []string{`0.1`, `0.10`, `1e-01`, `100e-3`}},
	{"FPR-07", "a tenth and a bit", `10000000000000000001e-20`, []string{`0.10000000000000000001`}},
	{"FPR-07", "an integer that float64 has", `9007199254740992`, []string{`9007199254740992.0`}},
	{"FPR-07", "an integer that float64 has not", `9007199254740993`, []string{`9007199254740993.0`}},
	{"FPR-07", "zeros inside", `-1020304e-3`, []string{`-1020.304`, `-1020.30400`}},
	{"FPR-07", "more than float64 can hold", `1e400`, []string{`10e399`, `0.1E401`}},
	{"FPR-07", "more than that", `1e401`, []string{`1e+401`}},
	{"FPR-07", "less than float64 can hold", `1e-400`, []string{`0.001e-397`}},
	{"FPR-07", "the greatest exponent", `1e1000000000000000000`, []string{`0.1e1000000000000000001`, `10e999999999999999999`}},
	{"FPR-07", "the least exponent", `1e-1000000000000000000`, []string{`10e-1000000000000000001`, `0.1e-999999999999999999`}},

	{"FPR-07", "order of an array", `[1,2]`, []string{`[1.0,2]`}},
	{"FPR-07", "order of an array the other way round", `[2,1]`, []string{`[2, 1]`}},
	{"FPR-07", "nesting of an array", `[[1],2]`, []string{` [ [ 1 ] , 2 ] `}},
	{"FPR-07", "nesting of an array elsewhere", `[1,[2]]`, nil},
	{"FPR-07", "an array", `[]`, []string{"[\n]"}},
	{"FPR-07", "an array in an array", `[[]]`, nil},
	{"FPR-07", "a member that is null", `{"a":null}`, []string{`{"\u0061":null}`}},
	{"FPR-07", "an element that is null", `[null]`, nil},
	{"FPR-07", "null", `null`, []string{" null "}},
	{"FPR-07", "true", `true`, []string{"true\n"}},
	{"FPR-07", "false", `false`, []string{"\tfalse"}},
	{"FPR-07", "a word in quotes", `"true"`, nil},
	{"FPR-07", "a number in quotes", `"1"`, nil},
	{"FPR-07", "another number in quotes", `"1.0"`, nil},

	{"FPR-07", "letters", `"A"`, []string{`"\u0041"`}},
	{"FPR-07", "letters in another case", `"a"`, []string{`"\u0061"`}},
	{"FPR-07", "a slash", `"/"`, []string{`"\/"`, `"\u002f"`, `"\u002F"`}},
	{"FPR-07", "a quote", `"\""`, []string{`"\u0022"`}},
	{"FPR-07", "a backslash", `"\\"`, []string{`"\u005c"`}},
	{"FPR-07", "what looks like an escape", `"\\u0041"`, []string{`"\u005cu0041"`}},
	{"FPR-07", "controls with short escapes", `"\b\f\n\r\t"`, []string{`"\u0008\u000C\u000a\u000D\u0009"`}},
	{"FPR-07", "controls without", `"\u0000\u001f"`, []string{`"\u0000\u001F"`}},
	{"FPR-07", "a space", `" a "`, []string{`"\u0020a\u0020"`}},
	{"FPR-07", "delete is no control", "\"\x7f\"", []string{`"\u007f"`}},
	{"FPR-07", "a letter of two bytes", `"é"`, []string{`"\u00e9"`, `"\u00E9"`}},
	{"FPR-07", "a letter and a mark", "\"e\u0301\"", []string{`"e\u0301"`}},
	{"FPR-07", "a pair of surrogates", `"😀"`, []string{`"\ud83d\ude00"`, `"\uD83D\uDE00"`}},
	{"FPR-07", "the replacement character", `"` + "\uFFFD" + `"`, []string{`"\ufffd"`}},
	{"FPR-07", "the last code point", `"` + "\U0010FFFF" + `"`, []string{`"\udbff\udfff"`}},
	{"FPR-07", "what HTML would escape", `"<&>` + "\u2028" + `"`, []string{`"\u003c\u0026\u003e\u2028"`}},
	{"FPR-07", "structure in a string", `"{\"b\":1,\"a\":2}"`, nil},
	{"FPR-07", "structure in a name", `{"[{,":1,"a":"}]"}`, []string{`{"a":"}]","[{,":1}`}},

	{"RFC 8785", "its example of values", `{"literals":[null,true,false],` +
		`"numbers":[33333333333333329e-8,1e30,45e-1,2e-3,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`, []string{
		`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
		"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`}},
	{"RFC 8785", "its names to sort, in the order of their bytes", `{"1":2,"\r":1,` + "\"\u0080\":3,\"\u00f6\":4,\"\u20ac\":5,\"\ufb33\":7,\"\U0001f600\":6}",
		[]string{`{"\u20ac":5,"\r":1,"\ufb33":7,"1":2,"\ud83d\ude00":6,"\u0080":3,"\u00f6":4}`,
			`{"\r":1,"1":2,"\u0080":3,"\u00f6":4,"\u20ac":5,"\ud83d\ude00":6,"\ufb33":7}`}},
}

func TestJSONThatSaysTheSameHasOneForm(t *testing.T) {
	testSpellings(t, canonicalJSONText, jsonSpellings)
}

var jsonWithoutForm = []struct{ name, text string }{
	{"nothing", ``},
	{"space alone", " \n"},
	{"two values", `1 2`},
	{"something behind an object", `{}x`},
	{"a comma behind an object", `{},`},
	{"a byte order mark", "\ufeff{}"},
	{"a comment", `{}//`},
	{"a space that is none", "\v1"},
	{"a zero byte", "1\x00"},

	{"a name twice", `{"a":1,"a":2}`},
	{"a name twice with one value", `{"a":1,"a":1}`},
	{"a name twice with others between", `{"a":1,"c":2,"b":3,"a":4}`},
	{"a name twice when unescaped", `{"a":1,"\u0061":2}`},
	{"an empty name twice", `{"":1,"":2}`},
	{"a name twice in an inner object", `[{"a":{"b":1,"c":[],"b":2}}]`},

	{"an object without an end", `{"a":1`},
	{"an object that ends behind a comma", `{"a":1,}`},
	{"an object that begins with a comma", `{,"a":1}`},
	{"an object without commas", `{"a":1 "b":2}`},
	{"an object that ends as an array", `{"a":1]`},
	{"a member without a value", `{"a":}`},
	{"a member without a colon", `{"a" 1}`},
	{"a member without a name", `{:1}`},
	{"a member that is a value", `{1}`},
	{"a name that is a number", `{1:2}`},
	{"a name without quotes", `{a:1}`},
	{"a name without its first quote", `{a":1}`},
	{"an array without an end", `[1`},
	{"an array that ends behind a comma", `[1,]`},
	{"an array that begins with a comma", `[,1]`},
	{"an array with two commas", `[1,,2]`},
	{"an array without commas", `[1 2]`},
	{"an array in an array, of a minus", `[[-]`},
	{"an array that ends as an object", `[1}`},
	{"an end alone", `]`},

	{"a word in upper case", `True`},
	{"a word cut short", `nul`},
	{"a word too long", `nulll`},
	{"another word", `NaN`},
	{"words side by side", `truefalse`},

	{"a minus alone", `-`},
	{"a plus", `+1`},
	{"two minuses", `--1`},
	{"a zero in front", `01`},
	{"a zero in front behind a minus", `-01`},
	{"zeros in front", `00`},
	{"a point in front", `.5`},
	{"a point behind a minus", `-.5`},
	{"a point at the end", `1.`},
	{"a point before an exponent", `1.e1`},
	{"two points", `1.2.3`},
	{"an exponent without digits", `1e`},
	{"an exponent of a sign", `1e+`},
	{"an exponent of a minus", `0e-`},
	{"an exponent with two signs", `1e+-1`},
	{"an exponent with two signs the other way round", `1e-+1`},
	{"an exponent with a sign behind it", `1e1-`},
	{"an exponent of a sum", `1e1+1`},
	{"an exponent with a point", `1e1.5`},
	{"an exponent in hex", `1e0x1`},
	{"a number in hex", `0x1`},
	{"digits with underscores", `1_000`},
	{"infinity", `-Infinity`},

	{"an exponent too great", `1e1000000000000000001`},
	{"an exponent too great once zeros are gone", `10e1000000000000000000`},
	{"an exponent too small", `1e-1000000000000000001`},
	{"an exponent too small behind a point", `0.1e-1000000000000000000`},
	{"an exponent that would wrap around", `10e9223372036854775807`},
	{"an exponent that would wrap around the other way", `0.1e-9223372036854775808`},
	{"an exponent too long", `1e99999999999999999999`},
	{"an exponent as long as a body", `1e` + strings.Repeat("9", 1<<20)},
	{"an exponent as long as a body, of nothing", `0e-` + strings.Repeat("9", 1<<20)},

	{"a string without an end", `"a`},
	{"a string of a quote", `"`},
	{"a string in single quotes", `'a'`},
	{"a string that ends in an escape", `"a\"`},
	{"a string cut in an escape", `"a\`},
	{"a control in a string", "\"a\x1fb\""},
	{"a line end in a string", "\"a\nb\""},
	{"an escape of another letter", `"\a"`},
	{"an escape in upper case", `"\N"`},
	{"an escape of an apostrophe", `"\'"`},
	{"a code unit of three digits", `"\u004"`},
	{"a code unit of three digits at the end", `"\u004`},
	{"a code unit of two digits", `"\u04"`},
	{"a code unit that is not hex", `"\u00g0"`},
	{"a code unit with a sign", `"\u+041"`},
	{"a code unit with an underscore", `"\u0_41"`},
	{"a code unit in upper-case U", `"\U0041"`},
	{"a high surrogate alone", `"\ud800"`},
	{"a high surrogate before a letter", `"\ud800a"`},
	{"a high surrogate before an escape", `"\ud800\n"`},
	{"a high surrogate before a code unit", `"\ud800\u0041"`},
	{"a high surrogate before digits", `"\ud800u dc00"`},
	{"a pair without its second backslash", `"\ud83dude00"`},
	{"a pair without its second letter", `"\ud83d\de00"`},
	{"two high surrogates", `"\ud800\ud800"`},
	{"a low surrogate alone", `"\udc00"`},
	{"surrogates the wrong way round", `"\udc00\ud800"`},
	{"a pair cut short", `"\ud83d\ude0"`},
	{"half a pair in a name", `{"\ud800":1}`},
	{"a byte that is not UTF-8", "\"\xff\""},
	{"a letter cut short", "\"\xc3\""},
	{"a surrogate in UTF-8", "\"\xed\xa0\x80\""},
	{"a letter in too many bytes", "\"\xc0\xaf\""},
	{"a byte that is not UTF-8 in a name", "{\"\xff\":1}"},
	{"JSON in UTF-16", "\xff\xfe1\x00"},

	{"an array too deep", nested(maxDepth+1, "[", "]")},
	{"an object too deep", nested(maxDepth+1, `{"a":`, "1", "}")},
	{"an array of 100,000", nested(100000, "[", "]")},
	{"an object of 100,000", nested(100000, `{"a":`, "1", "}")},
	{"an array of 100,000 without an end", strings.Repeat("[", 100000)},
	{"arrays and objects too deep", nested(maxDepth/2+1, `{"a":[`, "1", "]}")},
}

// nested is so many openings, what is innermost, and as many ends.
func nested(depth int, parts ...string) string {
	end := len(parts) - 1
	return strings.Repeat(parts[0], depth) + strings.Join(parts[1:end], "") + strings.Repeat(parts[end], depth)
}

// FPR-09.
func TestWhatIsNotPlainlyJSONHasNoForm(t *testing.T) {
	for _, c := range jsonWithoutForm {
		t.Run(c.name, func(t *testing.T) {
			form, ok := canonicalJSONText(c.text)
			assert.False(t, ok, "%.200q", form)
			assert.Empty(t, form)
		})
	}
}

func TestJSONMayBeAsDeepAsItMayBe(t *testing.T) {
	for _, text := range []string{
		nested(maxDepth, "[", "]"), nested(maxDepth, `{"a":`, "1", "}"), nested(maxDepth/2, `{"a":[`, "1", "]}"),
		"[" + strings.Repeat(nested(maxDepth-1, "[", "]")+",", 9) + "1]",
	} {
		form, ok := canonicalJSONText(text)
		assert.True(t, ok)
		assert.Equal(t, text, form)
	}
}

// Members change places on every level, the longest value lying deepest.
func TestMembersAreSortedAsDeepAsJSONMayBe(t *testing.T) {
	long := strings.Repeat("x", 1000)
	form, ok := canonicalJSONText(nested(maxDepth, `{"b":`, `"`+long+`"`, `,"a":1}`))
	assert.True(t, ok)
	assert.Equal(t, nested(maxDepth, `{"a":1,"b":`, `"`+long+`"`, `}`), form)
}

// FPR-09: what the worst of bodies cost is bounded by their length.
func TestMemoryForAFormIsBoundedByTheBody(t *testing.T) {
	const n = 1 << 15
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"%d":0`, i)
	}
	for name, text := range map[string]string{
		"empty objects":            "[" + strings.Repeat("{},", n) + "{}]",
		"members out of order":     "[" + strings.Repeat(`{"b":0,"":0},`, n) + "0]",
		"objects of one member":    "[" + strings.Repeat(`{"":0},`, n) + "0]",
		"objects in objects":       "[" + strings.Repeat(nested(400, `{"":`, "0", "}")+",", n/400) + "0]",
		"many members":             "{" + strings.Join(members, ",") + "}",
		"numbers":                  "[" + strings.Repeat("0,", n) + "0]",
		"numbers with a point":     "[" + strings.Repeat("1.5,", n) + "0]",
		"a number as long as that": strings.Repeat("1", n) + "." + strings.Repeat("2", n),
		"escapes":                  `"` + strings.Repeat(`\u0000`, n) + `"`,
		"a refusal":                strings.Repeat("[", n),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = JSON([]byte(text))
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes for %d", after.TotalAlloc-before.TotalAlloc, len(text))
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64*len(text)))
		})
	}
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, c := range jsonSpellings {
		for i, text := range c.texts {
			f.Add(text, c.form, uint64(i))
		}
	}
	for _, c := range jsonWithoutForm {
		if len(c.text) < 1000 {
			f.Add(c.text, "", uint64(0))
		}
	}
	f.Fuzz(func(t *testing.T, text, other string, seed uint64) {
		form, ok := canonicalJSONText(text)
		again, okAgain := canonicalJSONText(form)
		assert.Equal(t, ok, okAgain)
		assert.Equal(t, form, again, "the form of a form")

		value, sure, want := oracleJSON(text)
		if !sure {
			return
		}
		require.Equal(t, want, ok, "%q", text)
		if ok {
			testForm(t, value, form, rand.New(rand.NewPCG(seed, 0)))
		}
		if otherValue, sure, want := oracleJSON(other); ok && sure && want {
			otherForm, _ := canonicalJSONText(other)
			assert.Equal(t, sameJSON(value, otherValue), form == otherForm, "%q and %q", text, other)
		}
	})
}

// testForm: the form says what value says, as does every spelling of value and none of another one.
func testForm(t *testing.T, value any, form string, r *rand.Rand) {
	t.Helper()
	read, _, ok := oracleJSON(form)
	assert.True(t, ok && sameJSON(value, read), "%q", form)
	same, different := respell(value, r), respell(change(value, r), r)
	for text, want := range map[string]bool{same: true, different: false} {
		got, ok := canonicalJSONText(text)
		assert.True(t, ok, "%q", text)
		assert.Equal(t, want, got == form, "%q gives %q, not %q", text, got, form)
	}
}

// oracleJSON reads JSON in another way: with encoding/json, which leaves names that repeat, halves of pairs and depth to be
// looked for. It is not sure of exponents that no number type has.
func oracleJSON(text string) (value any, sure, ok bool) {
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) || hasHalfPair(text) {
		return nil, true, false
	}
	o := oracle{Decoder: json.NewDecoder(strings.NewReader(text)), sure: true, ok: true}
	o.UseNumber()
	value = o.value(0)
	return value, o.sure, o.ok
}

var (
	noHalfPair = regexp.MustCompile(`\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	halfPair   = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
)

func hasHalfPair(text string) bool {
	return halfPair.MatchString(noHalfPair.ReplaceAllString(text, " "))
}

type oracle struct {
	*json.Decoder
	sure, ok bool
}

func (o *oracle) value(depth int) any {
	token, _ := o.Token()
	o.ok = o.ok && (depth < maxDepth || token != json.Delim('[') && token != json.Delim('{'))
	switch token {
	case json.Delim('['):
		list := []any{}
		for o.More() {
			list = append(list, o.value(depth+1))
		}
		_, _ = o.Token()
		return list
	case json.Delim('{'):
		members := map[string]any{}
		for o.More() {
			name, _ := o.Token()
			_, repeats := members[name.(string)]
			o.ok = o.ok && !repeats
			members[name.(string)] = o.value(depth + 1)
		}
		_, _ = o.Token()
		return members
	}
	if n, ok := token.(json.Number); ok {
		o.sure = o.sure && len(n) < 1000 && hasModestExponent(n)
	}
	return token
}

// oracleNumber: n is the mantissa times ten to the exponent.
func oracleNumber(n json.Number) (mantissa *big.Rat, exponent *big.Int) {
	text, power, _ := strings.Cut(strings.ToLower(n.String()), "e")
	mantissa, _ = new(big.Rat).SetString(text)
	exponent, _ = new(big.Int).SetString("0"+strings.TrimLeft(power, "+-"), 10)
	if strings.HasPrefix(power, "-") {
		exponent.Neg(exponent)
	}
	return mantissa, exponent
}

func hasModestExponent(n json.Number) bool {
	_, exponent := oracleNumber(n)
	return exponent.CmpAbs(big.NewInt(1e17)) < 0
}

func sameNumber(a, b json.Number) bool {
	x, xe := oracleNumber(a)
	y, ye := oracleNumber(b)
	if x.Sign() == 0 || y.Sign() == 0 {
		return x.Sign() == y.Sign()
	}
	shift := new(big.Int).Sub(xe, ye)
	if shift.CmpAbs(big.NewInt(int64(len(a)+len(b)))) > 0 {
		return false
	}
	ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), new(big.Int).Abs(shift), nil))
	if shift.Sign() < 0 {
		ten.Inv(ten)
	}
	return x.Mul(x, ten).Cmp(y) == 0
}

func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameJSON)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameJSON)
	}
	return a == b
}

func TestOracleKnowsNumbersPairsAndDepth(t *testing.T) {
	assert.True(t, sameNumber("1.0", "10e-1"))
	assert.True(t, sameNumber("-0", "0e5"))
	assert.True(t, sameNumber("1e400", "10e399"))
	assert.False(t, sameNumber("0.1", "0.10000000000000000001"))
	assert.False(t, sameNumber("1e999999999", "1e-999999999"))
	assert.False(t, sameNumber("1", "-1"))
	assert.False(t, hasHalfPair(`"\\ud800 \ud83d\ude00"`))
	assert.True(t, hasHalfPair(`"\\\ud800"`))
	assert.True(t, hasHalfPair(`"\ud83d\ude00\ude00"`))
	for _, c := range jsonWithoutForm {
		_, sure, ok := oracleJSON(c.text)
		assert.False(t, sure && ok, c.name)
	}
}

// respell writes value with members, space, escapes and numbers as chance will have it.
func respell(value any, r *rand.Rand) string {
	space := strings.Repeat(" \n\r\t"[r.IntN(4):][:1], r.IntN(2))
	list := func(begin, end string, items []string) string {
		return space + begin + space + strings.Join(items, space+",") + end + space
	}
	switch value := value.(type) {
	case string:
		return space + respellString(value, r) + space
	case json.Number:
		return space + respellNumber(value, r) + space
	case []any:
		items := make([]string, len(value))
		for i, item := range value {
			items[i] = respell(item, r)
		}
		return list("[", "]", items)
	case map[string]any:
		var items []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			items = append(items, space+respellString(name, r)+space+":"+respell(value[name], r))
		}
		r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		return list("{", "}", items)
	}
	word, _ := json.Marshal(value)
	return space + string(word)
}

func respellString(s string, r *rand.Rand) string {
	b := []byte{'"'}
	for _, c := range s {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", c)
		switch mustEscape := c < ' ' || c == '"' || c == '\\'; {
		case !mustEscape && r.IntN(2) == 0:
			b = utf8.AppendRune(b, c)
		case short >= 0 && r.IntN(2) == 0:
			b = append(b, '\\', `"\/bfnrt`[short])
		default:
			for _, unit := range utf16.Encode([]rune{c}) {
				b = fmt.Appendf(b, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], unit)
			}
		}
	}
	return string(append(b, '"'))
}

func respellNumber(n json.Number, r *rand.Rand) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	power, _ := strconv.Atoi(exponent)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	switch zeros := r.IntN(3); {
	case r.IntN(3) == 0:
		return n.String()
	case r.IntN(2) == 0:
		return fmt.Sprintf("%s.%s0%sE%+03d", whole, fraction, strings.Repeat("0", zeros), power)
	case strings.HasPrefix(whole, "-"):
		return fmt.Sprintf("-0.%s%se%d", whole[1:], fraction, power+len(whole)-1)
	default:
		return fmt.Sprintf("0.%s%se%d", whole, fraction, power+len(whole))
	}
}

// change returns value with one thing in it that is not the same.
func change(value any, r *rand.Rand) any {
	switch value := value.(type) {
	case string:
		return value + "x"
	case bool:
		return !value
	case json.Number:
		mantissa, power, _ := strings.Cut(strings.ToLower(value.String()), "e")
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
		return json.Number(mantissa + "1e" + cmp.Or(power, "0"))
	case []any:
		value = append(slices.Clone(value), nil)
		if i := r.IntN(len(value)); i < len(value)-1 {
			value[i] = change(value[i], r)
			return value[:len(value)-1]
		}
		return value
	case map[string]any:
		value = maps.Clone(value)
		names := slices.Sorted(maps.Keys(value))
		if i := r.IntN(len(names) + 1); i < len(names) {
			value[names[i]] = change(value[names[i]], r)
			return value
		}
		value[strings.Join(names, "")+"x"] = nil
		return value
	}
	return false
}

var querySpellings = []spellings{
	{"FPR-05", "no query", "", []string{"&", "&&"}},
	{"FPR-05", "one parameter", "a=1", []string{"&a=1", "a=1&&", "%61=%31"}},
	{"FPR-05", "another value", "a=2", nil},
	{"FPR-05", "another name", "b=1", nil},
	{"FPR-05", "names in any order", "a=1&b=2", []string{"b=2&a=1", "b=2&&a=1"}},
	{"FPR-05", "values of one name", "a=1&a=2&b=3", []string{"a=1&b=3&a=2", "b=3&a=1&a=2"}},
	{"FPR-05", "values of one name the other way round", "a=2&a=1&b=3", []string{"a=2&b=3&a=1"}},
	{"FPR-05", "one value twice", "a=1&a=1", nil},
	{"FPR-05", "a name without a value", "a=", []string{"a"}},
	{"FPR-05", "a value without a name", "=a", nil},
	{"FPR-05", "neither", "=", []string{"=&"}},
	{"FPR-05", "a space", "a=b+c", []string{"a=b%20c", "a=b c"}},
	{"FPR-05", "a plus", "a=b%2Bc", []string{"a=b%2bc"}},
	{"FPR-05", "a space in a name", "a+b=c", []string{"a%20b=c"}},
	{"FPR-05", "an escape that is not needed", "a=~-_.", []string{"a=%7E%2d%5f%2E"}},
	{"FPR-05", "an escape of a separator", "a=1%26b%3D2", []string{"a=1%26b=2"}},
	{"FPR-05", "an escape of an escape", "a=%2526", nil},
	{"FPR-05", "an escape of a semicolon", "a=1%3Bb", []string{"a=1%3bb"}},
	{"FPR-05", "an escape of a name's end", "a%3D=1", []string{"a%3d=1"}},
	{"FPR-05", "a value with a sign in it", "a=%3D1", []string{"a==1"}},
	{"FPR-05", "letters of more than one byte", "a=%C3%A9", []string{"a=é", "a=%c3%a9"}},
	{"FPR-05", "bytes that are no letters", "a=%FF", []string{"a=\xff", "a=%ff"}},
	{"FPR-05", "names in another case", "A=1&a=1", []string{"a=1&A=1"}},
}

func TestQueriesThatSayTheSameHaveOneForm(t *testing.T) {
	testSpellings(t, Query, querySpellings)
}

func TestMalformedQueriesHaveNoForm(t *testing.T) {
	for _, raw := range []string{"%", "a=%", "a=%2", "a=%zz", "%zz=1", "a=1&b=%", "a=%&b=1", "a=1;b=2", ";", strings.Repeat("a&", 20000)} {
		form, ok := Query(raw)
		assert.False(t, ok, "%.100q", raw)
		assert.Empty(t, form)
	}
}

func FuzzCanonicalQuery(f *testing.F) {
	for i, c := range querySpellings {
		f.Add(c.form, querySpellings[i/2].form)
		for _, raw := range c.texts {
			f.Add(raw, c.form)
		}
	}
	f.Fuzz(func(t *testing.T, raw, other string) {
		form, ok := Query(raw)
		parameters, want := oracleQuery(raw)
		assert.Equal(t, want, ok, "%q", raw)
		again, _ := Query(form)
		assert.Equal(t, form, again, "the form of a form")
		if otherForm, otherOK := Query(other); ok && otherOK {
			otherParameters, _ := oracleQuery(other)
			assert.Equal(t, slices.Equal(parameters, otherParameters), form == otherForm, "%q and %q", raw, other)
		}
	})
}

var query = regexp.MustCompile(`^(?:[^%;]|%[0-9a-fA-F]{2})*$`)

// oracleQuery reads a query in another way: as a list of pairs, sorted by what stands before their first sign.
func oracleQuery(raw string) (pairs [][2]string, ok bool) {
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(strings.ReplaceAll(pair, "+", "%20"), "=")
		name, _ = url.PathUnescape(name)
		value, _ = url.PathUnescape(value)
		if pair != "" {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	slices.SortStableFunc(pairs, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	return pairs, query.MatchString(raw) && strings.Count(raw, "&") < 10000
}

// BenchmarkCanonicalJSON compares a form with the digest that every body is given, by the shortest time that each took.
//
//	go test ./core -run '^$' -bench CanonicalJSON
func BenchmarkCanonicalJSON(b *testing.B) {
	for _, size := range []int{1 << 9, 4 << 10, 64 << 10} {
		body := orders(size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			form, digest := time.Hour, time.Hour
			for b.Loop() {
				began := time.Now()
				if _, ok := JSON(body); !ok {
					b.Fatal("has no form")
				}
				made := time.Now()
				sha256.Sum256(body)
				form, digest = min(form, made.Sub(began)), min(digest, time.Since(made))
			}
			b.ReportMetric(float64(form)/float64(size), "ns/byte")
			b.ReportMetric(float64(form)/float64(digest), "x-sha256")
		})
	}
}

// orders is JSON of size bytes, such as clients send.
func orders(size int) []byte {
	order := `{"order_id":"8e03978e-40d5-43e8-bc93-6894a57f9324","customer":{"name":"Zoë \u00c5ngström","email":"zoe@example.com",
		"since":2019},"lines":[{"sku":"A-1001","quantity":2,"price":19.90,"gift":false},{"sku":"B-77","quantity":1,"price":5,
		"gift":true,"note":null}],"total":44.80,"currency":"EUR","comment":"leave it \"at the door\"\nplease"},`
	text := "[" + strings.Repeat(order, size/len(order)-1) + order[:len(order)-1]
	return []byte(text + strings.Repeat(" ", size-1-len(text)) + "]")
}
