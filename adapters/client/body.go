package idem

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// What is read of an answer that is followed by another attempt, at most.
const (
	bufferTimeout = time.Second
	bufferLimit   = 64 << 10
)

// bufferBody reads the body of an answer that is probably not the last, within bounds, and closes it, so that nothing holds
// its connection during a pause. What was read stays readable.
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
	release()                        // ends the read of an http.Transport, whose Close may wait for it
	go func() { _ = body.Close() }() // ends the read of others
	res.Body = &bufferedBody{start: bytes.NewReader(nil), err: io.ErrUnexpectedEOF}
}

// releaseAtEnd returns the caller's answer, which calls release when it is read to its end or closed.
func releaseAtEnd(res *http.Response, release context.CancelFunc) *http.Response {
	if res == nil || res.Body == nil {
		release()
		return res
	}
	body := &releasingBody{res.Body, release}
	res.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // a connection that was switched to another protocol
		res.Body = struct {
			*releasingBody
			io.Writer
		}{body, w}
	}
	return res
}

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

// bufferedBody is a body of which the start was read.
type bufferedBody struct {
	start *bytes.Reader
	err   error // what follows; nil when that was all
}

func (a *bufferedBody) Read(p []byte) (int, error) {
	n, err := a.start.Read(p)
	if err == io.EOF && a.err != nil {
		err = a.err
	}
	return n, err
}

func (a *bufferedBody) Close() error { return nil }
