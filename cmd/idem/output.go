package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// checkedWriter remembers the first error of a writer, so that no output is lost silently, as on a full disk. The functions
// that print ignore errors, and run asks for the first one at the end.
type checkedWriter struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (w *checkedWriter) Write(text []byte) (int, error) {
	n, err := w.Writer.Write(text)
	w.err = cmp.Or(w.err, err)
	return n, err
}

// withoutControls replaces what could steer a terminal, since errors have text of servers and of arguments. Lines stay. A
// handler or a client could otherwise hide or forge what an operator reads.
func withoutControls(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// printJSON prints a value on a line of its own, so that a script can read a listing line by line. It prints nothing for a
// value that encoding/json refuses, such as an infinite number.
func (p *program) printJSON(value any) {
	if line, err := jsonLine(value); err == nil {
		_, _ = p.stdout.Write(line)
	}
}

// jsonLine returns a value as a line of JSON. Control characters are escaped, also those from 0x7f on, which encoding/json
// leaves, and with which a terminal can be steered. For a program that reads JSON the value is the same.
func jsonLine(value any) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	var escaped strings.Builder
	for _, r := range line.String() {
		if r >= 0x7f && unicode.IsControl(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return []byte(escaped.String()), nil
}
