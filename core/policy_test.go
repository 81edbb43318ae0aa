package core

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPoliciesDecideByStatus(t *testing.T) {
	releaseOn := ReleaseOn(400, 422, 503)
	for _, c := range []struct {
		check  string
		policy func(*Response) Disposition
		want   Disposition
		status []int
	}{
		{"RPL-04", DefaultPolicy, Keep, []int{200, 201, 202, 204, 205, 299}},
		{"RPL-23", DefaultPolicy, Keep, []int{301, 302, 303, 304}},
		{"RPL-32", DefaultPolicy, Release, []int{307, 308}},
		{"ERR-01", DefaultPolicy, Keep, []int{400, 402, 404, 409, 410, 412, 422, 499}},
		{"ERR-02", DefaultPolicy, Release, []int{401, 403, 407, 408, 425, 429}},
		{"ERR-03", DefaultPolicy, Retry, []int{500, 502, 503, 504, 599}},

		{"ERR-04", KeepAll, Keep, []int{200, 303, 401, 404, 429, 500, 503}},

		{"ERR-10", releaseOn, Release, []int{400, 422, 503}},
		{"ERR-10 leaves the others to the default", releaseOn, Keep, []int{200, 404, 409}},
		{"ERR-10 leaves the others to the default", releaseOn, Release, []int{307, 308, 401, 429}},
		{"ERR-10 leaves the others to the default", releaseOn, Retry, []int{500, 502}},

		{"ERR-11", KeepOnly2xx, Keep, []int{200, 201, 204, 299}},
		{"ERR-11", KeepOnly2xx, Release, []int{300, 303, 307, 308, 400, 404, 429}},
		{"ERR-11", KeepOnly2xx, Retry, []int{500, 503}},
	} {
		for _, status := range c.status {
			assert.Equal(t, c.want, c.policy(&Response{Status: status}), "%s: %d", c.check, status)
		}
	}
}

func TestReleaseOnDoesNotShareItsArguments(t *testing.T) {
	statuses := []int{400}
	policy := ReleaseOn(statuses...)
	statuses[0] = 404
	assert.Equal(t, Release, policy(&Response{Status: 400}))
	assert.Equal(t, Keep, policy(&Response{Status: 404}))
}

func TestAnAnswerThatCannotBeKeptIsReleasedWhateverThePolicySays(t *testing.T) {
	r := &run{keyed: &keyed{engine: &Engine{cfg: Config{Keep: KeepConfig{Policy: KeepAll}}}, ctx: context.Background()}}
	for _, c := range []struct {
		name string
		r    Response
		want Disposition
	}{
		{"MTH-07 hijacked", Response{Status: 101, Hijacked: true}, Release},
		{"MTH-07 event stream without its end", events("text/event-stream", true), Release},
		{"MTH-07 with parameters", events("text/event-stream; charset=utf-8", true), Release},
		{"MTH-07 in another case", events("Text/Event-Stream", true), Release},
		{"RPL-27 event stream with its end, but too long", Response{Status: 200, Header: events("text/event-stream", false).Header, Omitted: true}, Keep},
		{"event stream with its end", events("text/event-stream", false), Keep},
		{"RPL-27 long answer that names the type elsewhere",
			Response{Status: 200, Header: []Field{{"X-Accept", "text/event-stream"}}, Omitted: true, Unfinished: true}, Keep},
		{"RPL-27 long answer of another type", events("text/plain", true), Keep},
	} {
		assert.Equal(t, c.want, r.disposition(&c.r), c.name)
	}
}

func events(contentType string, unfinished bool) Response {
	return Response{Status: 200, Header: []Field{{"content-type", contentType}}, Omitted: unfinished, Unfinished: unfinished}
}

func TestKeptHeaderLeavesOutWhatBelongsToOneExchange(t *testing.T) {
	for check, names := range map[string][]string{
		"RPL-11": {"Date"},
		"RPL-12": {"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Connection"},
		"RPL-13": {"Content-Length"},
		"RPL-14": {"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization"},
		"RPL-15": {"Set-Cookie"},
		"RPL-16": {
			"WWW-Authenticate", "Authentication-Info", "Authorization", "X-Request-Id", "traceparent", "tracestate",
			"Server-Timing", "Age", "Alt-Svc", "RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining",
			"RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		},
		"RPL-16 RateLimit-*":       {"RateLimit-Used", "X-RateLimit-Used"},
		"RPL-25":                   {"Idempotent-Replayed", "idempotent-replayed"},
		"a name that is none":      {"", "X Y", "X:", "X\r\nY", "\u00dcber", "\u212aelvin"},
		"the same in another case": {"DATE", "set-cookie", "x-ratelimit-LIMIT", "TRACEPARENT"},
	} {
		for _, name := range names {
			assert.Empty(t, kept(Field{name, "v"}), "%s: %q", check, name)
		}
	}
}

// RPL-21.
func TestKeptHeaderLeavesTheRestAsItIs(t *testing.T) {
	for _, name := range []string{
		"ETag", "Last-Modified", "Location", "Content-Location", "Vary", "Cache-Control", "Content-Type",
		"Content-Encoding", "Content-Language", "Content-Disposition", "Link", "Retry-After", "Allow", "Expires", "Server",
		"Access-Control-Allow-Origin", "X-Anything", "x-lower", "Rate", "Dated", "Set-Cookies", "Idempotency-Key", "!#$%&'*+-.^_`|~09",
	} {
		assert.Equal(t, []Field{{name, "v"}}, kept(Field{name, "v"}), name)
	}
	lines := []Field{{"Link", "a"}, {"Vary", "b"}, {"Link", "c"}, {"X-Empty", ""}}
	assert.Equal(t, lines, kept(lines...), "order and repetition")
}

// RPL-12.
func TestKeptHeaderLeavesOutWhatConnectionNames(t *testing.T) {
	hop, other := Field{"X-Hop", "v"}, Field{"X-Other", "v"}
	for name, connection := range map[string][]Field{
		"alone":                {{"Connection", "X-Hop"}},
		"in another case":      {{"connection", "x-hOP"}},
		"in a list":            {{"Connection", "close, X-Hop ,Keep-Alive"}},
		"without spaces":       {{"Connection", "close,X-Hop"}},
		"behind a tab":         {{"Connection", "close,\tX-Hop"}},
		"on the second line":   {{"Connection", "close"}, {"Connection", "X-Hop"}},
		"on the line behind":   {hop, {"Connection", "X-Hop"}},
		"with an empty member": {{"Connection", ", ,X-Hop"}},
	} {
		assert.Equal(t, []Field{other}, kept(append(connection, hop, other)...), name)
	}
	assert.Equal(t, []Field{hop, other}, kept(Field{"Connection", "X-Ho, X-Hop-2, Hop"}, hop, other), "no part of a name")
}

func TestKeptValuesHaveSpacesForLineBreaks(t *testing.T) {
	assert.Equal(t, []Field{{"X-A", "a  b c d"}}, kept(Field{"X-A", "a\r\nb\nc\x00d"}))
}

// RPL-15.
func TestAllowedAndDeniedNamesComeBeforeTheLists(t *testing.T) {
	keep := KeepConfig{AllowHeaders: []string{"Set-cookie", "x-request-ID", "RateLimit-Limit"}, DenyHeaders: []string{"etag"}}
	lines := []Field{{"Set-Cookie", "a"}, {"X-Request-Id", "b"}, {"Ratelimit-Limit", "c"}, {"Vary", "d"}}
	assert.Equal(t, lines, keptBy(keep, append(lines, Field{"ETag", "e"}, Field{"Alt-Svc", "f"}, Field{"RateLimit-Reset", "g"})...))
	assert.Empty(t, keptBy(keep, Field{"Connection", "Set-Cookie"}, Field{"Set-Cookie", "a"}), "RPL-12 comes before")
}

func TestKeptHeaderDoesNotTouchTheAnswer(t *testing.T) {
	r := &Response{Header: []Field{{"Date", "today"}, {"X-A", "a\nb"}}}
	before := slices.Clone(r.Header)
	rules := newHeaderRules(&Config{Keep: KeepConfig{Marker: "Marker"}})
	rules.appendKept(nil, r)
	assert.Equal(t, before, r.Header)
}

func kept(lines ...Field) []Field {
	return keptBy(KeepConfig{}, lines...)
}

func keptBy(keep KeepConfig, lines ...Field) []Field {
	keep.Marker = "Idempotent-Replayed"
	rules := newHeaderRules(&Config{Keep: keep})
	return rules.appendKept(nil, &Response{Header: lines})
}

// RPL-28.
func TestOmitNoStoreReadsEveryCacheControlField(t *testing.T) {
	for name, c := range map[string]struct {
		lines []Field
		want  bool
	}{
		"none":               {nil, false},
		"another directive":  {[]Field{{"Cache-Control", "private, max-age=0"}}, false},
		"of another field":   {[]Field{{"X-Other", "no-store"}}, false},
		"alone":              {[]Field{{"Cache-Control", "no-store"}}, true},
		"in a list":          {[]Field{{"cache-control", "private, No-Store"}}, true},
		"on the second line": {[]Field{{"Cache-Control", "private"}, {"Cache-Control", "no-store"}}, true},
	} {
		assert.Equal(t, c.want, OmitNoStore(&Response{Header: c.lines}), name)
	}
}
