package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// description is docs/openapi.yaml with its routes.
type description struct {
	document *openapi3.T
	routes   routers.Router
}

func load(t *testing.T) description {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromFile("../../docs/openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, document.Validate(t.Context()))
	routes, err := gorillamux.NewRouter(document)
	require.NoError(t, err)
	return description{document, routes}
}

// fits fails the test unless the response to a request is one that the description has, with no other members and header fields.
func (d description) fits(t *testing.T, r *http.Request, res *http.Response) (problem core.Problem) {
	t.Helper()
	route, parameters, err := d.routes.FindRoute(r)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route},
		Status:                 res.StatusCode, Header: res.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: res.Header.Get("Idempotent-Body") != ""},
	}
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), input.SetBodyBytes(body)), "%s", body)
	assert.Equal(t, res.Header.Get("Idempotent-Body") != "", len(body) == 0)

	described := route.Operation.Responses.Status(res.StatusCode).Value
	for name := range res.Header {
		isDescribed := described.Headers[name] != nil || name == "Content-Type" || name == "Content-Length"
		assert.True(t, isDescribed, "%d has the header field %s", res.StatusCode, name)
	}
	if res.Header.Get("Content-Type") == "application/problem+json" {
		var members map[string]any
		require.NoError(t, json.Unmarshal(body, &members))
		for name := range members {
			assert.Contains(t, d.document.Components.Schemas["Problem"].Value.Properties, name)
		}
		require.NoError(t, json.Unmarshal(body, &problem))
	}
	return problem
}

// stub is a store that returns these errors, and finds this state.
type stub struct {
	driver.Store
	found           driver.State
	begin, complete error
}

func (s stub) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if s.begin != nil || s.found != "" {
		return driver.Entry{State: s.found}, s.begin
	}
	return s.Store.Begin(ctx, c)
}

func (s stub) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if s.complete != nil {
		return s.complete
	}
	return s.Store.Complete(ctx, c, outcome)
}

// storing returns a change of the config that puts s before the store.
func storing(s stub) func(*core.Config) {
	return func(c *core.Config) {
		s.Store = c.Store
		c.Store = s
	}
}

// refusal is how a client gets a code: what is special about the service, and about the request.
type refusal struct {
	config  func(*core.Config)
	request func(*http.Request)
	before  func(t *testing.T, service http.Handler) // requests that come first
	wrap    func(engine *core.Engine, service http.Handler) http.Handler
}

// header returns a change of a request that sets a header field.
func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

// pays sends a payment under the key of all requests.
func pays(body string) func(*testing.T, http.Handler) {
	return func(_ *testing.T, service http.Handler) { service.ServeHTTP(httptest.NewRecorder(), payment(body)) }
}

func payment(body string) *http.Request {
	r := httptest.NewRequest("POST", "/payments", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	r.Header.Set("Content-Type", "application/json")
	return r
}

// cut is a body that ends early.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

const amount = `{"amount": 100}`

// refusals has every code of docs/problems.md but those of the proxy.
var refusals = map[string]refusal{
	"key-missing":        {config: func(c *core.Config) { c.Key.Required = true }, request: func(r *http.Request) { r.Header.Del("Idempotency-Key") }},
	"key-empty":          {request: header("Idempotency-Key", "")},
	"key-malformed":      {request: header("Idempotency-Key", `"open`)},
	"key-repeated":       {request: header("Idempotency-Key", "a", "a")},
	"key-too-short":      {config: func(c *core.Config) { c.Key.MinLength = 100 }},
	"key-too-long":       {config: func(c *core.Config) { c.Key.MaxLength = 5 }},
	"key-refused":        {config: func(c *core.Config) { c.Key.Accept = core.UUIDKey }, request: header("Idempotency-Key", "order-7")},
	"first-sent-unknown": {config: func(c *core.Config) { c.Key.MaxAge = time.Hour }},
	"request-too-old": {
		config:  func(c *core.Config) { c.Key.MaxAge = time.Hour },
		request: header("Repeatability-First-Sent", "Mon, 02 Jan 2006 15:04:05 GMT"),
	},
	"scope-missing": {config: func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return "" } }},
	"quota-exceeded": {config: func(c *core.Config) {
		c.Limits.Quota = func(context.Context, string, *core.Request) bool { return false }
	}},
	"body-unreadable":      {request: func(r *http.Request) { r.Body = io.NopCloser(cut{}) }},
	"body-too-large":       {config: func(c *core.Config) { c.Limits.RequestBody = 1 }},
	"fingerprint-mismatch": {before: pays(`{"amount": 999}`)},
	"in-progress":          {config: storing(stub{found: driver.InProgress})},
	"claim-lost":           {config: storing(stub{complete: driver.ErrLost})},
	"record-lost":          {config: storing(stub{complete: driver.ErrGone})},
	"outcome-unknown":      {config: storing(stub{found: driver.Unknown})},
	"retention-over":       {config: storing(stub{found: driver.Expired})},
	"replay-refused": {
		config: func(c *core.Config) {
			c.Keep.OnReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error) { return nil, nil }
		},
		before: pays(amount),
	},
	"replay-unavailable": {
		config: func(c *core.Config) {
			c.Keep.OnReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error) {
				return nil, errors.New("down")
			}
		},
		before: pays(amount),
	},
	"store-unavailable": {config: storing(stub{begin: errors.New("down")})},
	"not-durable":       {config: storing(stub{begin: driver.ErrNotDurable})},
	"record-unreadable": {config: storing(stub{begin: driver.ErrUnreadable})},
	"nested-engine": {wrap: func(engine *core.Engine, service http.Handler) http.Handler {
		return idem.HTTP(engine.With(func(c *core.Config) { c.Lease.Duration = time.Minute }))(service)
	}},
	"status-unsupported": {
		config: storing(stub{}),
		request: func(r *http.Request) {
			r.Method, r.URL.Path, r.RequestURI = "GET", "/payments/status", "/payments/status"
		},
	},
}

// newService returns a service with one guarded route and one that says what became of a key.
func newService(t *testing.T, change func(*core.Config), wrap func(*core.Engine, http.Handler) http.Handler) http.Handler {
	t.Helper()
	cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
	if change != nil {
		change(&cfg)
	}
	engine, err := core.New(cfg)
	require.NoError(t, err)
	pay := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"payment": 1}`))
	}))
	pay = idem.HTTP(engine)(pay)
	if wrap != nil {
		pay = wrap(engine, pay)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", pay)
	mux.Handle("GET /payments/status", idem.Status(engine))
	return mux
}

func TestEveryRefusalIsOneThatTheDescriptionHas(t *testing.T) {
	d := load(t)
	for code, c := range refusals {
		t.Run(code, func(t *testing.T) {
			for _, hasLink := range []bool{false, true} {
				service := newService(t, func(cfg *core.Config) {
					cfg.Problems.Link = hasLink
					if c.config != nil {
						c.config(cfg)
					}
				}, c.wrap)
				if c.before != nil {
					c.before(t, service)
				}
				r, w := payment(amount), httptest.NewRecorder()
				if c.request != nil {
					c.request(r)
				}
				service.ServeHTTP(w, r)
				assert.Equal(t, hasLink, w.Header().Get("Link") != "")
				assert.Equal(t, code, d.fits(t, r, w.Result()).Code)
			}
		})
	}
}

// Each code is under one status, and in the tests and pages for clients.
func TestTheDescriptionHasEveryCode(t *testing.T) {
	var described []string
	for _, response := range load(t).document.Components.Responses {
		for _, part := range response.Value.Content["application/problem+json"].Schema.Value.AllOf {
			if code := part.Value.Properties["code"]; code != nil {
				for _, value := range code.Value.Enum {
					described = append(described, value.(string))
				}
			}
		}
	}
	page, err := os.ReadFile("../../docs/problems.md")
	require.NoError(t, err)
	var explained []string
	for _, entry := range regexp.MustCompile(`(?m)^### ([a-z-]+)$`).FindAllSubmatch(page, -1) {
		explained = append(explained, string(entry[1]))
	}
	slices.Sort(described)
	slices.Sort(explained)
	assert.Equal(t, explained, described)
	for _, code := range explained {
		if !strings.HasPrefix(code, "upstream-") {
			assert.Contains(t, refusals, code)
		}
	}
}

func TestFirstResponsesAndReplaysAreWhatTheDescriptionHas(t *testing.T) {
	d := load(t)
	for name, c := range map[string]struct {
		config func(*core.Config)
		field  string // of the replay
		value  string
	}{
		"a replay":                  {nil, "Idempotent-Replayed", "true"},
		"a replay without its body": {func(c *core.Config) { c.Keep.MaxBody = 1 }, "Idempotent-Body", "omitted"},
		"with the key":              {func(c *core.Config) { c.Keep.EchoKey = true }, "Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`},
		"without protection": {func(c *core.Config) {
			c.DangerouslyFailOpen = true
			storing(stub{begin: errors.New("down")})(c)
		}, "Idempotent-Unprotected", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			service := newService(t, c.config, nil)
			var last *http.Response
			for range 2 {
				w := httptest.NewRecorder()
				service.ServeHTTP(w, payment(amount))
				last = w.Result()
				d.fits(t, payment(amount), last)
			}
			assert.Equal(t, c.value, last.Header.Get(c.field))
		})
	}
}

func TestStatusResponsesAreWhatTheDescriptionHas(t *testing.T) {
	d := load(t)
	service := newService(t, nil, nil)
	for _, status := range []int{http.StatusNotFound, http.StatusOK} {
		r, w := payment(""), httptest.NewRecorder()
		r.Method, r.URL.Path = "GET", "/payments/status"
		service.ServeHTTP(w, r)
		assert.Equal(t, status, w.Code)
		d.fits(t, r, w.Result())
		pays(amount)(t, service)
	}
}

// The validator is not blind: what is not in the description is found.
func TestOtherResponsesAreFound(t *testing.T) {
	d := load(t)
	route, _, err := d.routes.FindRoute(payment(amount))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		status int
		fields http.Header
		body   string
	}{
		"another status":       {418, nil, `{}`},
		"a code elsewhere":     {409, nil, `{"type": "https://a/b", "title": "t", "status": 409, "detail": "d", "code": "key-missing"}`},
		"a member is missing":  {409, nil, `{"type": "https://a/b", "title": "t", "status": 409, "code": "in-progress"}`},
		"a pause of no number": {409, http.Header{"Retry-After": {"soon"}}, `{"type": "https://a/b", "title": "t", "status": 409, "detail": "d", "code": "in-progress"}`},
	} {
		t.Run(name, func(t *testing.T) {
			fields := http.Header{"Content-Type": {"application/problem+json"}}
			for name, values := range c.fields {
				fields[name] = values
			}
			input := &openapi3filter.ResponseValidationInput{
				RequestValidationInput: &openapi3filter.RequestValidationInput{Request: payment(amount), Route: route},
				Status:                 c.status, Header: fields, Body: io.NopCloser(bytes.NewReader([]byte(c.body))),
				Options: &openapi3filter.Options{IncludeResponseStatus: true},
			}
			assert.Error(t, openapi3filter.ValidateResponse(t.Context(), input))
		})
	}
}
