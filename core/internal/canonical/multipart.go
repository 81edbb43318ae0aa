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

const maxParts = 1000

// Multipart returns the canonical form of a multipart/form-data body: its parts in order, each with its header
// and its bytes, as package mime/multipart reads them and before any decoding. Header lines are sorted by name, lines of
// one name keep their order. The boundary and what stands before the first and after the last part do not count.
//
// There is none for another contentType, for what is malformed or cut short, and for more than maxParts.
func Multipart(contentType string, body []byte) ([]byte, bool) {
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "multipart/form-data" {
		return nil, false
	}
	// A body that is cut inside a part's header ends, for the reader, with the part before. The empty line ends that header,
	// so that the part is there and is cut; behind a whole body it does not count.
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

// appendHeader appends the number of lines and, by name, each line.
func appendHeader(form []byte, header map[string][]string) []byte {
	lines := 0
	for _, values := range header {
		lines += len(values)
	}
	form = binary.AppendUvarint(form, uint64(lines))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			text := strings.Trim(value, " \t") // a folded line may end in them
			form = append(binary.AppendUvarint(form, uint64(len(name))), name...)
			form = append(binary.AppendUvarint(form, uint64(len(text))), text...)
		}
	}
	return form
}
