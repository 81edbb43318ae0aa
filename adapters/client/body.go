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
	asideTime  = time.Second
	asideBytes = 64 << 10
)

// setAside reads the body of an answer that is probably not the last, within bounds, and closes it, so that nothing holds
// its connection during a pause. What was read stays readable.
func setAside(ctx context.Context, res *http.Response, release context.CancelFunc) {
	if res == nil || res.Body == nil {
		release()
		return
	}
	body, read := res.Body, make(chan io.ReadCloser, 1)
	go func() {
		start, err := io.ReadAll(io.LimitReader(body, asideBytes+1))
		if len(start) > asideBytes {
			start, err = start[:asideBytes], io.ErrUnexpectedEOF
		}
		_ = body.Close()
		read <- &aside{start: bytes.NewReader(start), end: err}
	}()
	timer := time.NewTimer(asideTime)
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
	res.Body = &aside{start: bytes.NewReader(nil), end: io.ErrUnexpectedEOF}
}

// held returns the caller's answer, which calls release when it is read to its end or closed.
func held(res *http.Response, release context.CancelFunc) *http.Response {
	if res == nil || res.Body == nil {
		release()
		return res
	}
	body := &heldBody{res.Body, release}
	res.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // a connection that was switched to another protocol
		res.Body = struct {
			*heldBody
			io.Writer
		}{body, w}
	}
	return res
}

type heldBody struct {
	io.ReadCloser
	release context.CancelFunc
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// aside is a body of which the start was read.
type aside struct {
	start *bytes.Reader
	end   error // what follows; nil when that was all
}

func (a *aside) Read(p []byte) (int, error) {
	n, err := a.start.Read(p)
	if err == io.EOF && a.end != nil {
		err = a.end
	}
	return n, err
}

func (a *aside) Close() error { return nil }
