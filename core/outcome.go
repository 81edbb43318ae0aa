package core

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/wire"
)

// An outcome is a Response in the form in which stores hold it:
//
//	format 1 byte '1' | flags 1 byte | status | removed names | header fields | origin, if any | body, or id of a blob | CRC-32C 4 bytes
//
// Numbers are unsigned varints. Lists and texts begin with their length. The body takes the rest. Names and fields that are
// common are numbers of entries in the dictionary of package wire.
const (
	outcomeFormat  = '1'
	flagOmitted    = 1 // there is no body
	flagBlob       = 2 // the whole outcome is in a blob
	flagOrigin     = 4 // there is an origin
	checksumLength = 4
)

// castagnoli is the table of CRC-32C, which processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeOutcome encodes what a replay of r needs. If blob is not empty, it is the id of the blob that has the body.
func encodeOutcome(r *Response, blob string) []byte {
	size := 2 + 4*binary.MaxVarintLen32 + len(r.origin) + len(r.Body) + checksumLength
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
		b = wire.AppendName(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Header)))
	for _, f := range r.Header {
		b = wire.AppendField(b, wire.Field(f))
	}
	content := b[1]
	if r.origin != "" {
		b[1] |= flagOrigin
		b = wire.AppendText(b, r.origin)
	}
	switch content {
	case 0:
		b = append(b, r.Body...)
	case flagBlob:
		b = append(b, blob...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeOutcome reverses encodeOutcome: it returns the response, and the id of the blob that has its body, if one does. Body
// shares the memory of b. The error wraps ErrUnreadable. Names and values are validated even if the checksum fits, so that
// access to the store is not enough to inject header fields.
func decodeOutcome(b []byte) (r *Response, blob string, err error) {
	if len(b) < 2+checksumLength {
		return nil, "", fmt.Errorf("%w: its outcome has only %d bytes", driver.ErrUnreadable, len(b))
	}
	if b[0] != outcomeFormat {
		return nil, "", fmt.Errorf("%w: its outcome begins with %q, which is neither format %c nor that of a codec in Keep.Codecs: "+
			"a newer version wrote it, or a process with another codec, or it is damaged", driver.ErrUnreadable, b[0], outcomeFormat)
	}
	sealed := len(b) - checksumLength
	if crc32.Checksum(b[:sealed], castagnoli) != binary.BigEndian.Uint32(b[sealed:]) {
		return nil, "", fmt.Errorf("%w: checksum differs", driver.ErrUnreadable)
	}
	d := wire.NewDecoder(b[:sealed], 2)
	content := b[1] &^ flagOrigin
	r = &Response{Status: int(d.Number()), Omitted: content == flagOmitted}
	d.ReadTexts()
	for n := d.Count(); n > 0 && !d.Malformed; n-- {
		r.Removed = append(r.Removed, d.Name())
	}
	if n := d.Count(); n > 0 {
		r.Header = make([]Field, 0, n+replayHeaderRoom)
		for ; n > 0 && !d.Malformed; n-- {
			r.Header = append(r.Header, Field(d.Field()))
		}
	}
	if b[1] != content {
		r.origin = d.OwnText()
	}
	if r.Body = slices.Clip(d.Rest()); content == flagBlob { // clipped: what is appended to it must not reach the checksum
		r.Body, blob = nil, string(r.Body)
	}
	isConsistent := content <= flagBlob && (content != flagBlob || blob != "") && (!r.Omitted || len(r.Body) == 0) &&
		(b[1] == content || r.origin != "")
	if d.Malformed || !isConsistent || r.Status < 100 || r.Status > 999 {
		return nil, "", fmt.Errorf("%w: malformed outcome", driver.ErrUnreadable)
	}
	return r, blob, nil
}

// replayHeaderRoom is the number of header fields that a replay may add to a decoded response, which has room for them.
const replayHeaderRoom = 4

// hasBody reports whether a response with this status may have content (RFC 9110, section 6.4.1).
func hasBody(status int) bool { return status >= 200 && status != 204 && status != 304 }
