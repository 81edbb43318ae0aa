package capture_test

import (
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/capture"
)

// source is the body of a request. It counts how often it is read.
type source struct {
	io.Reader
	reads int
}

func (s *source) Read(p []byte) (int, error) { s.reads++; return s.Reader.Read(p) }
func (*source) Close() error                 { return nil }

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
		"none":                                {nil, 0, "", "", true},
		"as long as the limit":                {strings.NewReader("12345678"), 8, "12345678", "", false},
		"as long as the limit, undeclared":    {strings.NewReader("12345678"), -1, "12345678", "", false},
		"a byte longer, undeclared":           {strings.NewReader("123456789"), -1, "123456789", "", false},
		"much longer, undeclared":             {strings.NewReader(strings.Repeat("1", 100)), -1, "111111111", "", false},
		"declared longer":                     {strings.NewReader("123456789"), 9, "", "too large", true},
		"declared shorter than it is":         {strings.NewReader("12345"), 2, "12345", "", false},
		"declared longer than it is":          {strings.NewReader("12"), 5, "12", "", false},
		"byte by byte":                        {iotest.OneByteReader(strings.NewReader("12345678")), 8, "12345678", "", false},
		"refused by a limit of net/http":      {iotest.ErrReader(&http.MaxBytesError{Limit: 3}), -1, "", "too large", false},
		"refused by the limit of a framework": {iotest.ErrReader(errOuter), -1, "", "too large", false},
		"broken in the middle":                {io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF)), 8, "12", "unexpected EOF", false},
		"broken in the middle, undeclared":    {io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, "12", "unexpected EOF", false},
		"an end beside the last bytes":        {iotest.DataErrReader(strings.NewReader("12345678")), 8, "12345678", "", false},
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

// FPR-14: and the outer request keeps its own body.
func TestAHandlerReadsTheBodyThatTheEngineHasRead(t *testing.T) {
	s := &source{Reader: strings.NewReader("order")}
	x, outer := posted(s, 5)
	_, err := x.Request().Body(100)
	require.NoError(t, err)
	inner := x.RequestWithContext(context.Background())
	got, err := io.ReadAll(inner.Body)
	require.NoError(t, err)
	assert.Equal(t, "order", string(got))
	assert.Same(t, s, outer.Body)
}

// Middleware outside may have parsed a form and put the body back.
func TestABodyThatIsWholeStandsForItself(t *testing.T) {
	x, outer := posted(&source{Reader: strings.NewReader("order")}, 5)
	outer.MultipartForm = &multipart.Form{Value: map[string][]string{"amount": {"1"}}}
	body, err := x.Request().Body(100)
	require.NoError(t, err)
	assert.Equal(t, "order", string(body))
}

// A body that the engine has not read is that of the request.
func TestABodyThatNobodyHasReadIsTheHandlers(t *testing.T) {
	s := &source{Reader: strings.NewReader("order")}
	x, _ := posted(s, 5)
	assert.Same(t, s, x.RequestWithContext(context.Background()).Body)
}
