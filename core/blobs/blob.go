package blobs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// A file has these parts:
//
//	format, 1 byte '1' | expiry, Unix ms, 8 bytes | data | CRC-32C of the id and all parts before, 4 bytes
const (
	format         = '1'
	headLength     = 1 + 8
	checksumLength = 4
	maxIDLength    = 128
)

// castagnoli is the table of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is the error for a file that fails its checksum or has another format.
var errDamaged = errors.New("idem: blobs: file is damaged, or of another blob or version")

// CheckID returns an error unless id has 1 to 128 letters, digits, - and _. Other implementations of driver.Blobs may use it.
func CheckID(id string) error {
	if len(id) == 0 || len(id) > maxIDLength {
		return fmt.Errorf("idem: blobs: id: has %d bytes, must have 1 to %d", len(id), maxIDLength)
	}
	for _, c := range []byte(id) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_') {
			return fmt.Errorf("idem: blobs: id: %q may have letters, digits, - and _ alone", id)
		}
	}
	return nil
}

// encode returns the content of a file.
func encode(id string, data []byte, expires time.Time) []byte {
	b := append(make([]byte, 0, headLength+len(data)+checksumLength), format)
	b = binary.BigEndian.AppendUint64(b, uint64(expires.UnixMilli()))
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, checksum(id, b))
}

// decode reverses encode. data shares the memory of content.
func decode(id string, content []byte) (data []byte, expires time.Time, err error) {
	end := len(content) - checksumLength
	if end < headLength || checksum(id, content[:end]) != binary.BigEndian.Uint32(content[end:]) {
		return nil, time.Time{}, errDamaged
	}
	expires, ok := expiry(content)
	if !ok {
		return nil, time.Time{}, errDamaged
	}
	return content[headLength:end], expires, nil
}

// expiry parses the first headLength bytes of a file. It reports false if the file has another format.
func expiry(head []byte) (time.Time, bool) {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(head[1:headLength]))), head[0] == format
}

// checksum includes the id, so that a file in the place of another is noticed.
func checksum(id string, content []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), castagnoli), castagnoli, content)
}
