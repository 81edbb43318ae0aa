package idem_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// seen is a request as a server saw it.
type seen struct{ method, url, key, body string }

// web stands for all servers: it answers by scheme, host and path, and notes what it sees.
type web struct {
	mu     sync.Mutex
	seen   []seen
	answer func(n int, req *http.Request) (status int, location string) // n counts from 1; status 0 loses the answer
	bare   bool                                                         // answers do not name their request
}

func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	payload := ""
	if req.Body != nil {
		read, _ := io.ReadAll(req.Body)
		_ = req.Body.Close()
		payload = string(read)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, seen{req.Method, req.URL.String(), strings.Join(req.Header.Values("Idempotency-Key"), "|"), payload})
	status, location := w.answer(len(w.seen), req)
	if status == 0 {
		return nil, errCut
	}
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	if location != "" {
		res.Header.Set("Location", location)
	}
	if !w.bare {
		res.Request = req
	}
	return res, nil
}

func quick(int) time.Duration { return 0 }

// moves answers each place with a redirect to the next, and the last one with 201.
func moves(status int, places ...string) func(int, *http.Request) (int, string) {
	return func(_ int, req *http.Request) (int, string) {
		for i, place := range places[:len(places)-1] {
			if req.URL.String() == place {
				return status, places[i+1]
			}
		}
		return http.StatusCreated, ""
	}
}

// CLI-01: the answer is lost, the retry is redirected, and the redirected request is the same payment.
func TestARedirectedRequestKeepsItsKey(t *testing.T) {
	const here = "https://provider.example/v1"
	lost := func(then func(int, *http.Request) (int, string)) func(int, *http.Request) (int, string) {
		return func(n int, req *http.Request) (int, string) {
			if n == 1 {
				return 0, ""
			}
			return then(n, req)
		}
	}
	for name, c := range map[string]struct {
		answer func(int, *http.Request) (int, string)
		places []string
	}{
		"307":                              {moves(307, here, "https://provider.example/v2"), []string{here, "https://provider.example/v2"}},
		"308":                              {moves(308, here, "https://provider.example/v2"), []string{here, "https://provider.example/v2"}},
		"after a lost answer":              {lost(moves(307, here, here+"/")), []string{here, here, here + "/"}},
		"a chain":                          {moves(307, here, here+"/a", here+"/b", here+"/c"), []string{here, here + "/a", here + "/b", here + "/c"}},
		"the port that goes without say":   {moves(307, here, "https://provider.example:443/v2"), []string{here, "https://provider.example:443/v2"}},
		"another case of the host":         {moves(307, here, "https://PROVIDER.example/v2"), []string{here, "https://PROVIDER.example/v2"}},
		"from http to https":               {moves(308, "http://provider.example/", here), []string{"http://provider.example/", here}},
		"to an origin of the same service": {moves(307, here, "https://eu.provider.example/v1"), []string{here, "https://eu.provider.example/v1"}},
		"and back":                         {moves(307, here, "https://eu.provider.example/v1", here+"/b"), []string{here, "https://eu.provider.example/v1", here + "/b"}},
	} {
		for by, key := range map[string]string{"a new key": "", "WithKey": "W", "the caller's line": "L"} {
			for _, bare := range []bool{false, true} {
				t.Run(name+", "+by+map[bool]string{true: ", answers without their request"}[bare], func(t *testing.T) {
					w := &web{answer: c.answer, bare: bare}
					res, err := follow(t, &idem.Transport{Base: w, Pause: quick, Origins: []string{"https://eu.provider.example"}}, c.places[0], key)
					require.NoError(t, err)
					assert.Equal(t, http.StatusCreated, res.StatusCode)
					require.Len(t, w.seen, len(c.places))
					for i, place := range c.places {
						assert.Equal(t, seen{"POST", place, w.seen[0].key, "payment"}, w.seen[i])
					}
					assert.Contains(t, w.seen[0].key, key)
					assert.NotEmpty(t, w.seen[0].key)
				})
			}
		}
	}
}

// follow posts a payment with an http.Client; a key of L is the caller's line, another is given by WithKey.
func follow(t *testing.T, transport http.RoundTripper, to, key string) (*http.Response, error) {
	t.Helper()
	ctx := t.Context()
	if key != "" && key != "L" {
		ctx = idem.WithKey(ctx, key)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", to, strings.NewReader("payment"))
	require.NoError(t, err)
	if key == "L" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	return res, err
}

// CLI-01: neither the key nor a payment under a new one leaves the service.
func TestAKeyedRequestIsNotRedirectedToAnotherOrigin(t *testing.T) {
	const here = "https://provider.example/v1"
	for name, places := range map[string][]string{
		"another host":               {here, "https://other.example/v1"},
		"a subdomain":                {here, "https://pay.provider.example/v1"},
		"another port":               {here, "https://provider.example:8443/v1"},
		"https to http":              {here, "http://provider.example/v1"},
		"http to https elsewhere":    {"http://provider.example/", "https://other.example/"},
		"http to https, other ports": {"http://provider.example:8080/", "https://provider.example/"},
		"in the middle of a chain":   {here, here + "/a", "https://other.example/", here + "/b"},
		"a name like an allowed one": {here, "https://eu.provider.example.evil.example/"},
		"a user like the host":       {here, "https://provider.example@other.example/"},
	} {
		for by, key := range map[string]string{"a new key": "", "WithKey": "W", "the caller's line": "L"} {
			t.Run(name+", "+by, func(t *testing.T) {
				w := &web{answer: moves(307, places...)}
				_, err := follow(t, &idem.Transport{Base: w, Pause: quick, Origins: []string{"https://eu.provider.example"}}, places[0], key)
				require.ErrorIs(t, err, idem.ErrOtherOrigin)
				from, _ := url.Parse(places[0])
				for _, s := range w.seen {
					at, _ := url.Parse(s.url)
					assert.Equal(t, from.Host, at.Host, "sent to another origin")
				}
			})
		}
	}
}

// CLI-01: 301, 302 and 303 make it a GET, which has no key, and takes the caller's nowhere either.
func TestARedirectThatMakesItAGETTakesNoKey(t *testing.T) {
	const here, there, further = "https://provider.example/v1", "https://provider.example/receipt", "https://other.example/receipt"
	for _, status := range []int{301, 302, 303} {
		for by, key := range map[string]string{"a new key": "", "WithKey": "W", "the caller's line": "L"} {
			t.Run(http.StatusText(status)+", "+by, func(t *testing.T) {
				w := &web{answer: moves(status, here, there, further)}
				_, err := follow(t, &idem.Transport{Base: w, Methods: []string{"POST", "GET"}}, here, key)
				require.NoError(t, err)
				require.Len(t, w.seen, 3)
				assert.NotEmpty(t, w.seen[0].key)
				assert.Equal(t, []seen{{"GET", there, "", ""}, {"GET", further, "", ""}}, w.seen[1:])
			})
		}
	}
}

// hiding is a RoundTripper around the Transport after whose work nobody can tell which request an answer belongs to.
type hiding struct {
	base  http.RoundTripper
	names bool // the answer names the request of the caller
}

func (h hiding) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := h.base.RoundTrip(req)
	if err == nil && h.names {
		res.Request = req
	} else if err == nil {
		res.Request = nil
	}
	return res, err
}

func TestARedirectWhoseOperationIsHiddenIsNoNewPayment(t *testing.T) {
	const here, there = "https://provider.example/v1", "https://provider.example/v2"
	for _, names := range []bool{false, true} {
		w := &web{answer: moves(307, here, there)}
		_, err := follow(t, hiding{&idem.Transport{Base: w}, names}, here, "")
		require.ErrorContains(t, err, "WithKey")
		assert.Len(t, w.seen, 1, "sent under another key")
	}
	for _, key := range []string{"W", "L"} {
		w := &web{answer: moves(307, here, there)}
		_, err := follow(t, hiding{&idem.Transport{Base: w}, true}, here, key)
		require.NoError(t, err)
		require.Len(t, w.seen, 2)
		assert.Equal(t, w.seen[0].key, w.seen[1].key, "the caller's key is known all the same")

		w = &web{answer: moves(307, here, "https://other.example/")}
		_, err = follow(t, hiding{&idem.Transport{Base: w}, true}, here, key)
		require.ErrorIs(t, err, idem.ErrOtherOrigin)
		assert.Len(t, w.seen, 1)
	}
}

func TestTheWindowGoesOnBehindARedirect(t *testing.T) {
	const here, there = "https://provider.example/v1", "https://provider.example/v2"
	w := &web{answer: func(n int, req *http.Request) (int, string) {
		if req.URL.String() == here {
			time.Sleep(2 * time.Millisecond)
			return 307, there
		}
		return 201, ""
	}}
	_, err := follow(t, &idem.Transport{Base: w, Window: time.Millisecond}, here, "")
	require.ErrorContains(t, err, "Transport.Window")
	assert.Len(t, w.seen, 1)
}

// CLI-01 with real servers: the payment is made, its answer is lost, the service has moved, and there is one payment.
func TestOnePaymentIsMadeWhenTheServiceMovesAfterALostAnswer(t *testing.T) {
	var mu sync.Mutex
	payments, requests := map[string]int{}, 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		if requests > 1 {
			http.Redirect(w, r, "/v2", http.StatusTemporaryRedirect)
			return
		}
		payments[r.Header.Get("Idempotency-Key")]++
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("POST /v2", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		payments[r.Header.Get("Idempotency-Key")]++
		w.WriteHeader(http.StatusCreated)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	res, err := follow(t, &idem.Transport{Pause: quick}, server.URL+"/v1", "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusCreated, res.StatusCode)
	assert.Len(t, payments, 1, "as many payments as keys")
	assert.Equal(t, 2, requests)
}

// CLI-01 with RPL-32: a router inside the engine redirects, and the request runs at the new place under its own key.
func TestARedirectOfARouterBehindTheEngineIsFollowedWithTheSameKey(t *testing.T) {
	runs := 0
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/", func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.WriteHeader(http.StatusCreated)
	})
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Key: core.KeyConfig{Strict: true, Accept: core.UUIDKey}})
	require.NoError(t, err)
	server := httptest.NewServer(idemhttp.HTTP(engine)(mux))
	defer server.Close()
	const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	// Sent again from the start, it is another path under the key of a request that ran: refused, and nothing runs twice.
	for _, status := range []int{http.StatusCreated, http.StatusUnprocessableEntity} {
		res, err := follow(t, &idem.Transport{}, server.URL+"/orders", key)
		require.NoError(t, err)
		assert.Equal(t, status, res.StatusCode)
	}
	assert.Equal(t, 1, runs)
}
