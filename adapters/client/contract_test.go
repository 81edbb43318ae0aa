package idem_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
)

func TestARequestWithoutAHeaderIsSent(t *testing.T) {
	w := &web{answer: moves(307, "http://provider.example/")}
	req := httptest.NewRequest("POST", "http://provider.example/", nil)
	req.Header = nil
	_, err := (&idem.Transport{Base: w}).RoundTrip(req)
	require.NoError(t, err)
	assert.NotEmpty(t, w.seen[0].key)
	assert.Nil(t, req.Header)
}

func TestARequestWithoutAURLIsAnErrorOfBaseAtOnce(t *testing.T) {
	for _, method := range []string{"POST", "GET", ""} {
		began := time.Now()
		_, err := (&idem.Transport{}).RoundTrip(&http.Request{Method: method})
		require.Error(t, err)
		assert.Less(t, time.Since(began), time.Second)
	}
}

func TestBadFieldsAreNamedAndNothingIsSent(t *testing.T) {
	for name, transport := range map[string]idem.Transport{
		"Attempts":   {Attempts: -1},
		"MaxElapsed": {MaxElapsed: -1},
		"MaxPause":   {MaxPause: -1},
		"Window":     {Window: -1},
		"Header":     {Header: "two words"},
		"Origins[1]": {Origins: []string{"https://provider.example/", "provider.example"}},
		"Origins[0]": {Origins: []string{"https://provider.example/v1"}},
	} {
		payload := newStalled("payment")
		transport.Base = roundTripper(func(*http.Request) (*http.Response, error) { t.Error("it was sent"); return nil, errCut })
		_, err := transport.RoundTrip(httptest.NewRequest("POST", "http://provider.example/", payload))
		require.ErrorContains(t, err, "Transport."+name+" is")
		assert.True(t, isClosed(payload.closed))
	}
}

// pieces is a body that counts how often it was opened and closed.
type pieces struct {
	mu           sync.Mutex
	open, opened int
}

func (p *pieces) get() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	p.opened++
	return &piece{Reader: strings.NewReader("payment"), of: p}, nil
}

type piece struct {
	io.Reader
	of   *pieces
	once sync.Once
}

func (p *piece) Close() error {
	p.once.Do(func() { p.of.mu.Lock(); defer p.of.mu.Unlock(); p.of.open-- })
	return nil
}

func TestEveryBodyThatIsOpenedIsClosed(t *testing.T) {
	for name, answer := range map[string]func(int, *http.Request) (int, string){
		"an outcome":        func(int, *http.Request) (int, string) { return 201, "" },
		"after two losses":  func(n int, _ *http.Request) (int, string) { return map[bool]int{true: 201}[n > 2], "" },
		"without an answer": func(int, *http.Request) (int, string) { return 0, "" },
		"after redirects":   moves(307, "https://a.example/", "https://a.example/b", "https://a.example/c"),
		"to another origin": moves(307, "https://a.example/", "https://b.example/"),
	} {
		t.Run(name, func(t *testing.T) {
			var p pieces
			req, err := http.NewRequest("POST", "https://a.example/", nil)
			require.NoError(t, err)
			req.Body, _ = p.get()
			req.GetBody, req.ContentLength = p.get, 7
			res, err := (&http.Client{Transport: &idem.Transport{Base: &web{answer: answer}, Pause: quick, Attempts: 4}}).Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			assert.Positive(t, p.opened)
			assert.Zero(t, p.open)
		})
	}
}

func TestABodyThatCannotBeOpenedAgainEndsTheAttempts(t *testing.T) {
	errGone := errors.New("the file is gone")
	for name, status := range map[string]int{"after an answer": 503, "after an error": 0} {
		t.Run(name, func(t *testing.T) {
			w := &web{answer: func(int, *http.Request) (int, string) { return status, "" }}
			req, err := http.NewRequest("POST", "https://a.example/", strings.NewReader("payment"))
			require.NoError(t, err)
			req.GetBody = func() (io.ReadCloser, error) { return nil, errGone }
			res, err := (&idem.Transport{Base: w, Pause: quick}).RoundTrip(req)
			assert.Len(t, w.seen, 1)
			if status != 0 {
				require.NoError(t, err)
				assert.Equal(t, status, res.StatusCode)
				return
			}
			require.ErrorIs(t, err, errGone)
			require.ErrorIs(t, err, errCut)
		})
	}
}

func TestACallerThatGivesUpInAPauseGetsThatErrorAndTheOneBefore(t *testing.T) {
	errShutdown := errors.New("shutting down")
	cancels := map[string]func(*http.Request) (*http.Request, func(), error){
		"by the context": func(req *http.Request) (*http.Request, func(), error) {
			ctx, cancel := context.WithCancelCause(req.Context())
			return req.WithContext(ctx), func() { cancel(errShutdown) }, errShutdown
		},
		"by Cancel": func(req *http.Request) (*http.Request, func(), error) {
			c := make(chan struct{})
			//lint:ignore SA1019 deprecated, and still there
			req.Cancel = c
			return req, func() { close(c) }, context.Canceled
		},
	}
	for name, prepare := range cancels {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req, err := http.NewRequest("POST", "https://a.example/", nil)
				require.NoError(t, err)
				req, cancel, reason := prepare(req)
				began := time.Now()
				time.AfterFunc(3*time.Second, cancel)
				w := &web{answer: func(int, *http.Request) (int, string) { return 0, "" }}
				_, err = (&idem.Transport{Base: w, Pause: func(int) time.Duration { return 20 * time.Second }}).RoundTrip(req)
				require.ErrorIs(t, err, reason)
				require.ErrorIs(t, err, errCut)
				assert.Equal(t, 3*time.Second, time.Since(began))
			})
		})
	}
}

func TestWhatBaseMustNotReturnDoesNoHarm(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		res, err := (&idem.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })}).RoundTrip(httptest.NewRequest("POST", "/", nil))
		assert.NoError(t, err)
		assert.Nil(t, res)
	})
	t.Run("both", func(t *testing.T) {
		payload := newStalled("")
		res, err := (&idem.Transport{Attempts: 1, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: payload}, errCut
		})}).RoundTrip(httptest.NewRequest("POST", "/", nil))
		require.ErrorIs(t, err, errCut)
		assert.Nil(t, res)
		assert.True(t, isClosed(payload.closed))
	})
	t.Run("no header", func(t *testing.T) {
		n := 0
		res, err := (&idem.Transport{Pause: quick, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			return &http.Response{StatusCode: map[int]int{1: 503, 2: 409}[n]}, nil
		})}).RoundTrip(httptest.NewRequest("POST", "http://a.example/", nil))
		require.NoError(t, err)
		assert.Equal(t, 409, res.StatusCode)
	})
}

// Trailers get their values when the body ends, which Base sees in the caller's map.
func TestTrailersThatComeWithTheEndOfTheBodyAreSent(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r.Trailer
	}))
	defer server.Close()
	req, err := http.NewRequest("POST", server.URL, nil)
	require.NoError(t, err)
	req.Trailer = http.Header{"Sum": nil}
	req.Body = io.NopCloser(io.MultiReader(strings.NewReader("payment"), readerFunc(func([]byte) (int, error) {
		req.Trailer.Set("Sum", "42")
		return 0, io.EOF
	})))
	res, err := (&http.Client{Transport: &idem.Transport{}}).Do(req)
	require.NoError(t, err)
	_ = res.Body.Close()
	assert.Equal(t, "42", got.Get("Sum"))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Expect: 100-continue, a refusal without a body read, and the next attempt with the whole body.
func TestABodyThatWaitsForTheServerIsSentWholeWithTheNextAttempt(t *testing.T) {
	var bodies []string
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if attempts++; attempts == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		read, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(read))
	}))
	defer server.Close()
	req, err := http.NewRequest("POST", server.URL, strings.NewReader("payment"))
	require.NoError(t, err)
	req.Header.Set("Expect", "100-continue")
	res, err := (&http.Client{Transport: &idem.Transport{Pause: quick, Base: &http.Transport{ExpectContinueTimeout: time.Minute}}}).Do(req)
	require.NoError(t, err)
	_ = res.Body.Close()
	assert.Equal(t, 200, res.StatusCode)
	assert.Equal(t, []string{"payment"}, bodies)
}

// What a context of the attempt holds ends with the answer, and not before: the caller reads it to its end.
func TestTheCallersAnswerIsReadToItsEndAndThenLetsGo(t *testing.T) {
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "second")
	}))
	defer server.Close()
	var attempt context.Context
	transport := &idem.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		attempt = req.Context()
		return http.DefaultTransport.RoundTrip(req)
	})}
	for _, all := range []bool{true, false} {
		more = make(chan struct{})
		res, err := (&http.Client{Transport: transport}).Post(server.URL, "text/plain", strings.NewReader("payment"))
		require.NoError(t, err)
		require.NoError(t, attempt.Err())
		close(more)
		if all {
			read, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			assert.Equal(t, "first second", string(read))
			require.Error(t, attempt.Err())
		}
		require.NoError(t, res.Body.Close())
		require.Error(t, attempt.Err())
	}
}

func TestASwitchedConnectionStaysWritable(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	}))
	defer server.Close()
	req, err := http.NewRequest("POST", server.URL, nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := (&http.Client{Transport: &idem.Transport{}}).Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	conn, ok := res.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "hello\n", line)
}

func TestACertificateThatIsNotTrustedIsNotAskedForAgain(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	began := time.Now()
	_, err := (&http.Client{Transport: &idem.Transport{Pause: func(int) time.Duration { return 30 * time.Second }}}).Post(server.URL, "text/plain", nil)
	require.Error(t, err)
	assert.Less(t, time.Since(began), 20*time.Second)
}

func TestIdleConnectionsOfBaseAreClosed(t *testing.T) {
	base := &idle{RoundTripper: http.DefaultTransport}
	(&http.Client{Transport: &idem.Transport{Base: base}}).CloseIdleConnections()
	assert.True(t, base.closed)
	(&http.Client{Transport: &idem.Transport{Base: roundTripper(nil)}}).CloseIdleConnections()
}

type idle struct {
	http.RoundTripper
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }

func TestManyRequestsAtOnceHaveAKeyEach(t *testing.T) {
	w := &web{answer: func(n int, _ *http.Request) (int, string) { return map[bool]int{true: 503, false: 201}[n%3 == 0], "" }}
	transport := &idem.Transport{Base: w, Pause: quick, Attempts: 100}
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			res, err := follow(t, transport, "https://a.example/", "")
			if assert.NoError(t, err) {
				assert.Equal(t, 201, res.StatusCode)
			}
		})
	}
	clients.Wait()
	keys := map[string]bool{}
	for _, s := range w.seen {
		keys[s.key] = true
	}
	assert.Len(t, keys, 50)
}
