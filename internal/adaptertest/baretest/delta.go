package baretest

import (
	"fmt"
	"hash/crc32"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// delta returns how b differs from a: one text for each part of the response that is not the same, as in
// `field Vary: "Origin" -> ""`. It is empty if and only if the responses are equal byte for byte.
func delta(a, b reply) (parts []string) {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	add := func(part, x, y string) {
		if x != y {
			parts = append(parts, fmt.Sprintf("%s: %s -> %s", part, summary(x), summary(y)))
		}
	}
	add("1xx", a.informational, b.informational)
	add("status", a.statusLine(), b.statusLine())
	fieldsOfA, fieldsOfB := a.fields(), b.fields()
	names := slices.AppendSeq(slices.Collect(maps.Keys(fieldsOfA)), maps.Keys(fieldsOfB))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		add("field "+name, fieldsOfA[name], fieldsOfB[name])
	}
	if len(parts) == 0 && !a.isPacked() {
		add("head", a.head, b.head)
	}
	add("trailer", fmt.Sprint(a.trailer), fmt.Sprint(b.trailer))
	add("end", a.end, b.end)
	add("reused", strconv.FormatBool(a.reused), strconv.FormatBool(b.reused))
	add("raw", a.raw, b.raw)
	add("body", a.unpacked().body, b.unpacked().body)
	if len(parts) == 0 { // What is left are the bytes of the compressed body, and their number.
		parts = append(parts, "packed body: other bytes")
	}
	return parts
}

// partOf returns the part of the response that an element of a delta is about.
func partOf(difference string) string {
	part, _, _ := strings.Cut(difference, ": ")
	return part
}

// summary returns text in quotes, and the beginning, the length and the checksum of a long one.
func summary(text string) string {
	if len(text) > 160 {
		return fmt.Sprintf("%q... (%d bytes, CRC %08x)", text[:40], len(text), crc32.ChecksumIEEE([]byte(text)))
	}
	return strconv.Quote(text)
}

// statusLine returns the first line of r.
func (r reply) statusLine() string {
	line, _, _ := strings.Cut(r.head, "\r\n")
	return line
}

// fields returns the values of the header fields by their names, both as they were sent. The length of a compressed body is not
// shown, because it depends on the version of the compressor.
func (r reply) fields() map[string]string {
	fields := map[string]string{}
	for _, field := range strings.Split(r.head, "\r\n")[1:] {
		name, value, _ := strings.Cut(field, ": ")
		if before, ok := fields[name]; ok {
			value = before + " | " + value
		}
		if name == "Content-Length" && r.isPacked() && value == strconv.Itoa(len(r.body)) {
			value = "packed"
		}
		fields[name] = value
	}
	return fields
}

// isPacked reports whether the body is compressed.
func (r reply) isPacked() bool {
	return strings.Contains(r.head, "\r\nContent-Encoding: gzip") && r.body != ""
}
