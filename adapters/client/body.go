package idem

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// The bounds of bufferBody.
const (
	bufferTimeout = time.Second
	bufferLimit   = 64 << 10 // in bytes
)

// bufferBody reads the body of res into memory and closes it, so that res holds no connection during a pause. The caller gets res
// only if there is no later response. If the body is too long, or is not read in time, the rest of it is an error of Read.
func bufferBody(ctx context.Context, res *http.Response, release context.CancelFunc) {
	if res == nil || res.Body == nil {
		release()
		return
	}
	body, read := res.Body, make(chan io.ReadCloser, 1)
	go func() {
		start, err := io.ReadAll(io.LimitReader(body, bufferLimit+1))
		if len(start) > bufferLimit {
			start, err = start[:bufferLimit], io.ErrUnexpectedEOF
		}
		_ = body.Close()
		read <- &bufferedBody{start: bytes.NewReader(start), err: err}
	}()
	timer := time.NewTimer(bufferTimeout)
	defer timer.Stop()
	select {
	case res.Body = <-read:
		release()
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	release()                        // This ends the read of an http.Transport, whose Close may wait for the read.
	go func() { _ = body.Close() }() // This ends the read of other RoundTrippers.
	res.Body = &bufferedBody{start: bytes.NewReader(nil), err: io.ErrUnexpectedEOF}
}

// releaseAtEnd returns res with a body that calls release when it was read to its end or is closed. release ends the context of
// the attempt, which must last as long as the body is read.
func releaseAtEnd(res *http.Response, release context.CancelFunc) *http.Response {
	if res == nil || res.Body == nil {
		release()
		return res
	}
	body := &releasingBody{res.Body, release}
	res.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // The connection was switched to another protocol.
		res.Body = struct {
			*releasingBody
			io.Writer
		}{body, w}
	}
	return res
}

// releasingBody is the body of releaseAtEnd.
type releasingBody struct {
	io.ReadCloser
	release context.CancelFunc
}

func (b *releasingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *releasingBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// bufferedBody is the body of a response after bufferBody.
type bufferedBody struct {
	start *bytes.Reader
	err   error // the error of Read after start; nil if start is the whole body
}

func (b *bufferedBody) Read(p []byte) (int, error) {
	n, err := b.start.Read(p)
	if err == io.EOF && b.err != nil {
		err = b.err
	}
	return n, err
}

func (b *bufferedBody) Close() error { return nil }
