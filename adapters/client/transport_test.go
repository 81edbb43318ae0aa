package idem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
)

const keyHeader = "Idempotency-Key"

// newRequest returns a request to a service that nobody runs.
func newRequest(t *testing.T, ctx context.Context, method, to string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, to, nil)
	require.NoError(t, err)
	return req
}

// answer is a response of a server without a body.
func answer(status int) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
}

// moved is the request that follows the response to req, as http.Client makes it.
func moved(t *testing.T, res *http.Response, method, to string) *http.Request {
	t.Helper()
	next := newRequest(t, t.Context(), method, to)
	next.Response = res
	return next
}

func TestARequestIsSentWithItsOwnHeader(t *testing.T) {
	var sent http.Header
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = req.Header
		sent.Add("X-Trace", "of base")
		return answer(200), nil
	})
	req := newRequest(t, t.Context(), http.MethodPost, "https://pay.example/")
	req.Header = http.Header{"Authorization": {"secret"}, "X-Trace": {"1", "2"}}
	_, err := (&idem.Transport{Base: base}).RoundTrip(req)
	require.NoError(t, err)
	assert.NotEmpty(t, sent.Get(keyHeader))
	sent.Del(keyHeader)
	assert.Equal(t, http.Header{"Authorization": {"secret"}, "X-Trace": {"1", "2", "of base"}}, sent)
	assert.Equal(t, http.Header{"Authorization": {"secret"}, "X-Trace": {"1", "2"}}, req.Header, "a RoundTripper leaves the request as it is")
}

func TestOnlyRequestsOfTheMethodsGetAKey(t *testing.T) {
	for name, test := range map[string]struct {
		methods  []string
		expected []string
	}{
		"the default":     {nil, []string{"POST", "PATCH"}},
		"methods in use":  {[]string{"PUT", "POST"}, []string{"PUT", "POST"}},
		"no method":       {[]string{}, nil},
		"GET has no name": {[]string{"GET"}, []string{"GET", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var keyed []string
			for _, method := range []string{"GET", "", "PUT", "POST", "PATCH", "DELETE"} {
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					if req.Header.Get(keyHeader) != "" {
						keyed = append(keyed, method)
					}
					return answer(200), nil
				})
				req := newRequest(t, t.Context(), method, "https://pay.example/")
				req.Method = method
				_, err := (&idem.Transport{Base: base, Methods: test.methods}).RoundTrip(req)
				require.NoError(t, err)
			}
			assert.Equal(t, test.expected, keyed)
		})
	}
}

// A request that a redirect has made another one is sent once, without a key, even if the caller's header is copied to it.
func TestWhatNoLongerHasAKeyIsSentOnceWithoutOne(t *testing.T) {
	put := &idem.Transport{Methods: []string{"PUT"}}
	for name, test := range map[string]struct {
		first         *idem.Transport
		method, after string
	}{
		"a GET":                                {&idem.Transport{}, "POST", "GET"},
		"a method that another Transport keys": {put, "PUT", "PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			test.first.Base = roundTripper(func(*http.Request) (*http.Response, error) { return answer(303), nil })
			res, err := test.first.RoundTrip(newRequest(t, t.Context(), test.method, "https://pay.example/"))
			require.NoError(t, err)
			var sent []http.Header
			then := &idem.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				sent = append(sent, req.Header)
				return answer(503), nil
			})}
			for range 2 { // the second follows a redirect of the first
				next := moved(t, res, test.after, "https://pay.example/paid")
				next.Header = http.Header{keyHeader: {`"mine"`}, "Accept": {"*/*"}}
				res, err = then.RoundTrip(next)
				require.NoError(t, err)
				assert.Equal(t, 503, res.StatusCode)
			}
			assert.Equal(t, []http.Header{{"Accept": {"*/*"}}, {"Accept": {"*/*"}}}, sent)
		})
	}
}

func TestARedirectOfARequestWithoutAKeyIsFollowed(t *testing.T) {
	transport := &idem.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { return answer(302), nil })}
	for _, before := range []*http.Response{
		{Request: newRequest(t, t.Context(), "GET", "https://pay.example/")},
		{}, // of a RoundTripper that says nothing of the request
	} {
		res, err := transport.RoundTrip(moved(t, before, "GET", "https://elsewhere.example/"))
		require.NoError(t, err)
		assert.Equal(t, 302, res.StatusCode)
	}
}

func TestARedirectThatCannotBeFollowedIsAnError(t *testing.T) {
	first := newRequest(t, t.Context(), "POST", "https://pay.example/")
	given := func(key string) http.Header { return http.Header{keyHeader: {key}} }
	for name, test := range map[string]struct {
		before   *http.Request
		header   http.Header
		expected string
	}{
		"nothing is known of the request before": {nil, given(`"k"`), "the key of the one that was redirected is not known"},
		"it has no URL":                          {&http.Request{}, given(`"k"`), "the key of the one that was redirected is not known"},
		"no key is given":                        {first, nil, "the key of the one that was redirected is not known"},
		"two keys are given":                     {first, http.Header{keyHeader: {`"k"`, `"l"`}}, keyHeader},
		"from the port of HTTP, but of HTTPS": {
			newRequest(t, t.Context(), "POST", "https://pay.example:80/"), given(`"k"`), "a redirect to another origin"},
	} {
		t.Run(name, func(t *testing.T) {
			next := moved(t, &http.Response{Request: test.before}, "POST", "https://pay.example/")
			next.Header = test.header
			transport := &idem.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
				t.Error("nothing is sent")
				return answer(200), nil
			})}
			_, err := transport.RoundTrip(next)
			assert.ErrorContains(t, err, test.expected)
		})
	}
}

func TestARedirectWithoutAURLIsAnErrorOfBase(t *testing.T) {
	next := moved(t, &http.Response{Request: newRequest(t, t.Context(), "POST", "https://pay.example/")}, "POST", "https://pay.example/")
	next.URL, next.Header = nil, http.Header{keyHeader: {`"k"`}}
	_, err := (&idem.Transport{Base: http.DefaultTransport}).RoundTrip(next)
	assert.ErrorContains(t, err, "nil Request.URL")
}

func TestOriginsAreASchemeAndAHost(t *testing.T) {
	base := roundTripper(func(*http.Request) (*http.Response, error) { return answer(200), nil })
	for origin, ok := range map[string]bool{
		"https://eu.example": true, "https://eu.example/": true, "HTTPS://EU.example:443": true, "http://[::1]:8080": true,
		"https://": false, "https://:443": false, "//eu.example": false, "eu.example": false, "https://eu.example/v1": false,
		"https://eu.example?v=1": false, "https://me@eu.example": false, "https://%zz": false, "": false,
	} {
		_, err := (&idem.Transport{Base: base, Origins: []string{origin}}).RoundTrip(newRequest(t, t.Context(), "POST", "https://a.example/"))
		assert.Equal(t, ok, err == nil, "%q: %v", origin, err)
	}
}

// http.Client takes the request of a response for the one that was redirected.
func TestTheResponseNamesTheRequestThatWasSent(t *testing.T) {
	req := newRequest(t, t.Context(), "POST", "https://pay.example/")
	var inner *http.Request
	for name, base := range map[string]roundTripper{
		"a request of its own": func(sent *http.Request) (*http.Response, error) {
			inner = sent.Clone(sent.Context())
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: inner}, nil
		},
		"none": func(*http.Request) (*http.Response, error) { inner = nil; return answer(200), nil },
		"a request that does not come from this one": func(*http.Request) (*http.Response, error) {
			inner = nil
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: newRequest(t, t.Context(), "GET", "https://log.example/")}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := (&idem.Transport{Base: base}).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, "https://pay.example/", res.Request.URL.String())
			if inner != nil {
				assert.Same(t, inner, res.Request)
			}
			_, err = (&idem.Transport{Base: base}).RoundTrip(moved(t, res, "POST", "https://pay.example/again"))
			assert.NoError(t, err, "the operation is known")
		})
	}
}

func TestARequestThatNoServerCanGetIsSentOnce(t *testing.T) {
	for name, c := range map[string]struct {
		to     string
		header http.Header
		sent   int
	}{
		"without a host":            {"/path", nil, 1},
		"a line break in a header":  {"https://pay.example/", http.Header{"X-Note": {"fine", "two\nlines"}}, 1},
		"a deleted byte":            {"https://pay.example/", http.Header{"X-Note": {"\x7F"}}, 1},
		"a space in a field's name": {"https://pay.example/", http.Header{"X Note": {""}}, 1},
		"a tab and an umlaut":       {"https://pay.example/", http.Header{"X-Note": {"\tgrün"}}, 2},
	} {
		sent := 0
		base := roundTripper(func(*http.Request) (*http.Response, error) { sent++; return nil, errCut })
		req := newRequest(t, t.Context(), "POST", c.to)
		req.Header = c.header
		_, err := (&idem.Transport{Pause: quick, Attempts: 2, Base: base}).RoundTrip(req)
		assert.ErrorIs(t, err, errCut)
		assert.Equal(t, c.sent, sent, name)
	}
}

func TestNoAttemptLeavesAContextBehind(t *testing.T) {
	withBody := func(status int, body io.ReadCloser) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: body}
	}
	for name, attempt := range map[string]func() (*http.Response, error){
		"an outcome":                 func() (*http.Response, error) { return withBody(201, io.NopCloser(strings.NewReader("paid"))), nil },
		"an outcome without a body":  func() (*http.Response, error) { return withBody(201, nil), nil },
		"a refusal":                  func() (*http.Response, error) { return withBody(503, io.NopCloser(strings.NewReader("later"))), nil },
		"a refusal without a body":   func() (*http.Response, error) { return withBody(503, nil), nil },
		"a refusal that never ends":  func() (*http.Response, error) { return withBody(503, newStalled("")), nil },
		"an error":                   func() (*http.Response, error) { return nil, errCut },
		"an error and a response":    func() (*http.Response, error) { return withBody(201, http.NoBody), errCut },
		"an error, and half of that": func() (*http.Response, error) { return withBody(201, nil), errCut },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var contexts []context.Context
				transport := &idem.Transport{Attempts: 3, Pause: quick}
				transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
					contexts = append(contexts, req.Context())
					return attempt()
				})
				res, err := transport.RoundTrip(newRequest(t, t.Context(), "POST", "https://pay.example/"))
				assert.Equal(t, err == nil, res != nil)
				if res != nil && res.Body != nil {
					_, isWriter := res.Body.(io.Writer)
					assert.False(t, isWriter, "only a connection that was switched can be written to")
					_ = res.Body.Close()
				}
				for _, ctx := range contexts {
					assert.ErrorIs(t, ctx.Err(), context.Canceled)
				}
			})
		})
	}
}

// The caller gives up in the pause behind a refusal whose body does not come. That body is not the caller's to wait for.
func TestARefusalWhoseBodyWasGivenUpIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		transport := &idem.Transport{Pause: func(int) time.Duration { return time.Minute }, MaxElapsed: time.Hour}
		transport.Base = roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Header: http.Header{}, Body: newStalled("")}, nil
		})
		res, err := transport.RoundTrip(newRequest(t, ctx, "POST", "https://pay.example/"))
		require.NoError(t, err)
		read, err := io.ReadAll(res.Body)
		assert.Empty(t, read)
		assert.True(t, errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
		require.NoError(t, res.Body.Close())
	})
}
