package capture

import (
	"net/http"
	"slices"

	"github.com/go-idem/idem/core"
)

// sniff records the Content-Type that net/http will detect for a response without one, so that a replay carries it also when
// another framework sends it. The body begins with the bytes held back and continues with next. If net/http will detect nothing,
// sniff records that the header field is removed. It records nothing if middleware outside encodes bodies: what net/http detects
// then depends on what that middleware makes of each response.
func (w *Writer) sniff(next []byte) {
	if !hasBody(w.response.Status) || w.hasContentType || w.isEncodedOutside {
		return
	}
	const enough = 512 // http.DetectContentType reads no further.
	opening := w.response.Body
	if len(opening) < enough && len(next) > 0 {
		opening = slices.Concat(opening, next[:min(len(next), enough)])
	}
	if w.isEncoded || len(opening) == 0 {
		if w.deleted = append(w.deleted, "Content-Type"); !slices.Contains(w.response.Removed, "Content-Type") {
			w.response.Removed = append(w.response.Removed, "Content-Type")
		}
		return
	}
	w.sniffedType = http.DetectContentType(opening)
	w.response.Header = append(w.response.Header, core.Field{Name: "Content-Type", Value: w.sniffedType})
}
