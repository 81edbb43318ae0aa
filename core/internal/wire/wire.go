// Package wire encodes and decodes the parts of a stored outcome: numbers, texts and header fields. A dictionary shortens
// common header fields to one byte. ReplaceField changes a list of header fields.
//
// Package core puts the parts together and documents the whole format in outcome.go; it also writes and checks the checksum. A
// stored outcome may come from another process or from somebody who can write to the store, so a Decoder trusts no length and no
// text.
package wire

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/internal/sfv"
)

// Field is one header field. It can be converted to and from the Field of package core.
type Field struct{ Name, Value string }

// ReplaceField returns fields with own in place of all fields that have its name, in any case. If the value of own is "", the
// fields are only removed. ReplaceField changes the slice. F is Field, or the Field of package core.
func ReplaceField[F ~struct{ Name, Value string }](fields []F, own F) []F {
	fields = slices.DeleteFunc(fields, func(f F) bool { return strings.EqualFold(Field(f).Name, Field(own).Name) })
	if Field(own).Value == "" {
		return fields
	}
	return append(fields, own)
}

// AppendField appends a header field to b: one byte if the dictionary has the whole field, else the name and the value. A field
// with an empty value is never one byte, because that byte says that the value follows.
func AppendField(b []byte, f Field) []byte {
	if place := headerIndex[f]; place > 0 && f.Value != "" {
		return append(b, place)
	}
	return AppendText(AppendName(b, f.Name), f.Value)
}

// AppendName appends the name of a header field: one byte if the dictionary has the name, else a zero byte and the name.
func AppendName(b []byte, name string) []byte {
	if place := headerIndex[Field{Name: name}]; place > 0 {
		return append(b, place)
	}
	return AppendText(append(b, 0), name)
}

// AppendText appends the length of s and s.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decoder reads an encoded outcome. When it meets something malformed it sets Malformed, and what it returns from then on has
// no meaning. So callers check Malformed once, at the end, before they use anything.
type Decoder struct {
	b         []byte
	at        int    // offset in b of what is read next
	texts     string // a copy of the names and values in b, which share it
	base      int    // offset in b where texts begins
	end       int    // offset in b of the end of the last text
	Malformed bool
}

// NewDecoder returns a Decoder that reads b from the offset at. The Decoder does not change b, and b must not change while it is
// used.
func NewDecoder(b []byte, at int) Decoder { return Decoder{b: b, at: at} }

// Rest returns what has not been read. It shares the memory of b.
func (d *Decoder) Rest() []byte { return d.b[d.at:] }

// ReadTexts copies the texts of the two lists that follow, a list of names and a list of fields, at once. It does not move the
// Decoder. It must be called before Name and Field, which return parts of the copy: one allocation for all texts of an outcome,
// and the body, which may be long, is not copied with them. If the lists are malformed, Name and Field find that as well.
func (d *Decoder) ReadTexts() {
	ahead := *d
	ahead.end = d.at
	for _, lines := range []bool{false, true} { // the names, and then the fields, which have values
		for n := ahead.Count(); n > 0 && !ahead.Malformed; n-- {
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

// OwnText reads a text that is not in the lists of ReadTexts. It returns a copy.
func (d *Decoder) OwnText() string {
	from, to := d.span()
	return string(d.b[from:to])
}

// Number reads an unsigned varint. Only its shortest form is accepted. After any other the Decoder stands at the end, where
// nothing is left to read.
func (d *Decoder) Number() uint64 {
	n, length := binary.Uvarint(d.b[d.at:])
	if length <= 0 || length > 1 && d.b[d.at+length-1] == 0 { // cut, too large, or longer than need be
		d.at, d.Malformed = len(d.b), true
		return 0
	}
	d.at += length
	return n
}

// Count reads the length of a list or text. It refuses lengths beyond the end of the data; each item has at least one byte.
func (d *Decoder) Count() uint64 {
	n := d.Number()
	if n > uint64(len(d.b)-d.at) {
		d.at, d.Malformed = len(d.b), true
		return 0
	}
	return n
}

// span reads past a text and returns its offsets. They are in b even if the text is malformed, because Count returns 0 then.
func (d *Decoder) span() (from, to int) {
	n := int(d.Count()) // at most the length of b
	d.at += n
	d.end = d.at
	return d.at - n, d.at
}

// common reads an index of the dictionary and returns the entry. It returns the zero Field for the index 0, after which a name
// follows.
func (d *Decoder) common() Field {
	n := d.Number()
	if n > uint64(len(HeaderDict)) {
		d.at, d.Malformed = len(d.b), true
	}
	if d.Malformed || n == 0 {
		return Field{}
	}
	return HeaderDict[n-1]
}

// Name reads the name of a header field. An entry of the dictionary that has a value is no name.
func (d *Decoder) Name() string {
	f := d.common()
	d.Malformed = d.Malformed || f.Value != ""
	return d.named(f).Name
}

// Field reads a header field. CR, LF and NUL make it malformed: no field value may have them (RFC 9110, section 5.5), and the
// first two would let a value add fields to a replay.
func (d *Decoder) Field() Field {
	f := d.named(d.common())
	if f.Value == "" {
		f.Value = d.text()
		d.Malformed = d.Malformed || strings.ContainsAny(f.Value, "\r\n\x00")
	}
	return f
}

// named reads the name of f from the data, unless the dictionary has provided it.
func (d *Decoder) named(f Field) Field {
	if f.Name == "" {
		f.Name = d.text()
		d.Malformed = d.Malformed || !sfv.IsToken(f.Name)
	}
	return f
}

// text reads a text, as a part of texts. If something was malformed, common has returned no entry of the dictionary for an index,
// unlike in ReadTexts, so the offsets may lie outside of texts.
func (d *Decoder) text() string {
	from, to := d.span()
	if d.Malformed {
		return ""
	}
	return d.texts[from-d.base : to-d.base]
}
