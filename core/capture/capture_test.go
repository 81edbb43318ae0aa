package capture_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/memstore"
)

// outer is the writer outside of the capture. It keeps all responses, 1xx too, and can be hijacked.
type outer struct {
	header    http.Header
	statuses  []int
	sent      []http.Header // as it was at each status
	body      bytes.Buffer
	failures  int   // how many writes fail from now on
	hijackErr error // of Hijack
}

func (o *outer) Header() http.Header { return o.header }

func (o *outer) WriteHeader(status int) {
	o.statuses, o.sent = append(o.statuses, status), append(o.sent, maps.Clone(o.header))
}

func (o *outer) Write(p []byte) (int, error) {
	if o.failures > 0 {
		o.failures--
		return 0, io.ErrClosedPipe
	}
	return o.body.Write(p)
}

func (o *outer) Flush() {}

func (o *outer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, o.hijackErr }

// deferring is a writer that only remembers a status, as Gin's does.
type deferring struct {
	outer
	events []string
}

func (d *deferring) Write(p []byte) (int, error) {
	d.events = append(d.events, "body")
	return d.outer.Write(p)
}

func (d *deferring) WriteHeaderNow() { d.events = append(d.events, "status") }

// capturing returns a writer that keeps bodies of up to 10 bytes, its exchange, and the writer outside, which has header.
func capturing(header http.Header) (*capture.Writer, *capture.Exchange, *outer) {
	o := &outer{header: header}
	x := capture.NewExchange(httptest.NewRequest("POST", "/", nil))
	return x.NewWriter(context.Background(), o, core.KeepConfig{MaxBody: 10}), x, o
}

func TestTheTargetOfARequestIsThatOfItsClient(t *testing.T) {
	stripped := httptest.NewRequest("POST", "/shop/a%2Fb?c=d", nil)
	stripped.URL.Path, stripped.URL.RawPath, stripped.URL.RawQuery = "/a/b", "", ""
	made, err := http.NewRequest("POST", "http://x/shop/a%2Fb?c=d", nil)
	require.NoError(t, err)
	for name, r := range map[string]*http.Request{"with other middleware": stripped, "without a server": made} {
		req := capture.NewExchange(r).Request()
		assert.Equal(t, "POST", req.Method, name)
		assert.Equal(t, "/shop/a%2Fb", req.Path, name)
		assert.Equal(t, "c=d", req.RawQuery, name)
	}
}

func TestTheHostOfARequestThatHasNoneHasNoValue(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	r.Host = "Shop.Example"
	assert.Equal(t, []string{"shop.example"}, capture.NewExchange(r).Request().Header("host"))
	r.Host = ""
	assert.Empty(t, capture.NewExchange(r).Request().Header("Host"))
	r.Header["Host"] = []string{"b", "c"} // which middleware has set
	assert.Equal(t, []string{"b", "c"}, capture.NewExchange(r).Request().Header("Host"))
}

// A client, such as http.Transport, treats a body of no length otherwise than none.
func TestARequestWithoutABodyHasNoneForTheHandler(t *testing.T) {
	for name, none := range map[string]io.ReadCloser{"nil": nil, "http.NoBody": http.NoBody} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/", nil)
			r.Body = none
			x := capture.NewExchange(r)
			body, err := x.Read(10)
			assert.NoError(t, err)
			assert.Empty(t, body)
			assert.Equal(t, none, x.RequestWithContext(r.Context()).Body)
		})
	}
}

// closable is a body of a request that does after Close what a test says.
type closable struct {
	io.Reader
	after    func() (int, error)
	closeErr error
}

func (c *closable) Close() error {
	c.Reader = readerFunc(c.after)
	return c.closeErr
}

type readerFunc func() (int, error)

func (f readerFunc) Read([]byte) (int, error) { return f() }

func TestABodyCanBeReadAfterCloseIfItsOriginalCan(t *testing.T) {
	over, closing := errors.New("it is closed"), errors.New("it cannot be closed")
	for name, test := range map[string]struct {
		after    func() (int, error)
		closeErr error
		want     string
		err      error
	}{
		"at its end":                {func() (int, error) { return 0, io.EOF }, nil, "B", nil},
		"at its beginning again":    {func() (int, error) { return 1, nil }, nil, "B", nil},
		"not":                       {func() (int, error) { return 0, over }, nil, "", over},
		"and its Close reports so":  {func() (int, error) { return 0, io.EOF }, closing, "B", nil},
		"not, and Close reports so": {func() (int, error) { return 0, over }, closing, "", over},
	} {
		t.Run(name, func(t *testing.T) {
			for how, read := range map[string]func(io.Reader) (string, error){
				"Read": func(r io.Reader) (string, error) {
					p := make([]byte, 2)
					n, err := r.Read(p)
					return string(p[:n]), err
				},
				"WriteTo": func(r io.Reader) (string, error) {
					var all strings.Builder
					_, err := r.(io.WriterTo).WriteTo(&all)
					return all.String(), err
				},
			} {
				r := httptest.NewRequest("POST", "/", nil)
				r.Body = &closable{Reader: strings.NewReader("B"), after: test.after, closeErr: test.closeErr}
				x := capture.NewExchange(r)
				_, err := x.Read(10)
				require.NoError(t, err)
				inner := x.RequestWithContext(r.Context()).Body
				assert.Equal(t, test.closeErr, inner.Close(), how)
				got, err := read(inner)
				assert.Equal(t, test.want, got, how)
				assert.Equal(t, test.err, err, how)
			}
		})
	}
}

func TestTheEngineSetsNoFieldsOutsideOfARun(t *testing.T) {
	assert.Empty(t, capture.EngineFields(context.Background()))
}

func TestTheChangesOfAHandlerAreWhatItChanged(t *testing.T) {
	for name, test := range map[string]struct {
		outer   http.Header
		handler func(*capture.Writer)
		removed []string
		sent    http.Header
	}{
		"nothing, beside a field that has no value outside": {
			http.Header{"Date": nil}, func(w *capture.Writer) { w.WriteHeader(204) },
			nil, http.Header{"Date": nil},
		},
		"a field is deleted": {
			http.Header{"Date": {"a date"}}, func(w *capture.Writer) { w.Header().Del("Date"); w.WriteHeader(204) },
			[]string{"Date"}, http.Header{},
		},
		"a field has no value any more": {
			http.Header{"Date": {"a date"}}, func(w *capture.Writer) { w.Header()["Date"] = nil; w.WriteHeader(204) },
			[]string{"Date"}, http.Header{"Date": nil},
		},
		"the type of a body with an encoding is deleted": {
			http.Header{"Content-Type": {"a/b"}}, func(w *capture.Writer) {
				w.Header().Del("Content-Type")
				w.Header().Set("Content-Encoding", "br")
				_, _ = io.WriteString(w, "x")
			},
			[]string{"Content-Type"}, http.Header{"Content-Encoding": {"br"}},
		},
		"a response that has no body is flushed": {
			http.Header{}, func(w *capture.Writer) { w.WriteHeader(204); w.Flush() },
			nil, http.Header{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, x, o := capturing(test.outer)
			test.handler(w)
			response := w.Response()
			assert.Equal(t, test.removed, response.Removed)
			if !response.Sent {
				x.Finish(x.RequestWithContext(context.Background()))
				require.NoError(t, x.Send(o, response))
			}
			assert.Equal(t, test.sent, o.header)
		})
	}
}

// A cookie of middleware outside is of one exchange: the next one has its own, beside those of the handler.
func TestACookieFromOutsideIsNotTheHandlers(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(http.Header)
		first   []string
		replay  []string
	}{
		"which adds one": {
			func(h http.Header) { h.Add("Set-Cookie", "a=1"); h.Add("Set-Cookie", "b=2") },
			[]string{"sid=1", "a=1", "b=2"}, []string{"sid=2", "a=1", "b=2"},
		},
		"which has one alone": {func(h http.Header) { h.Set("Set-Cookie", "a=1") }, []string{"a=1"}, []string{"a=1"}},
		"which has none":      {func(h http.Header) { h.Del("Set-Cookie") }, nil, nil},
		"which leaves it":     {func(http.Header) {}, []string{"sid=1"}, []string{"sid=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, x, o := capturing(http.Header{"Set-Cookie": {"sid=1"}})
			test.handler(w.Header())
			response := w.Response()
			x.Finish(x.RequestWithContext(context.Background()))
			require.NoError(t, x.Send(o, response))
			assert.Equal(t, test.first, o.header["Set-Cookie"])
			later := &outer{header: http.Header{"Set-Cookie": {"sid=2"}}}
			stored := &core.Response{Status: 200, Header: response.Header, Removed: response.Removed}
			require.NoError(t, capture.NewExchange(httptest.NewRequest("POST", "/", nil)).Send(later, stored))
			assert.Equal(t, test.replay, later.header["Set-Cookie"])
		})
	}
}

func TestAStatusThatThereIsNotPanics(t *testing.T) {
	for _, status := range []int{99, 1000} {
		w, _, _ := capturing(http.Header{})
		assert.Panics(t, func() { w.WriteHeader(status) }, status)
	}
}

// An adapter asks for the size when the handler has returned an error. With -race, this fails if that reads what a goroutine writes
// that the handler has left behind.
func TestTheSizeCanBeReadWhileAGoroutineWrites(t *testing.T) {
	w, _, _ := capturing(http.Header{})
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w, "x")
		written <- err
	}()
	assert.LessOrEqual(t, w.Size(), 1)
	assert.NoError(t, <-written)
	assert.Equal(t, 1, w.Size())
}

// A goroutine that the handler has left behind could otherwise change what the engine stores, or send it before the engine does.
func TestNothingIsWrittenOnceTheResponseWasTaken(t *testing.T) {
	w, _, o := capturing(http.Header{})
	r := w.Response()
	_, err := io.WriteString(w, strings.Repeat("x", 1000))
	assert.Error(t, err)
	assert.Error(t, w.FlushError())
	assert.Empty(t, r.Body)
	assert.Empty(t, o.statuses)
}

// As TestNothingIsWrittenOnceTheResponseWasTaken, after a panic, when nobody takes the response.
func TestNothingIsWrittenOnceTheHandlerHasPanicked(t *testing.T) {
	w, x, o := capturing(http.Header{})
	x.Finish(x.RequestWithContext(context.Background()))
	_, err := io.WriteString(w, strings.Repeat("x", 1000))
	assert.Error(t, err)
	assert.Empty(t, o.statuses)
}

func TestASwitchOfProtocolsHasNoBody(t *testing.T) {
	w, _, _ := capturing(http.Header{})
	w.WriteHeader(http.StatusSwitchingProtocols)
	_, err := io.WriteString(w, "x")
	assert.ErrorIs(t, err, http.ErrBodyNotAllowed)
	assert.Equal(t, http.StatusSwitchingProtocols, w.Response().Status)
}

// The fields of a 1xx response are the handler's, and those outside are as before afterwards.
func TestAnInformationalResponseHasTheHeaderOfTheHandler(t *testing.T) {
	w, _, o := capturing(http.Header{"X-Outer": {"outer"}})
	w.Header().Del("X-Outer")
	w.Header().Set("Link", "</style.css>")
	w.WriteHeader(http.StatusEarlyHints)
	assert.Equal(t, []http.Header{{"Link": {"</style.css>"}}}, o.sent)
	assert.Equal(t, http.Header{"X-Outer": {"outer"}}, o.header)
}

func TestAFlushThatCannotBeIsReportedAndSendsNothing(t *testing.T) {
	o := &outer{header: http.Header{}}
	x := capture.NewExchange(httptest.NewRequest("POST", "/", nil))
	w := x.NewWriter(context.Background(), struct{ http.ResponseWriter }{o}, core.KeepConfig{MaxBody: 10})
	assert.ErrorIs(t, w.FlushError(), http.ErrNotSupported)
	w.WriteHeader(201)
	assert.ErrorIs(t, w.FlushError(), http.ErrNotSupported)
	assert.Empty(t, o.statuses)
	assert.Equal(t, 201, w.Response().Status, "a flush that did nothing has not fixed it")
}

// Middleware in the way of Gin changes the header with the first byte.
func TestTheStatusOfAStreamIsSentWithItsFirstByte(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(*capture.Writer)
		want    []string
	}{
		"a long body": {func(w *capture.Writer) { _, _ = io.WriteString(w, "more than ten") }, []string{"body"}},
		"a flush":     {func(w *capture.Writer) { w.Flush() }, []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &deferring{outer: outer{header: http.Header{}}}
			x := capture.NewExchange(httptest.NewRequest("POST", "/", nil))
			test.handler(x.NewWriter(context.Background(), d, core.KeepConfig{MaxBody: 10}))
			assert.Equal(t, test.want, d.events)
		})
	}
}

// A write has failed, and a later one has not: the client has not the whole body.
func TestAStreamOfWhichAPartWasLostHasNoBody(t *testing.T) {
	for name, first := range map[string]func(*capture.Writer){
		"what was held back": func(w *capture.Writer) { _, _ = io.WriteString(w, "a"); w.Flush() },
		"a later part":       func(w *capture.Writer) { w.Flush(); _, _ = io.WriteString(w, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			w, _, o := capturing(http.Header{})
			o.failures = 1
			first(w)
			n, err := io.WriteString(w, "b")
			assert.NoError(t, err)
			assert.Equal(t, 1, n)
			response := w.Response()
			assert.True(t, response.Unfinished)
			assert.True(t, response.Omitted)
			assert.Empty(t, response.Body)
		})
	}
}

func TestWhatWasWrittenBeforeAHijackIsSentOnce(t *testing.T) {
	for name, before := range map[string]func(*capture.Writer){
		"held back": func(*capture.Writer) {},
		"flushed":   func(w *capture.Writer) { w.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			w, _, o := capturing(http.Header{})
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "body")
			before(w)
			_, _, err := w.Hijack()
			require.NoError(t, err)
			assert.Equal(t, []int{201}, o.statuses)
			assert.Equal(t, "body", o.body.String())
		})
	}
}

// The response has been sent before, so it is stored as a stream is, with the type that net/http has found.
func TestAHijackThatFailsLeavesAStream(t *testing.T) {
	w, _, o := capturing(http.Header{})
	o.hijackErr = net.ErrClosed
	_, _ = io.WriteString(w, "body")
	_, _, err := w.Hijack()
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Equal(t, &core.Response{
		Status: 200, Header: []core.Field{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}}, Body: []byte("body"), Sent: true,
	}, w.Response())
}

func TestNothingIsWrittenAfterAHijack(t *testing.T) {
	o := &outer{header: http.Header{}}
	x := capture.NewExchange(httptest.NewRequest("POST", "/", nil))
	ctx, leave := context.WithCancel(context.Background())
	w := x.NewWriter(ctx, o, core.KeepConfig{MaxBody: 10})
	_, _, err := w.Hijack()
	require.NoError(t, err)
	w.WriteHeader(201)
	_, err = io.WriteString(w, "body")
	assert.ErrorIs(t, err, http.ErrHijacked)
	leave()
	assert.Equal(t, &core.Response{Hijacked: true, Sent: true}, w.Response())
	assert.Empty(t, o.statuses)
	assert.Empty(t, o.body.String())
	assert.Zero(t, w.Size())
}

// MTH-07: only what can end in no other way ends with its client.
func TestTheContextOfAStreamEndsWithItsClientIfNothingElseEndsIt(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(*capture.Writer)
		ends    bool
	}{
		"a text": {func(w *capture.Writer) { w.Flush() }, false},
		"an event stream": {func(w *capture.Writer) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Flush()
		}, true},
		"a connection that was taken over": {func(w *capture.Writer) { _, _, _ = w.Hijack() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
				require.NoError(t, err)
				client, leave := context.WithCancel(context.Background())
				r := httptest.NewRequest("POST", "/", nil)
				r.Header.Set("Idempotency-Key", "K")
				x := capture.NewExchange(r)
				_, _ = engine.Do(client, x.Request(), func(ctx context.Context) (*core.Response, error) {
					w := x.NewWriter(ctx, &outer{header: http.Header{}}, engine.Config().Keep)
					defer x.Finish(x.RequestWithContext(ctx))
					test.handler(w)
					leave()
					synctest.Wait()
					assert.Equal(t, test.ends, ctx.Err() != nil)
					return w.Response(), nil
				})
				require.NoError(t, engine.Close(context.Background()))
			})
		})
	}
}
