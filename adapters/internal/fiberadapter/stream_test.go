package fiberadapter

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// errSource is the error of a source.
var errSource = errors.New("the source is gone")

// source is a stream that must not be read after its end. It closes as closing says.
type source struct {
	io.Reader
	closing func() error
	isOver  bool
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (n int, err error) {
	if s.isOver {
		return 0, errors.New("read after the end")
	}
	n, err = s.Reader.Read(p)
	s.isOver = err != nil
	return n, err
}

// Close implements io.Closer.
func (s *source) Close() error { return s.closing() }

// breaking is a text whose end is an error. It does not write itself.
func breaking() io.Reader {
	return struct{ io.Reader }{io.MultiReader(strings.NewReader("paid"), iotest.ErrReader(errSource))}
}

// panicking is a source that panics when it is read.
type panicking struct{}

// Read implements io.Reader.
func (panicking) Read([]byte) (int, error) { panic("in read") }

// leaving is a client that leaves after two bytes.
type leaving struct{ err error }

// Write implements io.Writer.
func (w leaving) Write([]byte) (int, error) { return 2, w.err }

// What is done with a stream: it is read, as by a compressor, or sent in one call, as by fasthttp.
var (
	read  = func(s *stream) error { _, err := io.ReadAll(struct{ io.Reader }{s}); return err }
	begin = func(s *stream) error { _, err := s.Read(make([]byte, 2)); return err }
	send  = func(s *stream) error { _, err := s.WriteTo(struct{ io.Writer }{io.Discard}); return err }
	leave = func(s *stream) error { _, err := s.WriteTo(leaving{io.ErrClosedPipe}); return err }
	reset = func(s *stream) error { _, err := s.WriteTo(leaving{&net.OpError{Err: io.ErrClosedPipe}}); return err }
)

// CON-12: the engine learns how the source ended, and gets an error if that failed. A client that leaves is no failure of the
// source, so that the decision of the handler counts then.
func TestAStreamEndsItsRunAsItsSourceEnded(t *testing.T) {
	kept := &core.Response{Sent: true, Body: []byte("paid")}
	omitted, unfinished := &core.Response{Sent: true, Omitted: true}, &core.Response{Sent: true, Omitted: true, Unfinished: true}
	well, badly := func() error { return nil }, func() error { return errSource }
	text := func() io.Reader { return iotest.DataErrReader(strings.NewReader("paid")) }
	for name, test := range map[string]struct {
		source      io.Reader
		size, limit int
		use         func(*stream) error
		want        *core.Response // nil if the run fails
		err         error          // of use, and then of Close
	}{
		"as long as what is kept":            {text(), -1, 4, read, kept, nil},
		"longer than what is kept":           {text(), -1, 3, read, omitted, nil},
		"declared":                           {text(), 4, 4, send, kept, nil},
		"declared, longer than what is kept": {text(), 4, 3, send, omitted, nil},
		"declared and read":                  {text(), 4, 3, read, omitted, nil},
		"declared as empty":                  {text(), 0, 4, read, nil, nil},
		"shorter than declared":              {text(), 5, 3, send, nil, nil},
		"shorter than declared and read":     {text(), 5, 3, read, nil, nil},
		"failing":                            {breaking(), -1, 9, read, nil, errSource},
		"failing in one call":                {breaking(), 9, 3, send, nil, errSource},
		"failing behind its last byte":       {breaking(), 4, 3, send, nil, errSource},
		"failing and closing well":           {&source{breaking(), well, false}, -1, 9, read, nil, errSource},
		"failing to close":                   {&source{text(), badly, false}, -1, 9, read, nil, nil},
		"failing to close unread":            {&source{text(), badly, false}, -1, 9, begin, nil, errSource},
		"left":                               {text(), -1, 9, begin, unfinished, nil},
		"left in one call":                   {text(), 4, 3, leave, unfinished, io.ErrClosedPipe},
		"a file that is left":                {strings.NewReader("paid"), 4, 3, reset, unfinished, io.ErrClosedPipe},
		"a file that fails":                  {failingFile{}, 4, 3, send, nil, errSource},
	} {
		t.Run(name, func(t *testing.T) {
			var ends int
			s := &stream{source: test.source, size: test.size, limit: test.limit, end: func(r *core.Response, err error) {
				ends++
				assert.Equal(t, test.want, r)
				assert.Equal(t, test.want == nil, err != nil)
			}}
			err := test.use(s)
			if closed := s.Close(); err == nil {
				err = closed
			}
			if test.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err.Error())
			}
			assert.Equal(t, 1, ends)
		})
	}
}

// failingFile is a source that writes itself, and fails.
type failingFile struct{ io.Reader }

// WriteTo implements io.WriterTo.
func (failingFile) WriteTo(io.Writer) (int64, error) { return 2, errSource }

// CON-12: whoever recovers a panic of the source closes the stream.
func TestAStreamWhoseSourcePanicsFailsItsRun(t *testing.T) {
	for name, test := range map[string]struct {
		source io.Reader
		size   int
		use    func(*stream) error
	}{
		"when it is read":   {panicking{}, -1, read},
		"when it is sent":   {panicking{}, 9, send},
		"when it is closed": {&source{strings.NewReader(""), func() error { panic("in close") }, false}, -1, (*stream).Close},
	} {
		t.Run(name, func(t *testing.T) {
			var failures int
			s := &stream{source: test.source, size: test.size, limit: 3, end: func(_ *core.Response, err error) {
				assert.Error(t, err)
				failures++
			}}
			assert.Panics(t, func() { _ = test.use(s) })
			require.NoError(t, s.Close())
			assert.Equal(t, 1, failures)
		})
	}
}

// A reader may ask again after the end, which closed the source.
func TestAStreamThatHasEndedStaysAtItsEnd(t *testing.T) {
	for _, end := range []error{io.EOF, errSource} {
		s := &stream{source: &source{iotest.ErrReader(end), func() error { return nil }, false}, size: -1, limit: 3}
		for range 2 {
			_, err := s.Read(make([]byte, 1))
			assert.Equal(t, end, err)
		}
	}
}

// What is too long to be kept takes no memory while it is sent.
func TestAStreamHoldsNoMoreThanIsKept(t *testing.T) {
	s := &stream{source: strings.NewReader("paid"), size: -1, limit: 3}
	_, err := io.ReadFull(s, make([]byte, 3))
	require.NoError(t, err)
	assert.Equal(t, "pai", string(s.response.Body))
	_, err = io.ReadFull(s, make([]byte, 1))
	require.NoError(t, err)
	assert.Empty(t, s.response.Body)
}

// connection is a client that the kernel can send a file to. It notes what it is given.
type connection struct {
	io.Writer
	got io.Reader
}

// ReadFrom implements io.ReaderFrom.
func (c *connection) ReadFrom(r io.Reader) (int64, error) { c.got = r; return io.Copy(io.Discard, r) }

// The kernel copies a part of a file only if the connection gets the part as the handler has made it.
func TestAPartOfAFileIsLeftToTheKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("paid twice"), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	part, client := &io.LimitedReader{R: file, N: 4}, &connection{}
	s := &stream{source: part, size: 4, limit: 3}
	n, err := s.WriteTo(client)
	require.NoError(t, err)
	assert.EqualValues(t, 4, n)
	assert.Same(t, part, client.got)
}

// A stream that is short enough is read before it is sent, and one that is not of the declared length is refused then.
func TestAStreamIsReadBeforeItIsSentIfItsLengthIsKnown(t *testing.T) {
	limited := func(n int64) io.Reader { return &io.LimitedReader{R: strings.NewReader("paid"), N: n} }
	for name, test := range map[string]struct {
		source     io.Reader
		size       int
		isBuffered bool
		err        error
	}{
		"unknown":               {strings.NewReader("paid"), -1, false, nil},
		"empty":                 {strings.NewReader(""), 0, true, nil},
		"as long as is kept":    {strings.NewReader("paid"), 4, true, nil},
		"longer":                {strings.NewReader("paid!"), 5, false, nil},
		"limited":               {limited(4), -1, true, nil},
		"limited, and declared": {limited(4), 3, false, errBrokeOff},
		"limited, but empty":    {limited(4), 0, false, errBrokeOff},
		"failing":               {iotest.ErrReader(errSource), 4, false, errSource},
	} {
		t.Run(name, func(t *testing.T) {
			var response fasthttp.Response
			response.SetBodyStream(test.source, test.size)
			require.ErrorIs(t, bufferStream(&response, 4), test.err)
			assert.Equal(t, test.isBuffered, !response.IsBodyStream())
		})
	}
}

// The header of a response goes out before its body if the handler has said so.
func TestAStreamIsFlushedAsItsHandlerHasSaid(t *testing.T) {
	for _, isFlushed := range []bool{false, true} {
		response := fasthttp.Response{ImmediateHeaderFlush: isFlushed}
		response.SetBodyStream(strings.NewReader("paid"), -1)
		wrapStream(&response, 4, core.Response{})
		assert.Equal(t, isFlushed, response.ImmediateHeaderFlush)
	}
}
