// Package wire has the primitives of the form in which outcomes are kept: numbers, texts and header fields, the usual ones of
// which a dictionary shortens to one byte.
package wire

import (
	"encoding/binary"
	"strings"

	"github.com/go-idem/idem/core/internal/sfv"
)

// Field is one header field: what the core package calls Field.
type Field struct{ Name, Value string }

// AppendField appends a header field.
func AppendField(b []byte, f Field) []byte {
	if place := headerIndex[f]; place > 0 && f.Value != "" {
		return append(b, place)
	}
	return appendText(AppendName(b, f.Name), f.Value)
}

// AppendName appends the name of a header field.
func AppendName(b []byte, name string) []byte {
	if place := headerIndex[Field{Name: name}]; place > 0 {
		return append(b, place)
	}
	return appendText(append(b, 0), name)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decoder reads b from at on. After the first thing that is not there, Malformed is true and all is zero.
type Decoder struct {
	b         []byte
	at        int
	texts     string // the names and values in b, as one string that they share
	base      int    // where it begins
	end       int    // of the last text
	Malformed bool
}

// NewDecoder returns a Decoder of b from at on.
func NewDecoder(b []byte, at int) Decoder { return Decoder{b: b, at: at} }

// Rest is what has not been read.
func (d *Decoder) Rest() []byte { return d.b[d.at:] }

// ReadTexts looks ahead for the end of the two lists.
func (d *Decoder) ReadTexts() {
	ahead := *d
	ahead.end = d.at
	for _, lines := range []bool{false, true} {
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

// Number reads a number.
func (d *Decoder) Number() uint64 {
	n, length := binary.Uvarint(d.b[d.at:])
	if length <= 0 || length > 1 && d.b[d.at+length-1] == 0 { // cut, too large, or longer than need be
		d.at, d.Malformed = len(d.b), true
		return 0
	}
	d.at += length
	return n
}

// Count reads the length of a list, each item of which takes at least one byte.
func (d *Decoder) Count() uint64 {
	n := d.Number()
	if n > uint64(len(d.b)-d.at) {
		d.at, d.Malformed = len(d.b), true
		return 0
	}
	return n
}

// span reads past a text and returns where it is.
func (d *Decoder) span() (from, to int) {
	n := int(d.Count())
	d.at += n
	d.end = d.at
	return d.at - n, d.at
}

// common reads a place and returns the common line or name that is there, zero for 0.
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

// Name reads the name of a line.
func (d *Decoder) Name() string {
	f := d.common()
	d.Malformed = d.Malformed || f.Value != ""
	return d.named(f).Name
}

// Field reads a header line.
func (d *Decoder) Field() Field {
	f := d.named(d.common())
	if f.Value == "" {
		f.Value = d.text()
		d.Malformed = d.Malformed || strings.ContainsAny(f.Value, "\r\n\x00")
	}
	return f
}

// named reads the name of f, unless it has one.
func (d *Decoder) named(f Field) Field {
	if f.Name == "" {
		f.Name = d.text()
		d.Malformed = d.Malformed || !sfv.IsToken(f.Name)
	}
	return f
}

func (d *Decoder) text() string {
	from, to := d.span()
	if d.Malformed {
		return ""
	}
	return d.texts[from-d.base : to-d.base]
}
