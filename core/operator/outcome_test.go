package operator_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/operator"
)

func TestAnOutcomeIsAResponseOfHTTP(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*core.Response{
		"HTTP/1.1 201 Created\r\n\r\n": {Status: 201, Body: []byte{}},
		"HTTP/2 204":                   {Status: 204, Body: []byte{}},
		"HTTP/1.1 404 Not Found\n":     {Status: 404, Body: []byte{}},
		"HTTP/1.1 200 OK\nX-B: 1\nX-A: 2\nX-B: 3\nContent-Length: 3\n\na\r\n": {
			Status: 200, Body: []byte("a\r\n"),
			Header: []core.Field{{Name: "X-A", Value: "2"}, {Name: "X-B", Value: "1"}, {Name: "X-B", Value: "3"}},
		},
	} {
		got, err := operator.ParseOutcome([]byte(text))
		assert.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, why := range map[string]string{
		"":                                                   "must begin with a line such as",
		`{"status": 201}`:                                    "must begin with a line such as",
		"HTTP/1.1 100 Continue\n\n":                          "a status from 200 to 599",
		"HTTP/1.1 2010 Created\n\n":                          "must begin with a line such as",
		"HTTP/1.1 201 Created\nX-A: 1\n":                     "there must be an empty line",
		"HTTP/1.1 201 Created\nno field\n\n":                 "there must be an empty line",
		"HTTP/1.1 200\nContent-Length:3\n\na":                "Content-Length is 3, and the body has 1 bytes",
		"HTTP/1.1 204 No Content\n\n\n":                      "204 has no body",
		"HTTP/1.1 304 Not Modified\n\nbody":                  "304 has no body",
		"HTTP/1.1 200 OK\nX-A : 1\n\n":                       `"X-A " is no name of a header field`,
		"HTTP/1.1 200 OK\nX A: 1\n\n":                        "is no name of a header field",
		"HTTP/1.1 200 OK\rX-A: 1\r\r":                        "must begin with a line such as",
		"HTTP/1.1 200 OK\nX-A: 1\x00\n\n":                    "there must be an empty line",
		"HTTP/1.1 200\nTransfer-Encoding: chunked\n\n1\na\n": "Transfer-Encoding must be removed",
	} {
		_, err := operator.ParseOutcome([]byte(text))
		assert.ErrorContains(t, err, why, text)
	}
}
