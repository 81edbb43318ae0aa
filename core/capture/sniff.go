package capture

import (
	"net/http"
	"slices"

	"github.com/go-idem/idem/core"
)

// sniff says which Content-Type net/http will find for an answer without one, now that next comes behind what is held back, so
// that replays through other frameworks carry it too; or that it will find none.
func (w *Writer) sniff(next []byte) {
	if !hasBody(w.response.Status) || w.hasContentType {
		return
	}
	const enough = 512 // that is all it looks at
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
