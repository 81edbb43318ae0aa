package capture_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/capture"
)

// source is the body of a request. It counts what is done with it.
type source struct {
	io.Reader
	closeErr      error
	afterClose    error // what it returns after Close; nil if it can still be read
	reads, closed int
}

func (s *source) Read(p []byte) (int, error) {
	if s.closed > 0 && s.afterClose != nil {
		return 0, s.afterClose
	}
	s.reads++
	return s.Reader.Read(p)
}

func (s *source) Close() error { s.closed++; return s.closeErr }

// posted is the exchange of a request whose body is b; a length of -1 is not declared.
func posted(b io.ReadCloser, length int64) (*capture.Exchange, *http.Request) {
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Body, r.ContentLength = b, length
	return capture.NewExchange(r), r
}

var errOuter = errors.New("outer middleware has a limit of its own")

// FPR-15.
func TestABodyIsReadUpToItsLimit(t *testing.T) {
	for name, test := range map[string]struct {
		body    io.Reader // nil: none
		length  int64
		want    string
		wantErr string // "too large", or part of another error
		unread  bool   // not one byte is asked for
	}{
		"none":                                   {nil, 0, "", "", true},
		"as long as the limit":                   {strings.NewReader("12345678"), 8, "12345678", "", false},
		"as long as the limit, undeclared":       {strings.NewReader("12345678"), -1, "12345678", "", false},
		"a byte longer, undeclared":              {strings.NewReader("123456789"), -1, "123456789", "", false},
		"much longer, undeclared":                {strings.NewReader(strings.Repeat("1", 100)), -1, "111111111", "", false},
		"declared longer":                        {strings.NewReader("123456789"), 9, "", "too large", true},
		"declared shorter than it is":            {strings.NewReader("12345"), 2, "12345", "", false},
		"declared longer than it is":             {strings.NewReader("12"), 5, "12", "", false},
		"byte by byte":                           {iotest.OneByteReader(strings.NewReader("12345678")), 8, "12345678", "", false},
		"refused by a limit of net/http":         {iotest.ErrReader(&http.MaxBytesError{Limit: 3}), -1, "", "too large", false},
		"refused by the limit of a framework":    {iotest.ErrReader(errOuter), -1, "", "too large", false},
		"broken in the middle":                   {io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF)), 8, "12", "unexpected EOF", false},
		"broken in the middle, undeclared":       {io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, "12", "unexpected EOF", false},
		"an error beside the last bytes, an end": {iotest.DataErrReader(strings.NewReader("12345678")), 8, "12345678", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{Reader: test.body}
			x, _ := posted(s, test.length)
			if test.body == nil {
				x, _ = posted(http.NoBody, test.length)
			}
			x.TooLarge = errOuter
			body, err := x.Request().Body(8)
			var tooLarge *http.MaxBytesError
			switch {
			case test.wantErr == "":
				require.NoError(t, err)
			case test.wantErr == "too large":
				require.ErrorAs(t, err, &tooLarge)
				assert.EqualValues(t, 8, tooLarge.Limit, "the engine names its own limit")
			default:
				require.ErrorContains(t, err, test.wantErr)
				assert.False(t, errors.As(err, &tooLarge))
			}
			assert.Equal(t, test.want, string(body))
			assert.Equal(t, test.unread, s.reads == 0)
		})
	}
}

// A framework that has no such error is not asked for it.
func TestAnErrorOfTheBodyIsNoLimitWithoutALimit(t *testing.T) {
	x, _ := posted(&source{Reader: iotest.ErrReader(errOuter)}, -1)
	_, err := x.Request().Body(8)
	require.ErrorIs(t, err, errOuter)
}

// FPR-14.
func TestAHandlerReadsTheBodyThatTheEngineHasRead(t *testing.T) {
	for name, read := range map[string]func(io.Reader) (string, error){
		"by Read": func(r io.Reader) (string, error) { b, err := io.ReadAll(struct{ io.Reader }{r}); return string(b), err },
		"by WriteTo": func(r io.Reader) (string, error) {
			var b strings.Builder
			_, err := io.Copy(&b, r)
			return b.String(), err
		},
	} {
		for after, test := range map[string]struct {
			afterClose error
			want       error
		}{
			"one that stays readable":       {nil, nil},
			"one that is at its end":        {io.EOF, nil},
			"one that ends with its reader": {http.ErrBodyReadAfterClose, http.ErrBodyReadAfterClose},
		} {
			t.Run(name+", "+after, func(t *testing.T) {
				closeErr := errors.New("close has failed")
				s := &source{Reader: strings.NewReader("order"), afterClose: test.afterClose, closeErr: closeErr}
				x, outer := posted(s, 5)
				_, err := x.Request().Body(100)
				require.NoError(t, err)
				inner := x.RequestWithContext(context.Background())
				assert.Same(t, s, outer.Body, "the outer request keeps its own")
				got, err := read(inner.Body)
				require.NoError(t, err)
				assert.Equal(t, "order", got)
				assert.Equal(t, closeErr, inner.Body.Close())
				assert.Equal(t, 1, s.closed)
				_, err = read(inner.Body)
				if test.want == nil {
					assert.NoError(t, err)
				} else {
					assert.Equal(t, test.want, err)
				}
			})
		}
	}
}

// A body that the engine did not need is that of the request.
func TestABodyThatNobodyHasReadIsTheHandlers(t *testing.T) {
	s := &source{Reader: strings.NewReader("order")}
	x, _ := posted(s, 5)
	assert.Same(t, s, x.RequestWithContext(context.Background()).Body)
	without := httptest.NewRequest(http.MethodPost, "/orders", nil)
	without.Body = nil // as in a request that a test has made
	x = capture.NewExchange(without)
	body, err := x.Request().Body(8)
	require.NoError(t, err)
	assert.Nil(t, body)
	assert.Nil(t, x.RequestWithContext(context.Background()).Body)
}

// FRM-07: a path is that of the request line, also if outer middleware has changed the URL.
func TestARequestIsWhatTheClientHasSent(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/v1/a%2Fb?c=1&c=2", nil)
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = "/changed", "", "changed"
	request := capture.NewExchange(r).Request()
	assert.Equal(t, []string{"POST", "/v1/a%2Fb", "c=1&c=2"}, []string{request.Method, request.Path, request.RawQuery})
	r.RequestURI = ""
	request = capture.NewExchange(r).Request()
	assert.Equal(t, []string{"/changed", "changed"}, []string{request.Path, request.RawQuery}, "a test has made the request")
	r.Host = "API.example"
	assert.Equal(t, []string{"api.example"}, capture.NewExchange(r).Request().Header("host"))
	r.Host = ""
	r.Header["Host"] = []string{"b", "c"}
	assert.Equal(t, []string{"b", "c"}, capture.NewExchange(r).Request().Header("Host"))
}

func TestFieldsOfTheEngineNeedARun(t *testing.T) {
	assert.Nil(t, capture.EngineFields(context.Background()))
}
