package baretest

import (
	"errors"
	"io"
	"strings"
)

// HTML is a body that is detected as HTML, and long enough to be compressed.
var HTML = "<html><body>" + strings.Repeat("text ", 100)

// Letters returns n bytes of text.
func Letters(n int) string { return strings.Repeat("abcdefghij", n/10+1)[:n] }

// Text writes s to w.
func Text(w io.Writer, s string) { _, _ = io.WriteString(w, s) }

// XMLValue is a value that has a name in XML.
type XMLValue struct{ A int }

// FailingReader fails at the first Read.
type FailingReader struct{}

// Read implements io.Reader.
func (FailingReader) Read([]byte) (int, error) { return 0, errors.New("source failed") }
