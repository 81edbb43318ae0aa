package adapters_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

const marker = "Idempotent-Replayed"

// stores is every store that the behaviours are shown on: on each of them in all frameworks.
var stores = []struct {
	name string
	new  func(testing.TB) driver.Store
}{
	{"memory", func(testing.TB) driver.Store { return memstore.New() }},
	{"redis", func(tb testing.TB) driver.Store { return redisstore.New(redistest.Shared(tb).Client(tb)) }},
	{"redis behind sentinel", func(tb testing.TB) driver.Store {
		client, _ := redistest.Sentinel(tb)
		return redisstore.New(client)
	}},
	{"redis cluster", func(tb testing.TB) driver.Store { return redisstore.New(redistest.Cluster(tb)) }},
}

// service is one handler behind one engine in one framework.
type service struct {
	tb       testing.TB
	url      string
	addr     string
	store    *storetest.Faulty
	engine   *core.Engine
	client   *http.Client
	runs     atomic.Int64
	shutdown func(context.Context) error
}

// start starts a service. Its keys are its own, unless change gives it a scope to share.
func start(tb testing.TB, f framework, store driver.Store, h handler, o setup, change func(*core.Config)) *service {
	tb.Helper()
	scope := rand.Text()
	s := &service{tb: tb, store: storetest.NewFaulty(store), client: newClient()}
	cfg := core.Config{Store: s.store, Scope: func(context.Context, *core.Request) string { return scope }}
	if change != nil {
		change(&cfg)
	}
	var err error
	s.engine, err = core.New(cfg)
	require.NoError(tb, err)
	o.listen = listen(tb)
	s.addr = o.listen.Addr().String()
	s.url = "http://" + s.addr
	s.shutdown = f.start(s.engine, func(r request) answer {
		s.runs.Add(1)
		return h(r)
	}, o)
	tb.Cleanup(func() { s.stop() })
	return s
}

func (s *service) stop() {
	s.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.shutdown(ctx)
	_ = s.engine.Close(ctx)
}

// reply is an answer as a client sees it.
type reply struct {
	status int
	header http.Header
	body   string
	length int64 // the Content-Length line, -1 without one
}

func (r reply) replayed() bool { return r.header.Get(marker) != "" }

func newClient() *http.Client {
	return &http.Client{
		Timeout:       20 * time.Second,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send sends a request. Header lines come as name, value pairs.
func (s *service) send(method, path, body string, lines ...string) reply {
	s.tb.Helper()
	r, err := s.try(s.client, method, path, body, lines...)
	require.NoError(s.tb, err)
	return r
}

func (s *service) try(c *http.Client, method, path, body string, lines ...string) (reply, error) {
	return s.tryUntil(context.Background(), c, method, path, body, lines...)
}

// tryUntil is try by a client that leaves when ctx ends.
func (s *service) tryUntil(ctx context.Context, c *http.Client, method, path, body string, lines ...string) (reply, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, reader)
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(lines); i += 2 {
		req.Header[lines[i]] = append(req.Header[lines[i]], lines[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		return reply{}, err
	}
	return read(res)
}

func read(res *http.Response) (reply, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(body), res.ContentLength}, err
}

// post sends the usual keyed request.
func (s *service) post(key, body string) reply {
	s.tb.Helper()
	return s.send("POST", "/orders", body, "Idempotency-Key", key)
}

// raw sends bytes as they are and reads one answer, for what a proper client would not send.
func (s *service) raw(request string) reply {
	s.tb.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(s.tb, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = io.WriteString(conn, request)
	require.NoError(s.tb, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(s.tb, err)
	r, err := read(res)
	require.NoError(s.tb, err)
	return r
}

// rawPost is the text of a POST with the given key line.
func rawPost(keyLine string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: 1\r\n\r\nB", keyLine)
	return b.String()
}

// ok answers every request alike, with a body that tells the runs apart.
func ok() handler {
	var n atomic.Int64
	return func(request) answer {
		return answer{
			status: 201,
			header: http.Header{"Content-Type": {"application/json"}, "Location": {fmt.Sprint("/orders/", n.Add(1))}},
			body:   fmt.Sprintf(`{"run":%d}`, n.Load()),
		}
	}
}

// script answers the first request with the first answer, the second with the second, and the rest with the last.
func script(answers ...answer) handler {
	var n atomic.Int64
	return func(request) answer { return answers[min(int(n.Add(1)), len(answers))-1] }
}

// gate is a handler that waits, so that a test can act while it runs.
type gate struct{ entered, leave chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) handler(h handler) handler {
	return func(r request) answer {
		g.entered <- struct{}{}
		<-g.leave
		return h(r)
	}
}

func (g *gate) open() { close(g.leave) }

// async runs a request in the background and returns where its answer will be, or a zero reply when it failed.
func async(f func() reply) <-chan reply {
	c := make(chan reply, 1)
	go func() {
		defer close(c)
		c <- f()
	}()
	return c
}
