// Package canonical makes one form of all texts that say the same: JSON bodies, query strings and multipart forms.
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

// Texts that say the same share a canonical form; texts that do not, never do. A text without a form (false) is compared
// as it is. A form is bytes that a client may send too, so a digest must put one tag in front of each kind of form and
// another in front of raw text.

// Query returns the canonical form of a raw query: its parameters decoded, as [url.ParseQuery] does, sorted by
// name, and encoded in one way; values of one name keep their order. "a" is "a=", and nothing stands between two "&".
// A query that ParseQuery refuses, for its escapes, its semicolons or its length, has none.
func Query(raw string) (string, bool) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", false
	}
	return values.Encode(), true
}

const (
	maxDepth    = 500                 // arrays and objects inside each other
	maxExponent = 1000000000000000000 // of ten, where the digits are an integer that does not end in 0
)

// JSON returns the canonical form of a JSON text (RFC 8259). It is JSON without space; strings are written as
// RFC 8785 writes them. Numbers are not rounded: their digits neither begin nor end with 0 and are followed by an
// exponent unless it is 0, so 1.0 is 1, 0.1 is 1e-1, and -0 is 0. Members are sorted by name as written, byte by byte: any
// order tells what is equal, and RFC 8785's would need the names in UTF-16.
//
// There is no form for what is not JSON in UTF-8, a name twice in one object, half of a surrogate pair, more than maxDepth,
// or an exponent beyond maxExponent. Time is linear, but for the sorting; memory is at most 64 times the body.
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

// jsonDocument reads JSON from body[at:]. Its text is the canonical form but for the order of members, which is made in
// one pass at the end: to sort each object where it lies would move what is deep inside once per level.
type jsonDocument struct {
	body    string
	at      int
	text    []byte
	open    []jsonMember // of objects that have not ended
	objects []jsonObject // that have, and whose members are not in order
	members []jsonMember // of these objects, in order; those of one side by side
}

// jsonMember is where a member lies in the text: its name is text[start:colon].
type jsonMember struct{ start, colon, end int }

// jsonObject is where an object lies in the text, and its members in jsonDocument.members.
type jsonObject struct{ start, end, first, last int }

// appendSorted appends text[start:end]. The objects must be in the order of their starts. Only what ends as an array or an
// object can have one inside.
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

// value reads a value and the space around it; so many more arrays and objects may begin. Like the methods below, it
// returns false, and leaves the rest anywhere, when what it looks for is not there.
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

// list reads any number of items between begin, which is there, and end.
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

// object reads an object whose names all differ.
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

func (d *jsonDocument) compare(a, b jsonMember) int {
	return bytes.Compare(d.text[a.start:a.colon], d.text[b.start:b.colon])
}

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

// The letters of short escapes, and what they stand for.
const (
	escapes = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

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

// codePoint reads one code unit, or two that make a pair, behind their first \u.
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

func (d *jsonDocument) codeUnit() (rune, bool) {
	if len(d.body) < d.at+4 {
		return 0, false
	}
	d.at += 4
	unit, err := strconv.ParseUint(d.body[d.at-4:d.at], 16, 16)
	return rune(unit), err == nil
}

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

// decimal reads a number. An exponent near the ends of int64 wraps around, and stays beyond maxExponent.
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

// decimalParts reads a number behind its minus. Parts that may be left out are "" and "0" then. Where signs stand in the
// exponent is not checked.
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

func (d *jsonDocument) word(w string) bool {
	if !strings.HasPrefix(d.body[d.at:], w) {
		return false
	}
	d.at, d.text = d.at+len(w), append(d.text, w...)
	return true
}

// pass takes c and puts it into the text.
func (d *jsonDocument) pass(c byte) bool {
	ok := d.next(c)
	if ok {
		d.text = append(d.text, c)
	}
	return ok
}

// next takes c.
func (d *jsonDocument) next(c byte) bool {
	ok := d.at < len(d.body) && d.body[d.at] == c
	if ok {
		d.at++
	}
	return ok
}

// take takes the longest run of bytes in class.
func (d *jsonDocument) take(class func(c byte) bool) string {
	start := d.at
	for d.at < len(d.body) && class(d.body[d.at]) {
		d.at++
	}
	return d.body[start:d.at]
}

// peek returns the next byte, and 0, which nothing begins with, at the end.
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
