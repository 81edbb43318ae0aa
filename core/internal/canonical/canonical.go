// Package canonical returns equal bytes for JSON bodies, query strings and multipart forms that mean the same.
//
// Two texts that mean the same have the same canonical form; two texts that differ in meaning never have. The functions return
// false for texts that have no canonical form; callers compare such texts byte by byte. A client can send a text that looks
// like the canonical form of another. So a digest must put a tag before each kind of form, and another tag before text without
// one.
package canonical

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Query returns the canonical form of a raw query: its parameters decoded, as [url.ParseQuery] does, sorted by name, and
// encoded in one way; values of one name keep their order. "a" means "a=", and an empty parameter between two "&" is ignored.
// A query that ParseQuery refuses, because of its escapes, its semicolons or its length, has no form.
func Query(raw string) (string, bool) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", false
	}
	return values.Encode(), true
}

const (
	maxDepth    = 500                 // of nested arrays and objects
	maxExponent = 1000000000000000000 // of a number whose digits are written as an integer that does not end in 0
)

// JSON returns the canonical form of a JSON text (RFC 8259), which is JSON without spaces. Strings are written as in RFC 8785.
// Numbers are not rounded: their digits neither begin nor end with 0 and are followed by an exponent unless it is 0, so 1.0
// becomes 1, 0.1 becomes 1e-1, and -0 becomes 0. Members are sorted by the bytes of their names. RFC 8785 sorts by UTF-16 code
// units instead, which costs more and is not needed to compare two texts.
//
// A text has no form if it is not JSON in UTF-8, has a name twice in one object, has half of a surrogate pair, is nested
// deeper than maxDepth, or has an exponent beyond maxExponent. The time is linear in the length of the body, except for the
// sorting. The memory is at most 64 times the body.
func JSON(body []byte) ([]byte, bool) {
	if !utf8.Valid(body) {
		return nil, false
	}
	d := jsonDocument{body: string(body), text: make([]byte, 0, len(body)+len(body)/4)}
	if !d.value(maxDepth) || d.at < len(d.body) {
		return nil, false
	}
	slices.SortFunc(d.objects, func(a, b jsonObject) int { return a.start - b.start })
	return d.appendSorted(make([]byte, 0, len(d.text)), 0, len(d.text)), true
}

// jsonDocument parses JSON from body[at:]. It writes text, which is the canonical form except that members are in the order of
// the body. appendSorted sorts them in one pass at the end. To sort each object when it ends would move deeply nested members
// once per level.
type jsonDocument struct {
	body    string
	at      int          // offset in body of what is parsed next
	text    []byte       // see above
	open    []jsonMember // members of objects that have not ended
	objects []jsonObject // objects that have ended and whose members are not in order
	members []jsonMember // the sorted members of these objects, one object after the other
}

// jsonMember is the place of a member in the text. Its name is text[start:colon].
type jsonMember struct{ start, colon, end int }

// jsonObject is the place of an object in the text, and of its members in jsonDocument.members.
type jsonObject struct{ start, end, first, last int }

// appendSorted appends text[start:end] with sorted members. The objects must be in the order of their starts. Only a text that
// ends with a bracket can contain an object, so other texts are not searched.
func (d *jsonDocument) appendSorted(to []byte, start, end int) []byte {
	for d.text[end-1] == ']' || d.text[end-1] == '}' {
		i, _ := slices.BinarySearchFunc(d.objects, start, func(o jsonObject, at int) int { return o.start - at })
		if i == len(d.objects) || d.objects[i].start >= end {
			break
		}
		o := d.objects[i]
		to = append(append(to, d.text[start:o.start]...), '{')
		for i, m := range d.members[o.first:o.last] {
			if i > 0 {
				to = append(to, ',')
			}
			to = d.appendSorted(to, m.start, m.end)
		}
		to, start = append(to, '}'), o.end
	}
	return append(to, d.text[start:end]...)
}

// value parses a value and the spaces around it. depth is how many levels of arrays and objects may begin in it. Like the
// methods below, it returns false when the body does not continue with what it parses. The value of at is undefined then.
func (d *jsonDocument) value(depth int) (ok bool) {
	d.take(isSpace)
	switch d.peek() {
	case '{':
		ok = depth > 0 && d.object(depth-1)
	case '[':
		ok = depth > 0 && d.list('[', ']', func() bool { return d.value(depth - 1) })
	case '"':
		ok = d.quoted()
	case 't':
		ok = d.word("true")
	case 'f':
		ok = d.word("false")
	case 'n':
		ok = d.word("null")
	default:
		ok = d.decimal()
	}
	d.take(isSpace)
	return ok
}

// list parses any number of items between begin, which the caller has seen, and end.
func (d *jsonDocument) list(begin, end byte, item func() bool) bool {
	d.pass(begin)
	if d.take(isSpace); d.pass(end) {
		return true
	}
	for item() {
		if d.pass(end) {
			return true
		}
		if !d.pass(',') {
			return false
		}
	}
	return false
}

// object parses an object whose names all differ. It refuses a name that occurs twice, because parsers disagree about which of
// the two members counts (RFC 8259, section 4). An object whose members are in order already is not noted, so appendSorted copies
// it at once.
func (d *jsonDocument) object(depth int) bool {
	start, open := len(d.text), len(d.open)
	if !d.list('{', '}', func() bool { return d.member(depth) }) {
		return false
	}
	members := d.open[open:]
	if !slices.IsSortedFunc(members, d.compare) {
		slices.SortFunc(members, d.compare)
		d.objects = append(d.objects, jsonObject{start, len(d.text), len(d.members), len(d.members) + len(members)})
		d.members = append(d.members, members...)
	}
	d.open = d.open[:open]
	for i := 1; i < len(members); i++ {
		if d.compare(members[i-1], members[i]) == 0 {
			return false
		}
	}
	return true
}

// compare compares the names of two members.
func (d *jsonDocument) compare(a, b jsonMember) int {
	return bytes.Compare(d.text[a.start:a.colon], d.text[b.start:b.colon])
}

// member parses a name, a colon and a value.
func (d *jsonDocument) member(depth int) bool {
	m := jsonMember{start: len(d.text)}
	if d.take(isSpace); !d.quoted() {
		return false
	}
	m.colon = len(d.text)
	if d.take(isSpace); !d.pass(':') || !d.value(depth) {
		return false
	}
	m.end = len(d.text)
	d.open = append(d.open, m)
	return true
}

// quoted parses a string, and writes it with the escapes of RFC 8785.
func (d *jsonDocument) quoted() bool {
	if !d.pass('"') {
		return false
	}
	for {
		d.text = append(d.text, d.take(isPlain)...)
		if d.pass('"') {
			return true
		}
		if !d.escape() {
			return false
		}
	}
}

// The letters of the short escapes, and the bytes that they stand for, in the same order.
const (
	escapes = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

// escape parses one escape, or a surrogate pair of two.
func (d *jsonDocument) escape() bool {
	if !d.next('\\') {
		return false
	}
	if d.next('u') {
		r, ok := d.codePoint()
		d.appendRune(r)
		return ok
	}
	i := strings.IndexByte(escapes, d.peek())
	if i < 0 {
		return false
	}
	d.at++
	d.appendRune(rune(escaped[i]))
	return true
}

// codePoint parses one code unit, or a surrogate pair, after the first \u. It refuses half of a pair, which no UTF-8 can express.
func (d *jsonDocument) codePoint() (rune, bool) {
	r, ok := d.codeUnit()
	if !utf16.IsSurrogate(r) {
		return r, ok
	}
	if !d.next('\\') || !d.next('u') {
		return 0, false
	}
	low, ok := d.codeUnit()
	r = utf16.DecodeRune(r, low)
	return r, ok && r != unicode.ReplacementChar
}

// codeUnit parses four hexadecimal digits.
func (d *jsonDocument) codeUnit() (rune, bool) {
	if len(d.body) < d.at+4 {
		return 0, false
	}
	d.at += 4
	unit, err := strconv.ParseUint(d.body[d.at-4:d.at], 16, 16)
	return rune(unit), err == nil
}

// appendRune writes r, with the escape of RFC 8785 if it needs one.
func (d *jsonDocument) appendRune(r rune) {
	switch i := strings.IndexRune(escaped, r); {
	case i >= 0 && r != '/':
		d.text = append(d.text, '\\', escapes[i])
	case r < ' ':
		d.text = fmt.Appendf(d.text, `\u%04x`, r)
	default:
		d.text = utf8.AppendRune(d.text, r)
	}
}

// decimal parses a number. An exponent near the limits of int64 may overflow; the result is beyond maxExponent then, and is
// refused.
func (d *jsonDocument) decimal() bool {
	minus := d.next('-')
	whole, fraction, exponent, ok := d.decimalParts()
	ten, err := strconv.ParseInt(exponent, 10, 64)
	if !ok || err != nil {
		return false
	}
	significant := strings.TrimLeft(whole+fraction, "0")
	digits := strings.TrimRight(significant, "0")
	if digits == "" {
		d.text = append(d.text, '0')
		return true
	}
	if minus {
		d.text = append(d.text, '-')
	}
	d.text = append(d.text, digits...)
	if ten += int64(len(significant) - len(digits) - len(fraction)); ten != 0 {
		d.text = strconv.AppendInt(append(d.text, 'e'), ten, 10)
	}
	return -maxExponent <= ten && ten <= maxExponent
}

// decimalParts parses a number after its minus. A missing fraction is "", and a missing exponent is "0". The caller must check
// the signs in the exponent.
func (d *jsonDocument) decimalParts() (whole, fraction, exponent string, ok bool) {
	whole, exponent = d.take(isDigit), "0"
	ok = whole == "0" || whole != "" && whole[0] != '0'
	if d.next('.') {
		fraction = d.take(isDigit)
		ok = ok && fraction != ""
	}
	if d.next('e') || d.next('E') {
		exponent = d.take(isExponent)
	}
	return whole, fraction, exponent, ok
}

// word parses one of the literals true, false and null.
func (d *jsonDocument) word(w string) bool {
	if !strings.HasPrefix(d.body[d.at:], w) {
		return false
	}
	d.at, d.text = d.at+len(w), append(d.text, w...)
	return true
}

// pass parses c and writes it.
func (d *jsonDocument) pass(c byte) bool {
	ok := d.next(c)
	if ok {
		d.text = append(d.text, c)
	}
	return ok
}

// next parses c.
func (d *jsonDocument) next(c byte) bool {
	ok := d.at < len(d.body) && d.body[d.at] == c
	if ok {
		d.at++
	}
	return ok
}

// take returns the longest run of bytes in class, which may be empty.
func (d *jsonDocument) take(class func(c byte) bool) string {
	start := d.at
	for d.at < len(d.body) && class(d.body[d.at]) {
		d.at++
	}
	return d.body[start:d.at]
}

// peek returns the next byte. At the end it returns 0, with which no value begins.
func (d *jsonDocument) peek() byte {
	if d.at == len(d.body) {
		return 0
	}
	return d.body[d.at]
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
func isPlain(c byte) bool { return c >= ' ' && c != '"' && c != '\\' }
func isExponent(c byte) bool {
	return isDigit(c) || c == '+' || c == '-'
}
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
