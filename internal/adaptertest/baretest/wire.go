package baretest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reply is what a client receives on one connection after it has sent a request and, behind it, a second one for /ping.
type reply struct {
	informational string      // the 1xx responses, byte for byte
	head          string      // the status line and the header fields, byte for byte, with dates replaced
	body          string      // the body without its framing
	end           string      // how the body ended: "" or an error
	trailer       http.Header // the trailers
	reused        bool        // the server responded to the second request on the same connection
	raw           string      // all of the response that could not be parsed
	header        http.Header // the parsed header; nil if the response could not be parsed
	status        int         // the status; 0 if the response could not be parsed
}

// shape is a form of the request. The zero value is a POST over HTTP/1.1 with a body of one byte.
type shape struct {
	name    string
	method  string // default: POST
	version string // default: 1.1
	fields  string // more header fields, each with its line break
	body    string // default: "B", with its Content-Length
}

// Patience bounds one exchange.
const Patience = 20 * time.Second

// ask sends one request with a key, and returns what arrives until the server closes the connection.
func ask(t *testing.T, addr, path, key string, s shape) reply {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	method, version, body := s.method, s.version, s.body
	if method == "" {
		method = http.MethodPost
	}
	if version == "" {
		version = "1.1"
	}
	if body == "" {
		body = "Content-Length: 1\r\n\r\nB"
	}
	_, err = fmt.Fprintf(conn, "%s %s HTTP/%s\r\nHost: shop.example\r\nIdempotency-Key: %s\r\n%s%s", method, path, version, key, s.fields, body)
	require.NoError(t, err)
	_, _ = io.WriteString(conn, "GET /ping HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
	all, _ := io.ReadAll(conn) // A reset connection is the end, too: a server may close before it has read everything.
	return parse(all, method)
}

var (
	informational = regexp.MustCompile(`^HTTP/1\.[01] 10[02-9] `)
	dates         = regexp.MustCompile(`(?m)^Date: \w{3}, \d\d \w{3} 20[2-9]\d \d\d:\d\d:\d\d GMT`)
	randoms       = regexp.MustCompile(`((?:session|csrf|_csrf)[^=]*=)[^;\r]*`)
	tokens        = regexp.MustCompile(`(?m)^(X-Csrf-Token|X-Response-Time|X-Ratelimit-Remaining|X-Ratelimit-Reset): [^\r]*`)
	encrypted     = regexp.MustCompile(`(?m)^(Set-Cookie: [^=]*=)[A-Za-z0-9+%/]{36,}=*`)
	expires       = regexp.MustCompile(`(?i)expires=[^;\r]*`)
)

// parse returns the reply in all, which a server has sent on one connection.
func parse(all []byte, method string) (r reply) {
	for informational.Match(all) {
		head, rest, _ := bytes.Cut(all, []byte("\r\n\r\n"))
		r.informational, all = r.informational+normal(string(head))+"\r\n\r\n", rest
	}
	head, _, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	r.head = normal(string(head))
	in := bufio.NewReader(bytes.NewReader(all))
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		r.raw, r.end = normal(string(all)), err.Error()
		return r
	}
	body, err := io.ReadAll(response.Body)
	for _, name := range []string{"Date", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Set-Cookie"} {
		response.Header.Del(name) // It is compared in head.
	}
	r.body, r.trailer, r.header, r.status = string(body), response.Trailer, response.Header, response.StatusCode
	if err != nil {
		r.end = err.Error()
		return r
	}
	rest, _ := io.ReadAll(in)
	r.reused = bytes.HasSuffix(rest, []byte("\r\n\r\npong"))
	if len(rest) > 0 && (!r.reused || !bytes.HasPrefix(rest, []byte("HTTP/1.1 200 OK\r\n"))) {
		r.raw = normal(string(rest))
	}
	return r
}

// isReplay reports whether the response has the marker. fasthttp sends a 1xx as the final response, so the marker may be in one.
func (r reply) isReplay() bool {
	return r.header.Get(Marker) != "" || strings.Contains(r.informational, "\r\n"+Marker+": true")
}

// normal replaces what differs between any two responses: the date, and random values of sessions and tokens.
func normal(head string) string {
	head = dates.ReplaceAllString(head, "Date: now")
	head = randoms.ReplaceAllString(head, "${1}random")
	head = expires.ReplaceAllString(head, "expires=later")
	head = encrypted.ReplaceAllString(head, "${1}encrypted")
	return tokens.ReplaceAllString(head, "${1}: random")
}

// unpacked returns r with a compressed body unpacked: two writes may be compressed into other bytes than one.
func (r reply) unpacked() reply {
	if !strings.Contains(r.head, "\r\nContent-Encoding: gzip") || r.body == "" {
		return r
	}
	z, err := gzip.NewReader(strings.NewReader(r.body))
	if err != nil {
		return r
	}
	plain, err := io.ReadAll(z)
	if r.body = string(plain); err != nil {
		r.end += err.Error()
	}
	return r
}

// String returns r for the message of a failed test.
func (r reply) String() string {
	body := r.body
	if len(body) > 120 {
		body = fmt.Sprintf("%.60q... (%d bytes)", body, len(body))
	}
	return fmt.Sprintf("%s%s\n[body %s] [end %q] [trailer %v] [reused %v] [raw %.300q]",
		r.informational, strings.ReplaceAll(r.head, "\r\n", "\n"), body, r.end, r.trailer, r.reused, r.raw)
}
