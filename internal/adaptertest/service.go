package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// Marker is the header field that tells a replay.
const Marker = "Idempotent-Replayed"

// Service is one handler behind one engine in one framework.
type Service struct {
	TB       testing.TB
	URL      string
	Addr     string
	store    *storetest.Faulty
	engine   *core.Engine
	Client   *http.Client
	Runs     atomic.Int64
	shutdown func(context.Context) error
}

// Start starts a service. Its keys are its own, unless change gives it a scope to share.
func Start(tb testing.TB, f Framework, store driver.Store, h Handler, o Setup, change func(*core.Config)) *Service {
	tb.Helper()
	scope := rand.Text()
	s := &Service{TB: tb, store: storetest.NewFaulty(store), Client: NewClient()}
	cfg := core.Config{Store: s.store, Scope: func(context.Context, *core.Request) string { return scope }}
	if change != nil {
		change(&cfg)
	}
	var err error
	s.engine, err = core.New(cfg)
	require.NoError(tb, err)
	o.Listen = Listen(tb)
	s.Addr = o.Listen.Addr().String()
	s.URL = "http://" + s.Addr
	s.shutdown = f.Start(s.engine, func(r Request) Response {
		s.Runs.Add(1)
		return h(r)
	}, o)
	tb.Cleanup(func() { s.stop() })
	return s
}

func (s *Service) stop() {
	s.Client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.shutdown(ctx)
	_ = s.engine.Close(ctx)
}

// Reply is an answer as a client sees it.
type Reply struct {
	Status int
	Header http.Header
	Body   string
	Length int64 // the Content-Length line, -1 without one
}

// Replayed reports whether the reply is a replay.
func (r Reply) Replayed() bool { return r.Header.Get(Marker) != "" }

// NewClient returns a client that follows no redirects.
func NewClient() *http.Client {
	return &http.Client{
		Timeout:       20 * time.Second,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Send sends a request. Header lines come as name, value pairs.
func (s *Service) Send(method, path, body string, lines ...string) Reply {
	s.TB.Helper()
	r, err := s.Try(s.Client, method, path, body, lines...)
	require.NoError(s.TB, err)
	return r
}

// Try is Send by a client, with the error.
func (s *Service) Try(c *http.Client, method, path, body string, lines ...string) (Reply, error) {
	return s.tryUntil(context.Background(), c, method, path, body, lines...)
}

// tryUntil is try by a client that leaves when ctx ends.
func (s *Service) tryUntil(ctx context.Context, c *http.Client, method, path, body string, lines ...string) (Reply, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, reader)
	if err != nil {
		return Reply{}, err
	}
	for i := 0; i < len(lines); i += 2 {
		req.Header[lines[i]] = append(req.Header[lines[i]], lines[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		return Reply{}, err
	}
	return Read(res)
}

// Read reads a response to its end, and what broke it off.
func Read(res *http.Response) (Reply, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Reply{res.StatusCode, res.Header, string(body), res.ContentLength}, err
}

// Post sends the usual keyed request.
func (s *Service) Post(key, body string) Reply {
	s.TB.Helper()
	return s.Send("POST", "/orders", body, "Idempotency-Key", key)
}

// Raw sends bytes as they are and reads one answer, for what a proper client would not send.
func (s *Service) Raw(request string) Reply {
	s.TB.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	require.NoError(s.TB, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = io.WriteString(conn, request)
	require.NoError(s.TB, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(s.TB, err)
	r, err := Read(res)
	require.NoError(s.TB, err)
	return r
}

// RawPost is the text of a POST with the given key line.
func RawPost(keyLine string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: 1\r\n\r\nB", keyLine)
	return b.String()
}

// OK answers every request alike, with a body that tells the runs apart.
func OK() Handler {
	var n atomic.Int64
	return func(Request) Response {
		return Response{
			Status: 201,
			Header: http.Header{"Content-Type": {"application/json"}, "Location": {fmt.Sprint("/orders/", n.Add(1))}},
			Body:   fmt.Sprintf(`{"run":%d}`, n.Load()),
		}
	}
}

// script answers the first request with the first answer, the second with the second, and the rest with the last.
func script(answers ...Response) Handler {
	var n atomic.Int64
	return func(Request) Response { return answers[min(int(n.Add(1)), len(answers))-1] }
}

// gate is a handler that waits, so that a test can act while it runs.
type gate struct{ entered, Leave chan struct{} }

// NewGate returns a closed gate.
func NewGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) handler(h Handler) Handler {
	return func(r Request) Response {
		g.entered <- struct{}{}
		<-g.Leave
		return h(r)
	}
}

// Admit sends a request until the handler has it, and returns where its reply will be. A request that is refused because the store
// took too long, as on a machine with other work, has run nothing and is sent again.
func (g *gate) Admit(tb testing.TB, send func() Reply) <-chan Reply {
	tb.Helper()
	for range 10 {
		reply := Async(send)
		select {
		case <-g.entered:
			return reply
		case r := <-reply:
			require.Equal(tb, http.StatusServiceUnavailable, r.Status, r.Body)
		}
	}
	require.Fail(tb, "the handler has not got the request")
	return nil
}

// Open lets the handlers go on, for good.
func (g *gate) Open() { close(g.Leave) }

// Async runs a request in the background and returns where its answer will be, or a zero reply when it failed.
func Async(f func() Reply) <-chan Reply {
	c := make(chan Reply, 1)
	go func() {
		defer close(c)
		c <- f()
	}()
	return c
}

// Exchange sends a POST with a key and returns its answer as far as it came, and what broke it off.
func Exchange(t *testing.T, url string, body io.Reader, lines ...string) (*http.Response, Reply, error) {
	t.Helper()
	req, err := http.NewRequest("POST", url, body)
	require.NoError(t, err)
	req.Close = true
	req.Header.Set("Idempotency-Key", "K")
	for i := 0; i < len(lines); i += 2 {
		req.Header.Set(lines[i], lines[i+1])
	}
	res, err := NewClient().Do(req)
	require.NoError(t, err)
	r, err := Read(res)
	r.Header.Del("Date")
	return res, r, err
}

// Submit sends a POST with a key.
func Submit(t *testing.T, url, body string, lines ...string) Reply {
	t.Helper()
	_, r, err := Exchange(t, url, strings.NewReader(body), lines...)
	require.NoError(t, err)
	return r
}

// NewServer returns the URL of a server that ends with the test.
func NewServer(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// Form is a multipart form with many fields and a file.
func Form(t *testing.T, file string) (contentType, body string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := range 10 {
		require.NoError(t, w.WriteField(fmt.Sprint("field", i), fmt.Sprint("value", i)))
	}
	part, err := w.CreateFormFile("file", "file.bin")
	require.NoError(t, err)
	_, _ = io.WriteString(part, file)
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}

// NewEngine returns an engine on a store in memory, for one tenant.
func NewEngine(t *testing.T) *core.Engine {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	return engine
}
