package core

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/driver"
)

// An outcome is a Response in bytes, as stores keep it:
//
//	format 1 byte '1' | flags 1 byte | status | removed names | header lines | body, or id of a blob | CRC-32C 4 bytes
//
// Numbers are unsigned varints; lists begin with their length, texts with theirs; the body is what is left. A name is a place
// among commonLines, or 0 and a text; a line is a name and a text, or the place of a whole line.
const (
	outcomeFormat  = '1'
	flagOmitted    = 1 // there is no body
	flagBlob       = 2 // the whole outcome is in a blob
	checksumLength = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeOutcome packs what a replay of r needs. With a blob, its body is there.
func encodeOutcome(r *Response, blob string) []byte {
	size := 2 + 3*binary.MaxVarintLen32 + len(r.Body) + checksumLength
	for _, f := range r.Header {
		size += 2*binary.MaxVarintLen32 + len(f.Name) + len(f.Value)
	}
	b := append(make([]byte, 0, size), outcomeFormat, 0)
	switch {
	case r.Omitted:
		b[1] = flagOmitted
	case blob != "":
		b[1] = flagBlob
	}
	b = binary.AppendUvarint(b, uint64(r.Status))
	b = binary.AppendUvarint(b, uint64(len(r.Removed)))
	for _, name := range r.Removed {
		b = appendName(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Header)))
	for _, f := range r.Header {
		b = appendLine(b, f)
	}
	switch b[1] {
	case 0:
		b = append(b, r.Body...)
	case flagBlob:
		b = append(b, blob...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func appendLine(b []byte, f Field) []byte {
	if place := places[f]; place > 0 && f.Value != "" {
		return append(b, place)
	}
	return appendText(appendName(b, f.Name), f.Value)
}

func appendName(b []byte, name string) []byte {
	if place := places[Field{Name: name}]; place > 0 {
		return append(b, place)
	}
	return appendText(append(b, 0), name)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeOutcome unpacks what encodeOutcome packed, and says in which blob the body is; Body shares b's memory. Its error wraps
// ErrUnreadable. Names and values are checked although the checksum fits: a store is no place to inject header lines from.
func decodeOutcome(b []byte) (r *Response, blob string, err error) {
	if len(b) < 2+checksumLength || b[0] != outcomeFormat {
		return nil, "", fmt.Errorf("%w: not an outcome of format %c", driver.ErrUnreadable, outcomeFormat)
	}
	sealed := len(b) - checksumLength
	if crc32.Checksum(b[:sealed], castagnoli) != binary.BigEndian.Uint32(b[sealed:]) {
		return nil, "", fmt.Errorf("%w: checksum differs", driver.ErrUnreadable)
	}
	d := decoder{b: b[:sealed], at: 2}
	r = &Response{Status: int(d.number()), Omitted: b[1] == flagOmitted}
	d.readTexts()
	for n := d.count(); n > 0 && !d.bad; n-- {
		r.Removed = append(r.Removed, d.name())
	}
	if n := d.count(); n > 0 {
		r.Header = make([]Field, 0, n+spareFields)
		for ; n > 0 && !d.bad; n-- {
			r.Header = append(r.Header, d.line())
		}
	}
	if r.Body = slices.Clip(d.b[d.at:]); b[1] == flagBlob { // clipped: what is appended to it must not reach the checksum
		r.Body, blob = nil, string(r.Body)
	}
	if d.bad || b[1] > flagBlob || b[1] == flagBlob && blob == "" || r.Omitted && len(r.Body) > 0 || r.Status < 100 || r.Status > 999 {
		return nil, "", fmt.Errorf("%w: malformed outcome", driver.ErrUnreadable)
	}
	return r, blob, nil
}

// spareFields is room for the lines that a replay adds.
const spareFields = 3

// decoder reads b from at on. After the first thing that is not there, bad is true and all is zero.
type decoder struct {
	b     []byte
	at    int
	texts string // the names and values in b, as one string that they share
	base  int    // where it begins
	end   int    // of the last text
	bad   bool
}

// readTexts looks ahead for the end of the two lists.
func (d *decoder) readTexts() {
	ahead := *d
	ahead.end = d.at
	for _, lines := range []bool{false, true} {
		for n := ahead.count(); n > 0 && !ahead.bad; n-- {
			common := ahead.common()
			if common.Name == "" {
				ahead.span()
			}
			if lines && common.Value == "" {
				ahead.span()
			}
		}
	}
	d.base, d.texts = d.at, string(d.b[d.at:ahead.end])
}

func (d *decoder) number() uint64 {
	n, length := binary.Uvarint(d.b[d.at:])
	if length <= 0 || length > 1 && d.b[d.at+length-1] == 0 { // cut, too large, or longer than need be
		d.at, d.bad = len(d.b), true
		return 0
	}
	d.at += length
	return n
}

// count reads the length of a list, each item of which takes at least one byte.
func (d *decoder) count() uint64 {
	n := d.number()
	if n > uint64(len(d.b)-d.at) {
		d.at, d.bad = len(d.b), true
		return 0
	}
	return n
}

// span reads past a text and returns where it is.
func (d *decoder) span() (from, to int) {
	n := int(d.count())
	d.at += n
	d.end = d.at
	return d.at - n, d.at
}

// common reads a place and returns the common line or name that is there, zero for 0.
func (d *decoder) common() Field {
	n := d.number()
	if n > uint64(len(commonLines)) {
		d.at, d.bad = len(d.b), true
	}
	if d.bad || n == 0 {
		return Field{}
	}
	return commonLines[n-1]
}

// name reads the name of a line.
func (d *decoder) name() string {
	f := d.common()
	d.bad = d.bad || f.Value != ""
	return d.named(f).Name
}

// line reads a header line.
func (d *decoder) line() Field {
	f := d.named(d.common())
	if f.Value == "" {
		f.Value = d.text()
		d.bad = d.bad || strings.ContainsAny(f.Value, "\r\n\x00")
	}
	return f
}

// named reads the name of f, unless it has one.
func (d *decoder) named(f Field) Field {
	if f.Name == "" {
		f.Name = d.text()
		d.bad = d.bad || !isToken(f.Name)
	}
	return f
}

func (d *decoder) text() string {
	from, to := d.span()
	if d.bad {
		return ""
	}
	return d.texts[from-d.base : to-d.base]
}

// hasBody: may an answer with this status have content? RFC 9110, section 6.4.1.
func hasBody(status int) bool { return status >= 200 && status != 204 && status != 304 }
