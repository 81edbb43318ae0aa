package idem

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

var errBrokeOff = errors.New("idem: the stream of the answer broke off")

// stream is the body of an answer that is made while it is sent. fasthttp reads it when the handlers have returned, and closes
// it when it has been sent or the client has left. Its end is the end of the run.
type stream struct {
	source    io.Reader
	size      int // as declared; negative: not
	limit     int // of what is kept of it, in bytes
	response  core.Response
	clientCtx *clientContext // see handlerResponse

	end        func(*core.Response, error) // of the run; nil without a claim
	sent       int                         // in bytes
	isComplete bool                        // the source came to its end
	hasFailed  bool                        // the source failed, or is being asked: one that panics stays so
	closed     sync.Once
}

// declaredSize is the length of a response's stream, as fasthttp finds it; negative where nobody knows.
func declaredSize(response *fasthttp.Response) int {
	size := response.Header.ContentLength()
	limited, ok := response.BodyStream().(*io.LimitedReader)
	if size < 0 && ok && limited.N == int64(int(limited.N)) {
		return int(limited.N)
	}
	return size
}

// bufferStream reads a stream of a known length that fits into limit, so that it is kept before it is sent, as any other body.
func bufferStream(response *fasthttp.Response, limit int) error {
	size := declaredSize(response)
	if size < 0 || size > limit {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.BodyStream(), int64(size)+1))
	if err == nil && len(body) != size {
		err = errBrokeOff // fasthttp would break the connection off
	}
	if err != nil {
		return err
	}
	response.SetBody(body)
	return nil
}

// wrapStream puts a stream in the place of that of response, whose answer is r.
func wrapStream(response *fasthttp.Response, limit int, r core.Response) *stream {
	s := &stream{source: response.BodyStream(), size: declaredSize(response), limit: limit, response: r}
	replaceStream(response, s)
	// Who times the request out outside forgets the response, and the claim would be renewed for ever.
	runtime.SetFinalizer(s, func(s *stream) { go s.closeForgotten() })
	return s
}

// closeForgotten closes a stream that nobody will read. It has a goroutine of its own, because to close the source and to settle the run
// may take long, and all finalizers of the process share one. A panic has no recovery outside any more, and ends the run only.
func (s *stream) closeForgotten() {
	defer func() { _ = recover() }()
	_ = s.Close()
}

// replaceStream puts s in the place of the stream of response, which fasthttp would close. All else stays.
func replaceStream(response *fasthttp.Response, s *stream) {
	var header fasthttp.ResponseHeader
	response.Header.CopyTo(&header)
	flush := response.ImmediateHeaderFlush
	*response = fasthttp.Response{}
	header.CopyTo(&response.Header)
	response.ImmediateHeaderFlush = flush
	response.SetBodyStream(s, s.size)
}

// Read reads from the source, and keeps what fits.
func (s *stream) Read(p []byte) (int, error) {
	s.hasFailed = true
	n, err := s.source.Read(p)
	s.hasFailed = err != nil && !errors.Is(err, io.EOF)
	s.isComplete = s.isComplete || errors.Is(err, io.EOF)
	s.sent += n
	if s.fits() {
		s.response.Body = append(s.response.Body, p[:n]...)
	} else {
		s.response.Body = nil
	}
	return n, err
}

// fits tells whether the body is, as far as it is known.
func (s *stream) fits() bool { return max(s.size, s.sent) <= s.limit }

// WriteTo lets a long file be sent by the kernel.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	if s.size <= s.limit {
		return io.Copy(w, struct{ io.Reader }{s})
	}
	s.hasFailed = true
	n, err := io.Copy(w, s.source)
	s.hasFailed, s.isComplete = err != nil, err == nil
	s.sent += int(n)
	return n, err
}

// Close closes the source and ends the run.
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

// settle ends the run.
func (s *stream) settle() {
	defer s.clientCtx.detach()
	switch {
	case s.end == nil:
	case s.hasFailed:
		s.end(nil, errBrokeOff)
	default:
		r := &s.response
		r.Sent, r.Unfinished = true, !s.isComplete || s.size >= 0 && s.sent != s.size
		if r.Omitted = r.Unfinished || !s.fits(); r.Omitted {
			r.Body = nil
		}
		s.end(r, nil)
	}
}
