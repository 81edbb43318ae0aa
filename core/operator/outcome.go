package operator

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/internal/sfv"
)

// statusLine is the first line of a response. The reason after the status may be missing, as it is in HTTP/2.
var statusLine = regexp.MustCompile(`^HTTP/\d(?:\.\d)? ([2-5]\d\d)(?: [^\r]*)?$`)

// ParseOutcome parses a response that an operator has written for Resolve, as HTTP/1.1 has it: a status line, header fields, an
// empty line, and the body as it is.
func ParseOutcome(text []byte) (*core.Response, error) {
	reader := textproto.NewReader(bufio.NewReader(bytes.NewReader(text)))
	first, _ := reader.ReadLine()
	match := statusLine.FindStringSubmatch(first)
	if match == nil {
		return nil, errors.New(`it must begin with a line such as "HTTP/1.1 201 Created", with a status from 200 to 599`)
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil && !(errors.Is(err, io.EOF) && len(header) == 0) {
		return nil, errors.New("after the header fields there must be an empty line: " + err.Error())
	}
	body, err := io.ReadAll(reader.R)
	if err != nil {
		return nil, err
	}
	if header.Get("Transfer-Encoding") != "" {
		return nil, errors.New("the body must be as it is, so Transfer-Encoding must be removed")
	}
	if length := header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
		return nil, errors.New("Content-Length is " + length + ", and the body has " + strconv.Itoa(len(body)) +
			" bytes; has an editor added a line end?")
	}
	header.Del("Content-Length")
	outcome := &core.Response{Body: body}
	outcome.Status, _ = strconv.Atoi(match[1])
	if len(body) > 0 && (outcome.Status == http.StatusNoContent || outcome.Status == http.StatusNotModified) {
		return nil, errors.New("a response with the status " + match[1] + " has no body; has an editor added a line end?")
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if !sfv.IsToken(name) {
			return nil, errors.New(strconv.Quote(name) + " is no name of a header field")
		}
		for _, value := range header[name] {
			outcome.Header = append(outcome.Header, core.Field{Name: name, Value: value})
		}
	}
	return outcome, nil
}
