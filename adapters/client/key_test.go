package idem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// reader is a server that tells which key it read.
func reader(t testing.TB, config func(*core.Config)) (http.Handler, *string) {
	read := new(string)
	c := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
	c.Key.Required = true
	if config != nil {
		config(&c)
	}
	accept := c.Key.Accept
	c.Key.Accept = func(key string) (string, bool) {
		*read = key
		if accept != nil {
			return accept(key)
		}
		return key, true
	}
	engine, err := core.New(c)
	require.NoError(t, err)
	return idemhttp.HTTP(engine)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), read
}

func TestServersInEveryModeReadTheKeysThatAreSent(t *testing.T) {
	const uuid = "6BA7B810-9dad-11d1-80b4-00c04fd430c8"
	for name, c := range map[string]struct {
		config func(*core.Config)
		bare   bool
		keys   []string
	}{
		"lenient":          {nil, false, []string{"", "order-17", "a b", `a"b\c`, `\"`, "a,b;c", "~!", strings.Repeat("x", 255), uuid}},
		"strict":           {func(c *core.Config) { c.Key.Strict = true }, false, []string{"", "order-17", "a b", `a"b\c`, `\"`, "a,b;c", "42", "?1", ":YWJj:", uuid}},
		"UUIDs":            {func(c *core.Config) { c.Key.Accept = core.UUIDKey }, false, []string{"", uuid}},
		"UUIDs, bare":      {func(c *core.Config) { c.Key.Accept = core.UUIDKey }, true, []string{"", uuid}},
		"long keys":        {func(c *core.Config) { c.Key.MinLength = 36 }, false, []string{"", uuid}},
		"young keys":       {func(c *core.Config) { c.Key.MaxAge = time.Hour }, false, []string{""}},
		"lenient and bare": {nil, true, []string{"", "order-17", `a\b`, "42", "?1", strings.Repeat("x", 255), uuid}},
	} {
		t.Run(name, func(t *testing.T) {
			server, read := reader(t, c.config)
			transport := &idem.Transport{Bare: c.bare, Base: roundTripper(func(req *http.Request) (*http.Response, error) { return serve(server, req) })}
			for _, key := range c.keys {
				ctx := context.Background()
				if key != "" {
					ctx = idem.WithKey(ctx, key)
				}
				status, err := send(t, transport, ctx, "POST", nil)
				require.NoError(t, err)
				assert.Equal(t, 200, status, key)
				if key != "" {
					assert.Equal(t, key, *read)
				}
			}
		})
	}
}

// A key that was given, but is no key, is never taken for none: a new one could make a second payment.
func TestAKeyThatCannotBeSentIsAnErrorAndNothingIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		withKey string
		header  http.Header
		bare    bool
		says    string
	}{
		"empty":                 {withKey: "", says: "WithKey was given is empty"},
		"blank":                 {withKey: "  ", says: "WithKey was given is empty"},
		"a line break":          {withKey: "a\r\nX: y", says: "WithKey was given has the byte 0x0D at 1"},
		"a zero":                {withKey: "a\x00", says: "0x00 at 1"},
		"delete":                {withKey: "\x7f", says: "0x7F at 0"},
		"no ASCII":              {withKey: "ключ", says: "0xD0 at 0"},
		"bare, with a blank":    {withKey: "a b", bare: true, says: "' ' at 1"},
		"bare, with a quote":    {withKey: `"a"`, bare: true, says: "'\"' at 0"},
		"bare, with a comma":    {withKey: "a,b", bare: true, says: "Transport.Bare"},
		"bare, semicolon":       {withKey: "a;b", bare: true, says: "Transport.Bare"},
		"an empty line":         {header: http.Header{"Idempotency-Key": {""}}, says: "Idempotency-Key line is empty"},
		"a blank line":          {header: http.Header{"Idempotency-Key": {" \t"}}, says: "Idempotency-Key line is empty"},
		"two lines":             {header: http.Header{"Idempotency-Key": {"a", "a"}}, says: "2 Idempotency-Key lines"},
		"two lines, two names":  {header: http.Header{"Idempotency-Key": {"a"}, "idempotency-key": {"b"}}, says: "2 Idempotency-Key lines"},
		"a line with a break":   {header: http.Header{"Idempotency-Key": {"a\nb"}}, says: "line has the byte 0x0A at 1"},
		"a line that is cyrill": {header: http.Header{"Idempotency-Key": {"ключ"}}, says: "0xD0 at 0"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			if c.header == nil {
				ctx = idem.WithKey(ctx, c.withKey)
			}
			payload := newStalled("payment")
			req := httptest.NewRequest("POST", "http://provider.example/", payload).WithContext(ctx)
			req.Header = c.header
			_, err := (&idem.Transport{Bare: c.bare, Base: roundTripper(func(*http.Request) (*http.Response, error) {
				t.Error("it was sent")
				return nil, errCut
			})}).RoundTrip(req)
			require.ErrorContains(t, err, c.says)
			assert.True(t, isClosed(payload.closed), "a RoundTripper closes the body also on errors")
			if key := strings.TrimSpace(c.withKey); len(key) > 2 {
				assert.NotContains(t, err.Error(), key, "keys do not belong into logs")
			}
		})
	}
}

func TestALineOfTheCallersIsSentAsItStandsUnderAnyCaseOfItsName(t *testing.T) {
	for _, header := range []http.Header{{"Idempotency-Key": {"bare"}}, {"idempotency-key": {"bare"}}, {"IDEMPOTENCY-KEY": {"bare"}}} {
		w := &web{answer: moves(307, "http://provider.example/")}
		req := httptest.NewRequest("POST", "http://provider.example/", nil)
		req.Header = header
		_, err := (&idem.Transport{Base: w}).RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, "bare", w.seen[0].key)
		assert.Len(t, req.Header, 1)
	}
}

func TestNewKeysAreUUIDsOfVersion7ThatNobodyGuesses(t *testing.T) {
	seen := map[string]bool{}
	w := &web{answer: moves(307, "http://provider.example/")}
	for range 1000 {
		_, err := post(t, &idem.Transport{Base: w, Bare: true})
		require.NoError(t, err)
	}
	for _, s := range w.seen {
		assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, s.key)
		assert.False(t, seen[s.key[14:]], "the part that is random")
		seen[s.key[14:]] = true
	}
}

// FuzzKey: what a strict server reads is what the caller gave, whatever that is.
func FuzzKey(f *testing.F) {
	server, read := reader(f, func(c *core.Config) { c.Key.Strict, c.Key.MaxLength = true, 1<<20 })
	f.Fuzz(func(t *testing.T, key string) {
		*read = ""
		sent := false
		transport := &idem.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			sent = true
			return serve(server, req)
		})}
		req, err := http.NewRequestWithContext(idem.WithKey(t.Context(), key), "POST", "http://provider.example/", nil)
		require.NoError(t, err)
		res, err := transport.RoundTrip(req)
		if err != nil {
			assert.False(t, sent)
			return
		}
		assert.Equal(t, 200, res.StatusCode)
		assert.Equal(t, key, *read)
	})
}
