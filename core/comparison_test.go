package core_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// What makes two requests the same, and how records outlive a change of it.

// lines gives a request header lines besides its key, as name, value pairs.
func lines(pairs ...string) change {
	header := http.Header{"Idempotency-Key": {"K"}}
	for i := 0; i < len(pairs); i += 2 {
		header.Add(pairs[i], pairs[i+1])
	}
	return func(r *core.Request) { r.Header = header.Values }
}

func comparing(p core.FingerprintConfig) func(*core.Config) {
	return func(c *core.Config) { c.Fingerprint = p }
}

// typed is a request with a body of a content type.
func typed(contentType, text string) core.Request {
	return changed(lines("Content-Type", contentType), body(text, nil))
}

func asJSON(text string) core.Request { return typed("application/json", text) }

func asForm(boundary, value string) core.Request {
	text := strings.ReplaceAll("--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+value+"\r\n--B--\r\n", "--B", "--"+boundary)
	return typed("multipart/form-data; boundary="+boundary, text)
}

func queried(q string) core.Request { return changed(query(q)) }

// A pair is two requests under one key, and whether they are the same.
type pair struct {
	first, second core.Request
	same          bool
}

func (p pair) check(t *testing.T, config core.FingerprintConfig) {
	t.Helper()
	f := newFixture(t, comparing(config))
	f.answered(f.send(p.first, made), 201, "made")
	f.replayed(f.send(p.first, made), 201, "made")
	second := f.send(p.second, made)
	if p.same {
		f.replayed(second, 201, "made")
	} else {
		f.refused(second, 422, "fingerprint-mismatch")
	}
	f.replayed(f.send(p.first, made), 201, "made")
	f.ran(1)
}

func TestRequestsAreComparedAsTheConfigSays(t *testing.T) {
	sorted, canonical, parts := core.FingerprintConfig{SortQuery: true}, core.FingerprintConfig{JSON: true}, core.FingerprintConfig{Multipart: true}
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	first := func(_ *core.Request, body []byte) []byte { return body[:1] }
	for name, c := range map[string]struct {
		config core.FingerprintConfig
		pair
	}{
		"FPR-05 parameters in another order":              {sorted, pair{queried("a=1&b=2"), queried("b=2&a=1"), true}},
		"FPR-05 parameters escaped in another way":        {sorted, pair{queried("a=%7e+x"), queried("a=~%20x"), true}},
		"FPR-05 another value":                            {sorted, pair{queried("a=1"), queried("a=2"), false}},
		"FPR-05 values of one name in another order":      {sorted, pair{queried("a=1&a=2"), queried("a=2&a=1"), false}},
		"FPR-05 a query that is none, by its text":        {sorted, pair{queried("a=%zz&b"), queried("b&a=%zz"), false}},
		"FPR-05 raw, another order":                       {core.FingerprintConfig{}, pair{queried("a=1&b=2"), queried("b=2&a=1"), false}},
		"FPR-06 white space and members in another order": {canonical, pair{asJSON(`{"a":1,"b":[1, 2]}`), asJSON("{ \"b\":[1,2],\n\"a\":1}"), true}},
		"FPR-06 a string written in another way":          {canonical, pair{asJSON(`"é/"`), asJSON(`"\u00e9\/"`), true}},
		"FPR-06 raw, white space":                         {core.FingerprintConfig{}, pair{asJSON(`{"a":1}`), asJSON(`{"a": 1}`), false}},
		"FPR-06 a type that ends in +json":                {canonical, pair{typed("application/vnd.api+json; v=1", `[1]`), typed("application/vnd.api+json; v=1", `[1 ]`), true}},
		"FPR-06 a type that is no JSON":                   {canonical, pair{typed("text/plain", `[1]`), typed("text/plain", `[1 ]`), false}},
		"FPR-06 an application's type that is no JSON":    {canonical, pair{typed("application/octet-stream", `[1]`), typed("application/octet-stream", `[1 ]`), false}},
		"FPR-06 another family's type that ends in +json": {canonical, pair{typed("model/x+json", `[1]`), typed("model/x+json", `[1 ]`), false}},
		"FPR-06 no type at all":                           {canonical, pair{changed(body(`[1]`, nil)), changed(body(`[1 ]`, nil)), false}},
		"FPR-06 JSON against the bytes of its form":       {canonical, pair{asJSON(`[1 ]`), typed("text/plain", `[1]`), false}},
		"FPR-07 a number written in another way":          {canonical, pair{asJSON(`[1.0]`), asJSON(`[1]`), true}},
		"FPR-07 numbers that a float can not tell apart":  {canonical, pair{asJSON(`[9007199254740993]`), asJSON(`[9007199254740992]`), false}},
		"FPR-07 an array in another order":                {canonical, pair{asJSON(`[1,2]`), asJSON(`[2,1]`), false}},
		"FPR-07 null and absent":                          {canonical, pair{asJSON(`{"a":null}`), asJSON(`{}`), false}},
		"FPR-09 a member twice":                           {canonical, pair{asJSON(`{"a":1,"a":2}`), asJSON(`{"a":2}`), false}},
		"FPR-09 a member twice, by its bytes":             {canonical, pair{asJSON(`{"a":1,"a":2}`), asJSON(`{"a":1, "a":2}`), false}},
		"FPR-09 invalid JSON, by its bytes":               {canonical, pair{asJSON(`{"a":`), asJSON(`{"a": `), false}},
		"FPR-09 too deep, by its bytes":                   {canonical, pair{asJSON(deep), asJSON(deep + " "), false}},
		"FPR-12 another boundary":                         {parts, pair{asForm("one", "x"), asForm("two", "x"), true}},
		"FPR-12 another part":                             {parts, pair{asForm("one", "x"), asForm("two", "y"), false}},
		"FPR-12 raw, another boundary":                    {core.FingerprintConfig{}, pair{asForm("one", "x"), asForm("two", "x"), false}},
		"FPR-12 a form that is cut, by its bytes":         {parts, pair{typed("multipart/form-data; boundary=one", "--one\r\n"), typed("multipart/form-data; boundary=two", "--two\r\n"), false}},
		"FPR-12 parts that are no form, by their bytes":   {parts, pair{typed("multipart/mixed; boundary=one", "--one\r\n\r\nx\r\n--one--\r\n"), typed("multipart/mixed; boundary=two", "--two\r\n\r\nx\r\n--two--\r\n"), false}},
		"FPR-13 headers that do not count":                {core.FingerprintConfig{Headers: []string{"Accept"}}, pair{changed(lines("User-Agent", "a", "Authorization", "old")), changed(lines("User-Agent", "b", "Date", "now")), true}},
		"FPR-13 a header that counts":                     {core.FingerprintConfig{Headers: []string{"accept", "X-Tenant"}}, pair{changed(lines("Accept", "text/csv")), changed(lines("Accept", "text/html")), false}},
		"FPR-13 a header that counts and is missing":      {core.FingerprintConfig{Headers: []string{"Accept"}}, pair{changed(lines("Accept", "")), changed(lines()), false}},
		"FPR-13 lines that move from name to name":        {core.FingerprintConfig{Headers: []string{"A", "B"}}, pair{changed(lines("A", "1", "A", "2")), changed(lines("A", "1", "B", "2")), false}},
		"FRM-07 a target with a scheme and a host":        {core.FingerprintConfig{}, pair{changed(path("https://a/b")), changed(path("/b")), true}},
		"FRM-07 a target that is no path":                 {core.FingerprintConfig{}, pair{changed(path("*")), changed(path("/")), false}},
		"FPR-17 another body when all are the same":       {core.FingerprintConfig{Off: true}, pair{request("K", "B"), request("K", "B'"), true}},
		"FPR-17 another query when all are the same":      {core.FingerprintConfig{Off: true}, pair{queried("a=1"), queried("a=2"), true}},
		"FPR-18 another path when all are the same":       {core.FingerprintConfig{Off: true}, pair{request("K", "B"), changed(path("/refunds")), false}},
		"FPR-18 another method when all are the same":     {core.FingerprintConfig{Off: true}, pair{request("K", "B"), changed(method("PATCH")), false}},
		"own, alike":                 {core.FingerprintConfig{Func: first}, pair{request("K", "B1"), changed(body("B2", nil), query("a=1")), true}},
		"own, different":             {core.FingerprintConfig{Func: first}, pair{request("K", "B"), request("K", "C"), false}},
		"FPR-18 own, another path":   {core.FingerprintConfig{Func: first}, pair{request("K", "B"), changed(path("/refunds")), false}},
		"FPR-18 own, another method": {core.FingerprintConfig{Func: first}, pair{request("K", "B"), changed(method("PATCH")), false}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, c.config) })
	}
}

// FPR-03, FPR-04, FPR-05, FPR-06, FPR-12, FPR-13: each part does what it says beside each other part, and no more.
func TestEveryCombinationOfPartsComparesAsEachPartSays(t *testing.T) {
	for bits := range 16 {
		config := core.FingerprintConfig{JSON: bits&1 != 0, Multipart: bits&2 != 0, SortQuery: bits&4 != 0}
		if bits&8 != 0 {
			config.Headers = []string{"Accept"}
		}
		t.Run(fmt.Sprintf("%+v", config), func(t *testing.T) {
			for _, p := range []pair{
				{asJSON(`{"a":1,"b":2}`), asJSON(`{"b":2,"a":1}`), config.JSON},
				{asForm("one", "x"), asForm("two", "x"), config.Multipart},
				{queried("a=1&b=2"), queried("b=2&a=1"), config.SortQuery},
				{changed(lines("Accept", "a")), changed(lines("Accept", "b")), bits&8 == 0},
				{changed(lines("User-Agent", "a")), changed(lines("User-Agent", "b")), true},
				{asJSON(`{"a":1}`), asJSON(`{"a":2}`), false},
				{asForm("one", "x"), asForm("one", "y"), false},
				{queried("a=1"), queried("a=2"), false},
				{changed(), changed(path("/orders/2")), false},
				{changed(), changed(method("PATCH")), false},
			} {
				p.check(t, config)
			}
		})
	}
}

func v1(_ *core.Request, b []byte) []byte { return bytes.ToLower(b) }
func v2(_ *core.Request, b []byte) []byte { return bytes.ToUpper(b) }

// The algorithms that a process knows of its own accord.
var known = map[string]core.FingerprintConfig{
	"raw":            {},
	"JSON":           {JSON: true},
	"multipart":      {Multipart: true},
	"sorted query":   {SortQuery: true},
	"all three":      {JSON: true, Multipart: true, SortQuery: true},
	"off":            {Off: true},
	"header Accept":  {Headers: []string{"Accept"}},
	"function":       {Func: v1, Version: 1},
	"other function": {Func: v2, Version: 2},
}

// needsPrevious tells whether the record alone does not say how such a fingerprint is made.
func needsPrevious(p core.FingerprintConfig) bool { return p.Func != nil || len(p.Headers) > 0 }

// rollOut is a request whose forms all differ from its text.
func rollOut() core.Request {
	return changed(query("b=2&a=1"), lines("Content-Type", "application/json", "Accept", "text/csv"), body(`{"b": 1, "a": 2}`, nil))
}

// mergesMore tells whether before takes requests for the same that after tells apart, as far as one knows.
func mergesMore(before, after core.FingerprintConfig) bool {
	if after.Off {
		return false
	}
	return before.Off || len(after.Headers) > 0 || after.Func != nil ||
		before.JSON && !after.JSON || before.Multipart && !after.Multipart || before.SortQuery && !after.SortQuery
}

// A record that one config made is found by every other, as far as it can be: FPR-18, not by a weaker one unless Previous names it.
func TestARecordOutlivesAChangeOfTheConfig(t *testing.T) {
	for from, before := range known {
		for to, after := range known {
			t.Run(fmt.Sprint("from ", from, " to ", to), func(t *testing.T) {
				f := newFixture(t, comparing(before))
				f.answered(f.send(rollOut(), made), 201, "made")
				f.heard.take()
				next := f.with(comparing(after))
				if found := next.send(rollOut(), made); from != to && (needsPrevious(before) || mergesMore(before, after)) {
					f.refused(found, 503, "record-unreadable")
					assert.Equal(t, "store-error", f.heard.names())
				} else {
					f.replayed(found, 201, "made")
				}
				after.Previous = &before
				f.replayed(f.with(comparing(after)).send(rollOut(), made), 201, "made")
				f.replayed(f.send(rollOut(), made), 201, "made")
				f.ran(1)
			})
		}
	}
}

func TestAnotherRequestIsRefusedAcrossAChangeOfTheConfig(t *testing.T) {
	for from, before := range known {
		for to, after := range known {
			if before.Off {
				continue // FPR-17: all requests are the same for its records
			}
			t.Run(fmt.Sprint("from ", from, " to ", to), func(t *testing.T) {
				after.Previous = &before
				f := newFixture(t, comparing(before))
				f.send(rollOut(), made)
				other := rollOut()
				body(`{"b": 1, "a": 3}`, nil)(&other)
				f.refused(f.with(comparing(after)).send(other, made), 422, "fingerprint-mismatch")
				f.ran(1)
			})
		}
	}
}

// Records are compared as they were made: what has become the same since is not the same for them.
func TestARecordIsComparedByTheAlgorithmThatMadeIt(t *testing.T) {
	raw, canonical := core.FingerprintConfig{}, core.FingerprintConfig{JSON: true}
	f := newFixture(t, comparing(raw))
	f.send(asJSON(`[1]`), made)
	f.refused(f.with(comparing(canonical)).send(asJSON(`[1 ]`), made), 422, "fingerprint-mismatch")

	f = newFixture(t, comparing(canonical))
	f.send(asJSON(`[1]`), made)
	f.refused(f.with(comparing(raw)).send(asJSON(`[1 ]`), made), 503, "record-unreadable") // FPR-18: raw would tell them apart
	f.refused(f.with(comparing(raw)).send(asJSON(`[2]`), made), 422, "fingerprint-mismatch")
	raw.Previous = &canonical
	f.replayed(f.with(comparing(raw)).send(asJSON(`[1 ]`), made), 201, "made")
}

// everyFingerprint returns a config for each field of FingerprintConfig, one without any, and some with several.
func everyFingerprint(t *testing.T) map[string]core.FingerprintConfig {
	values := map[string]any{"Headers": []string{"Accept"}, "Func": v1, "Version": nil, "Previous": nil} // the last two go with others
	configs := map[string]core.FingerprintConfig{
		"raw": {}, "two": {JSON: true, SortQuery: true}, "JSON, Accept": {JSON: true, Headers: []string{"Accept"}},
		"Content-Type": {Headers: []string{"Content-Type"}}, "Func 2": {Func: v2, Version: 2},
	}
	fields := reflect.TypeFor[core.FingerprintConfig]()
	for i := range fields.NumField() {
		var config core.FingerprintConfig
		name := fields.Field(i).Name
		field := reflect.ValueOf(&config).Elem().Field(i)
		switch value, ok := values[name]; {
		case ok && value == nil:
			continue
		case ok:
			field.Set(reflect.ValueOf(value).Convert(field.Type()))
		default:
			require.Equal(t, reflect.Bool, field.Kind(), "%s is new: say here what it is set to", name)
			field.SetBool(true)
		}
		configs[name] = config
	}
	return configs
}

// FPR-18: whichever two configs share a key, no request gets the answer of another method or path, and none gets the answer of a
// request that its own config tells apart.
func TestNoTwoConfigsReplayTheAnswerOfAnotherRequest(t *testing.T) {
	first := changed(path("/ping"), query("b=2&a=1"), lines("Content-Type", "application/json", "Accept", "text/csv"), body(`{"b": 1, "a": 2}`, nil))
	others := map[string]struct {
		change change
		routes bool // it is another route, so 422 for every config
	}{
		"method":           {method("PATCH"), true},
		"path":             {path("/payments"), true},
		"method and path":  {func(r *core.Request) { r.Method, r.Path = "PATCH", "/payments" }, true},
		"path and body":    {func(r *core.Request) { path("/payments")(r); body(`{"amount": 9}`, nil)(r) }, true},
		"body":             {body(`{"b": 1, "a": 3}`, nil), false},
		"form of the body": {body(`{"a":2,"b":1}`, nil), false},
		"query":            {query("b=2&a=3"), false},
		"order of query":   {query("a=1&b=2"), false},
		"Accept":           {lines("Content-Type", "application/json", "Accept", "text/html"), false},
		"Content-Type":     {lines("Content-Type", "text/plain", "Accept", "text/csv"), false},
	}
	configs := everyFingerprint(t)
	for from, before := range configs {
		for to, after := range configs {
			for which, other := range others {
				t.Run(fmt.Sprint(from, " then ", to, ", other ", which), func(t *testing.T) {
					f := newFixture(t, comparing(before))
					f.answered(f.send(first, made), 201, "made")
					second := first
					other.change(&second)
					next := f.with(comparing(after))
					apart := newFixture(t, comparing(after)) // what after says of the two
					apart.send(first, made)
					isApart := apart.send(second, made).Problem != ""
					result := next.send(second, answers(201, "other"))
					f.ran(1)
					if other.routes {
						f.refused(result, 422, "fingerprint-mismatch")
					} else if isApart && which != "Content-Type" { // the same bytes are the same request
						assert.Contains(t, []string{"fingerprint-mismatch", "record-unreadable"}, result.Problem)
					}
				})
			}
		}
	}
}

// A change while runs are in progress, have failed or have vanished changes nothing about them.
func TestARunOutlivesAChangeOfTheConfig(t *testing.T) {
	canonical := comparing(core.FingerprintConfig{JSON: true})
	t.Run("in progress", func(t *testing.T) {
		f := newFixture(t)
		running := f.hold(ctx, asJSON(`[1]`), made)
		f.refused(f.with(canonical).send(asJSON(`[1]`), made), 409, "in-progress")
		f.refused(f.with(canonical).send(asJSON(`[2]`), made), 422, "fingerprint-mismatch")
		running.finish()
	})
	t.Run("failed", func(t *testing.T) {
		f := newFixture(t)
		var children []string
		child := func(status int) handler {
			return func(ctx context.Context) (*core.Response, error) {
				children = append(children, core.ChildKey(ctx, "charge"))
				return &core.Response{Status: status}, nil
			}
		}
		f.send(asJSON(`[1]`), child(500))
		f.send(asJSON(`[1]`), child(500))
		f.with(canonical).send(asJSON(`[1]`), child(201))
		require.Len(t, children, 3)
		assert.Len(t, slices.Compact(children), 1, "the operation is the same, so are its children")
		f.ran(3)
	})
	inBubble(t, "vanished", func(t *testing.T) {
		f := newFixture(t)
		f.vanish(t)
		assert.True(t, f.with(canonical).runsAgain(request("K", "B")).Takeover)
	})
	inBubble(t, "waited for", func(t *testing.T) {
		f := newFixture(t)
		running := f.hold(ctx, asJSON(`[1]`), made)
		retry := f.with(func(c *core.Config) { canonical(c); waiting(time.Minute)(c) }).later(ctx, asJSON(`[1]`), made)
		running.finish()
		f.replayed((<-retry).Result, 201, "made")
	})
}

// Nothing runs under a record that was made in a way that nobody here knows, whatever state it is in.
func TestAFingerprintOfAnUnknownAlgorithmIsNotRunOrReplayed(t *testing.T) {
	for _, fingerprint := range [][32]byte{
		{0: 0xFF, 31: 1}, {0: 64, 1: 7, 31: 1}, {0: 0, 31: 1}, {0: 64 + 63, 31: 1},
		{0: 128 + 16, 31: 1},     // a route without algorithmBase
		{0: 128 + 64 + 1, 31: 1}, // a route, and a part that goes without
	} {
		f := newFixture(t, beginAnswers(driver.Entry{State: driver.Mismatch, Fingerprint: fingerprint}, nil), func(c *core.Config) { c.DangerouslyFailOpen = true })
		f.refused(f.send(request("K", "B"), made), 503, "record-unreadable")
		f.ran(0)
		events := f.heard.take()
		require.Len(t, events, 1)
		assert.Equal(t, "store-error", events[0].hook)
		assert.ErrorIs(t, events[0].Err, driver.ErrUnreadable)
	}
}

func TestAStoreThatTakesAFingerprintForAnotherHoldsNoRequest(t *testing.T) {
	f := newFixture(t, func(c *core.Config) {
		c.Store = scripted{begin: func(c driver.Claim) (driver.Entry, error) {
			return driver.Entry{State: driver.Mismatch, Fingerprint: c.Fingerprint}, nil
		}}
	})
	f.refused(f.send(request("K", "B"), made), 422, "fingerprint-mismatch")
}
