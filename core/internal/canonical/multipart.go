package canonical

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
)

// maxParts bounds the parts of a form, because the reader makes objects for each part, however short that is.
const maxParts = 1000

// Multipart returns the canonical form of a multipart/form-data body: its parts in order, each with its header and its bytes,
// as package mime/multipart reads them and before any decoding. Header fields are sorted by name; fields of one name keep
// their order. The boundary, and any text before the first part and after the last, are ignored.
//
// A body has no form if contentType is another, if the body is malformed or incomplete, or if it has more than maxParts parts.
func Multipart(contentType string, body []byte) ([]byte, bool) {
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "multipart/form-data" {
		return nil, false
	}
	// When a body ends inside the header of a part, the reader would not report that part. The appended empty line ends the
	// header, so that the reader finds the part, and that the part is incomplete. After a complete body the empty line is
	// ignored.
	whole := io.MultiReader(bytes.NewReader(body), strings.NewReader("\r\n\r\n"))
	parts := multipart.NewReader(whole, params["boundary"])
	form := make([]byte, 0, len(body))
	for range maxParts + 1 {
		part, err := parts.NextRawPart()
		if err == io.EOF { // not errors.Is: a missing end wraps it
			return form, true
		}
		if err != nil {
			return nil, false
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		form = binary.AppendUvarint(appendHeader(form, part.Header), uint64(len(content)))
		form = append(form, content...)
	}
	return nil, false
}

// appendHeader appends the number of header fields and, sorted by name, each field. Each text has its length in front, so that
// two different forms never become the same bytes.
func appendHeader(form []byte, header map[string][]string) []byte {
	lines := 0
	for _, values := range header {
		lines += len(values)
	}
	form = binary.AppendUvarint(form, uint64(lines))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			text := strings.Trim(value, " \t") // a folded field may end in them
			form = append(binary.AppendUvarint(form, uint64(len(name))), name...)
			form = append(binary.AppendUvarint(form, uint64(len(text))), text...)
		}
	}
	return form
}
