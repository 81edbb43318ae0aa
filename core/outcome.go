package core

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/wire"
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
		b = wire.AppendName(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Header)))
	for _, f := range r.Header {
		b = wire.AppendField(b, wire.Field(f))
	}
	switch b[1] {
	case 0:
		b = append(b, r.Body...)
	case flagBlob:
		b = append(b, blob...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
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
	d := wire.NewDecoder(b[:sealed], 2)
	r = &Response{Status: int(d.Number()), Omitted: b[1] == flagOmitted}
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
	if r.Body = slices.Clip(d.Rest()); b[1] == flagBlob { // clipped: what is appended to it must not reach the checksum
		r.Body, blob = nil, string(r.Body)
	}
	if d.Malformed || b[1] > flagBlob || b[1] == flagBlob && blob == "" || r.Omitted && len(r.Body) > 0 || r.Status < 100 || r.Status > 999 {
		return nil, "", fmt.Errorf("%w: malformed outcome", driver.ErrUnreadable)
	}
	return r, blob, nil
}

// replayHeaderRoom is room for the lines that a replay adds.
const replayHeaderRoom = 3

// hasBody: may an answer with this status have content? RFC 9110, section 6.4.1.
func hasBody(status int) bool { return status >= 200 && status != 204 && status != 304 }
