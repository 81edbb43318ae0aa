package fiberadapter

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// errBrokeOff is the error of a run whose stream failed or was shorter than declared.
var errBrokeOff = errors.New("idem: the stream of the answer broke off")

// stream is the body of a response that is made while it is sent. fasthttp reads it after the handlers have returned, and closes
// it when it has been sent or the client has left. Close ends the run.
type stream struct {
	source    io.Reader
	size      int // the declared length in bytes; negative if there is none
	limit     int // KeepConfig.MaxBody, in bytes
	response  core.Response
	clientCtx *clientContext // see handlerResponse

	end        func(*core.Response, error) // ends the run; nil without a claim
	readErr    error                       // io.EOF or the error of the source, from then on
	sent       int                         // bytes read so far
	isComplete bool                        // the source came to its end
	hasFailed  bool                        // the source failed; also true during each call of it, so that a panic counts
	closed     sync.Once
}

// declaredSize returns the length of the response's stream in bytes, as fasthttp determines it; negative if it is unknown.
func declaredSize(response *fasthttp.Response) int {
	size := response.Header.ContentLength()
	limited, ok := response.BodyStream().(*io.LimitedReader)
	if size < 0 && ok && limited.N == int64(int(limited.N)) {
		return int(limited.N)
	}
	return size
}

// bufferStream reads the response's stream into memory if its length is known and at most limit bytes, so that it can be stored
// before it is sent, like any other body.
func bufferStream(response *fasthttp.Response, limit int) error {
	size := declaredSize(response)
	if size < 0 || size > limit {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.BodyStream(), int64(size)+1))
	if err == nil && len(body) != size {
		err = errBrokeOff // fasthttp would close the connection.
	}
	if err != nil {
		return err
	}
	response.SetBody(body)
	return nil
}

// wrapStream puts a stream around the response's own one. r is the rest of the response. A timeout middleware outside may forget
// the response without closing it. A finalizer then closes the stream, or the engine would renew the claim for ever.
func wrapStream(response *fasthttp.Response, limit int, r core.Response) *stream {
	s := &stream{source: response.BodyStream(), size: declaredSize(response), limit: limit, response: r}
	replaceStream(response, s)
	runtime.SetFinalizer(s, func(s *stream) { go s.closeForgotten() })
	return s
}

// closeForgotten closes a stream that nobody will read. The finalizer calls it in a new goroutine, because closing the source and
// ending the run may take long, and all finalizers share one goroutine. It recovers from a panic of the source, because no
// middleware is left that could.
func (s *stream) closeForgotten() {
	defer func() { _ = recover() }()
	_ = s.Close()
}

// replaceStream makes s the stream of response and leaves everything else. It resets the whole response, because SetBodyStream
// would close the stream that s reads from.
func replaceStream(response *fasthttp.Response, s *stream) {
	var header fasthttp.ResponseHeader
	response.Header.CopyTo(&header)
	flush := response.ImmediateHeaderFlush
	*response = fasthttp.Response{}
	header.CopyTo(&response.Header)
	response.ImmediateHeaderFlush = flush
	response.SetBodyStream(s, s.size)
}

// Read implements io.Reader. It captures the body while that has at most limit bytes. At the end of the source, or at its error,
// it closes the stream: what serves a Fiber app by net/http reads streams, and may not close them.
func (s *stream) Read(p []byte) (int, error) {
	if s.readErr != nil {
		return 0, s.readErr
	}
	s.hasFailed = true
	n, err := s.source.Read(p)
	s.hasFailed = err != nil && !errors.Is(err, io.EOF)
	s.isComplete = errors.Is(err, io.EOF)
	s.sent += n
	if s.fits() {
		s.response.Body = append(s.response.Body, p[:n]...)
	} else {
		s.response.Body = nil
	}
	if s.readErr = err; err != nil {
		_ = s.Close()
	}
	return n, err
}

// fits reports whether the body has at most limit bytes, as far as is known.
func (s *stream) fits() bool { return max(s.size, s.sent) <= s.limit }

// WriteTo implements io.WriterTo. It passes a body that will not be captured straight to the source, so that the kernel can send
// a long file. Like Read, it closes the stream when there is no more to read.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	if s.size <= s.limit {
		return io.Copy(w, struct{ io.Reader }{s})
	}
	s.hasFailed = true
	n, hasFailed, err := copyFrom(s.source, w)
	s.hasFailed, s.isComplete = hasFailed, err == nil
	s.sent += int(n)
	_ = s.Close()
	return n, err
}

// copyFrom copies source to w. After an error, hasFailed reports whether it is one of the source, and not of w, whose client may
// have left. A source that writes itself to w, as a file does, tells no more than the error: one of a connection is that of w.
func copyFrom(source io.Reader, w io.Writer) (n int64, hasFailed bool, err error) {
	reader := source
	if limited, ok := source.(*io.LimitedReader); ok {
		reader = limited.R
	}
	if _, writesItself := reader.(io.WriterTo); writesItself {
		n, err = io.Copy(w, source)
		var connection *net.OpError
		return n, err != nil && !errors.As(err, &connection), err
	}
	watched := &watchedReader{source: source}
	n, err = io.Copy(w, watched)
	return n, watched.hasFailed, err
}

// watchedReader reads from a source, and notes if that fails.
type watchedReader struct {
	source    io.Reader
	hasFailed bool
}

// Read implements io.Reader.
func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	r.hasFailed = err != nil && !errors.Is(err, io.EOF)
	return n, err
}

// Close implements io.Closer. It closes the source and ends the run, once.
func (s *stream) Close() (err error) {
	s.closed.Do(func() {
		runtime.SetFinalizer(s, nil)
		defer s.settle()
		source, ok := s.source.(io.Closer)
		if !ok {
			return
		}
		isBad := s.hasFailed
		s.hasFailed = true
		err = source.Close()
		s.hasFailed = isBad || err != nil
	})
	return err
}

// settle ends the run: with an error if the source failed or did not have the declared length, else with the response. The
// response is Unfinished if the client left before the end.
func (s *stream) settle() {
	defer s.clientCtx.detach()
	switch {
	case s.end == nil:
	case s.hasFailed, s.isComplete && s.size >= 0 && s.sent != s.size:
		s.end(nil, errBrokeOff)
	default:
		r := &s.response
		r.Sent, r.Unfinished = true, !s.isComplete
		if r.Omitted = r.Unfinished || !s.fits(); r.Omitted {
			r.Body = nil
		}
		s.end(r, nil)
	}
}
