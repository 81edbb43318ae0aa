package inspect_test

import (
	"context"
	"crypto/rand"
	"errors"
	"html"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/inspect"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/core/storetest"
)

const lease = 30 * time.Second

// hostile is a text that would run a script in a page that does not escape it.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>`

var (
	ctx      = context.Background()
	errTest  = errors.New("test: " + hostile)
	response = "HTTP/1.1 201 Created\r\nLocation: /refunds/7\r\n\r\n{\r\n\"id\": 7}"
)

// site is a page with its engine, and what its audit has seen.
type site struct {
	http.Handler
	t       *testing.T
	engine  *core.Engine
	store   *storetest.Faulty
	audited []operator.Act
	refuses error // of the audit
}

// newSite returns the page of an engine that refuses unknown outcomes. ann acts, unless the options say otherwise.
func newSite(t *testing.T, changes ...func(*inspect.Options)) *site {
	s := &site{t: t, store: storetest.NewFaulty(memstore.New())}
	options := inspect.Options{
		Monitor: inspect.NewMonitor(), Actor: func(*http.Request) string { return "ann" },
		Operator: operator.Config{Audit: func(_ context.Context, act operator.Act) error {
			s.audited = append(s.audited, act)
			return s.refuses
		}},
	}
	for _, change := range changes {
		change(&options)
	}
	cfg := core.Config{Store: s.store, Scope: core.ScopeByAdapter}
	cfg.Lease.Duration, cfg.Lease.OnUnknown = lease, core.RefuseUnknown
	if options.Monitor != nil {
		cfg.Hooks = options.Monitor.Hooks(core.Hooks{})
	}
	var err error
	s.engine, err = core.New(cfg)
	require.NoError(t, err)
	s.Handler, err = inspect.Handler(s.engine, options)
	require.NoError(t, err)
	return s
}

// readOnly makes a page for readers of the same machine.
func readOnly(o *inspect.Options) { o.Actor = nil }

// run sends a request of alice, whose handler is given.
func (s *site) run(key string, handle func(context.Context) (*core.Response, error)) core.Result {
	result, _ := s.engine.Do(ctx, core.Request{
		Method: "POST", Path: "/refunds/" + hostile, Scope: func() string { return "alice" },
		Header: func(name string) []string {
			if name == "Idempotency-Key" {
				return []string{key}
			}
			return nil
		},
		Body: func(int64) ([]byte, error) { return []byte("{}"), nil },
	}, handle)
	return result
}

// respond is a handler that succeeds.
func respond(context.Context) (*core.Response, error) {
	return &core.Response{Status: 201, Body: []byte(hostile)}, nil
}

// failing is a handler with a hostile error.
func failing(context.Context) (*core.Response, error) { return nil, errTest }

// vanish is a handler whose outcome stays unknown, after a step.
func vanish(ctx context.Context) (*core.Response, error) {
	_, _ = core.Step(ctx, "charge", func(context.Context) (string, error) { return "private " + hostile, nil })
	core.Decide(ctx, core.LeaveUnknown)
	return respond(ctx)
}

// answer is what a browser gets.
type answer struct {
	status int
	text   string // without entities
	source string
	header http.Header
}

// send sends a request of this machine.
func (s *site) send(method, path string, form url.Values, change ...func(*http.Request)) answer {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080/idem/"+path, strings.NewReader(form.Encode()))
	r.RemoteAddr = "127.0.0.1:5000"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, change := range change {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	source := w.Body.String()
	assert.NotContains(s.t, source, "<script")
	assert.NotContains(s.t, source, "<img")
	assert.Equal(s.t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(s.t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Equal(s.t, "DENY", w.Header().Get("X-Frame-Options"))
	assert.Contains(s.t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	return answer{w.Code, html.UnescapeString(source), source, w.Header()}
}

// of is the form that names a key of alice.
func of(key string) url.Values { return url.Values{"scope": {"alice"}, "key": {key}} }

// look looks a key up.
func (s *site) look(key string) answer { return s.send("POST", "record", of(key)) }

var hidden = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// confirm asks for an act, and returns the form of the confirm page.
func (s *site) confirm(key, act string) url.Values {
	s.t.Helper()
	form := of(key)
	form.Set("act", act)
	got := s.send("POST", "confirm", form)
	require.Equal(s.t, 200, got.status, got.text)
	form = url.Values{}
	for _, field := range hidden.FindAllStringSubmatch(got.source, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	require.NotEmpty(s.t, form.Get("version"))
	assert.Contains(s.t, got.text, form.Get("version"), "the version is shown")
	form.Set("why", "ticket 7")
	if act == "resolve" {
		form.Set("response", response)
	}
	return form
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestThePageShowsWhatBecameOfAKey(t *testing.T) {
	inBubble(t, "OPR-01", func(t *testing.T) {
		s := newSite(t)
		got := s.look("K")
		assert.Equal(t, 404, got.status)
		assert.Contains(t, got.text, "No record has this name.")
		assert.Contains(t, got.text, "Every name differs under another Secret")
		s.run("K", func(ctx context.Context) (*core.Response, error) {
			assert.Contains(t, s.look("K").text, "a process runs the handler")
			got := s.send("GET", "", nil)
			assert.Contains(t, got.text, "POST /refunds/"+hostile)
			return failing(ctx)
		})
		got = s.look("K")
		assert.Contains(t, got.text, "the run ended without an outcome to store")
		assert.Contains(t, got.text, "handler returned an error")
		s.run("K", vanish)
		time.Sleep(lease + time.Minute)
		got = s.look("K")
		assert.Contains(t, got.text, "a process vanished during the run")
		assert.Contains(t, got.text, "attempt 2")
		assert.Contains(t, got.text, "ended 1m0s ago")
		s.run("L", respond)
		got = s.look("L")
		assert.Contains(t, got.text, "the outcome is stored")
		assert.NotContains(t, got.text, "onerror", "no body")
		name := regexp.MustCompile(`[\w-]{11}\.[\w-]{32}`).FindString(got.text)
		got = s.send("GET", "record?name="+name, nil)
		assert.Contains(t, got.text, "the outcome is stored")
		assert.Contains(t, got.text, "Look it up by them to settle it")
		got = s.send("POST", "record", url.Values{"scope": {"alice"}, "instance": {"urn:idem:" + name[12:]}})
		assert.Contains(t, got.text, "the outcome is stored")
		assert.Equal(t, 404, s.send("POST", "record", url.Values{"scope": {"bob"}, "instance": {"urn:idem:" + name[12:]}}).status)
		assert.Equal(t, 400, s.send("POST", "record", url.Values{"instance": {hostile}}).status)
		assert.Equal(t, 400, s.send("GET", "record?name="+url.QueryEscape(hostile), nil).status)
		assert.Equal(t, 404, s.send("GET", hostileName(), nil).status)
	})
}

// hostileName is a path that no page has.
func hostileName() string { return url.PathEscape(hostile) }

func TestThePageListsUnknownOutcomesOnRequest(t *testing.T) {
	inBubble(t, "OPR-06", func(t *testing.T) {
		s := newSite(t)
		assert.Contains(t, s.send("POST", "unknown", nil).text, "No outcome is unknown.")
		s.run("K", vanish)
		s.run("L", respond)
		time.Sleep(lease)
		got := s.send("POST", "unknown", nil)
		assert.Equal(t, 1, strings.Count(got.source, `<a href="record?name=`))
		for range 120 {
			s.run(rand.Text(), vanish)
		}
		time.Sleep(lease)
		got = s.send("POST", "unknown", nil)
		assert.Equal(t, 100, strings.Count(got.source, `<a href="record?name=`), "a scan has a limit")
		assert.Contains(t, got.text, "there may be more")
		assert.Equal(t, 404, s.send("GET", "unknown", nil).status, "no link and no picture of another site starts a scan")
	})
}

func TestOneScanOrCheckRunsAtATime(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	s := newSite(t, func(o *inspect.Options) {
		o.Check = func(context.Context) ([]driver.Finding, error) {
			entered <- true
			<-leave
			return []driver.Finding{{Setting: "maxmemory-policy", Found: hostile, Why: "records vanish", Fix: "set noeviction"}}, nil
		}
	})
	first := make(chan answer)
	go func() { first <- s.send("POST", "findings", nil) }()
	<-entered
	assert.Equal(t, 429, s.send("POST", "findings", nil).status)
	assert.Equal(t, 429, s.send("POST", "unknown", nil).status)
	close(leave)
	got := <-first
	assert.Equal(t, 200, got.status)
	assert.Contains(t, got.text, "records vanish; set noeviction")
	assert.Equal(t, 404, newSite(t).send("POST", "findings", nil).status, "without a Check")
}

func TestThePageDoesWhatWasConfirmed(t *testing.T) {
	for _, test := range []struct {
		act, says string
		run       func(context.Context) (*core.Response, error)
		replayed  bool
	}{
		{"resolve", "the outcome is stored", vanish, true},
		{"not-done", "Done: It has not happened.", vanish, false},
		{"release", "Done: Free the key.", vanish, false},
		{"release", "Done: Free the key.", failing, false},
		{"forget", "Done: Forget the record.", respond, false},
	} {
		inBubble(t, "OPR-06/"+test.act, func(t *testing.T) {
			s := newSite(t)
			s.run("K", test.run)
			time.Sleep(lease)
			got := s.send("POST", "act", s.confirm("K", test.act))
			assert.Equal(t, 200, got.status, got.text)
			assert.Contains(t, got.text, test.says)
			require.Len(t, s.audited, 1)
			assert.Equal(t, "ann", s.audited[0].Who)
			assert.Equal(t, "ticket 7", s.audited[0].Why)
			assert.Equal(t, "K", s.audited[0].Task.Key)
			ran := false
			retry := s.run("K", func(ctx context.Context) (*core.Response, error) {
				ran = true
				return respond(ctx)
			})
			assert.Equal(t, test.replayed, retry.Replayed)
			assert.Equal(t, !test.replayed, ran)
			if test.replayed {
				assert.Equal(t, "{\n\"id\": 7}", string(retry.Response.Body), "with the line ends that were typed")
				assert.Equal(t, []core.Field{{Name: "Location", Value: "/refunds/7"}}, retry.Response.Header[:1])
			}
		})
	}
}

func TestWhatHasChangedSinceTheConfirmPageIsNotTouched(t *testing.T) {
	for _, act := range []string{"resolve", "not-done", "release", "forget"} {
		inBubble(t, "OPR-04/"+act, func(t *testing.T) {
			s := newSite(t)
			s.run("K", vanish)
			time.Sleep(lease)
			form := s.confirm("K", act)
			require.NoError(t, s.engine.Resolve(ctx, core.Task{Scope: "alice", Key: "K"}, nil))
			s.run("K", func(ctx context.Context) (*core.Response, error) {
				got := s.send("POST", "act", form)
				assert.Equal(t, 409, got.status)
				assert.Contains(t, got.text, "Nothing was changed")
				assert.Contains(t, got.text, "a process runs the handler", "the new state")
				return vanish(ctx)
			})
			time.Sleep(lease)
			got := s.send("POST", "act", form)
			assert.Equal(t, 409, got.status, "it is unknown again, after another run")
			assert.Contains(t, got.text, "a process vanished during the run")
			assert.Empty(t, s.audited)
			assert.Equal(t, "outcome-unknown", s.run("K", respond).Problem)
			assert.Equal(t, 200, s.send("POST", "act", s.confirm("K", act)).status, "what is confirmed anew is done")
		})
	}
}

func TestThePageRefuses(t *testing.T) {
	set := func(name, value string) func(url.Values) { return func(form url.Values) { form.Set(name, value) } }
	for _, test := range []struct {
		sentence string
		change   func(url.Values)
		status   int
		says     string
	}{
		{"an act without a reason", set("why", " "), 400, "Say why"},
		{"a response that is none", set("response", hostile), 400, "The response cannot be read"},
		{"a body that would not be stored", set("response", "HTTP/1.1 200 OK\n\n"+strings.Repeat("b", 1<<20+1)), 400, "Keep.MaxBody"},
		{"an act that does not exist", set("act", hostile), 409, "this cannot be done with it"},
		{"another version", set("version", hostile), 409, "Nothing was changed"},
		{"another state", set("state", "failed"), 409, "Nothing was changed"},
		{"a form without a version", set("version", ""), 409, "Nothing was changed"},
		{"a settlement without a key", set("key", ""), 409, "this cannot be done with it"},
		{"the key of another caller", set("scope", "bob"), 409, "Nothing was changed"},
		{"a form that is too long", set("why", strings.Repeat("w", 4<<20)), 400, "nothing was done"},
	} {
		inBubble(t, "OPR-06/"+test.sentence, func(t *testing.T) {
			s := newSite(t)
			s.run("K", vanish)
			time.Sleep(lease)
			form := s.confirm("K", "resolve")
			test.change(form)
			got := s.send("POST", "act", form)
			assert.Equal(t, test.status, got.status)
			assert.Contains(t, got.text, test.says)
			assert.Empty(t, s.audited)
			assert.Equal(t, "outcome-unknown", s.run("K", respond).Problem, "nothing was changed")
		})
	}
}

func TestNobodyActsWithoutAName(t *testing.T) {
	nobody := func(o *inspect.Options) { o.Actor = func(*http.Request) string { return "" } }
	for _, who := range []func(*inspect.Options){readOnly, nobody} {
		inBubble(t, "OPR-06", func(t *testing.T) {
			named := newSite(t)
			named.run("K", vanish)
			time.Sleep(lease)
			form := named.confirm("K", "not-done")
			s := newSite(t, who)
			s.run("K", vanish)
			time.Sleep(lease)
			got := s.look("K")
			assert.Contains(t, got.text, "What can be done")
			assert.NotContains(t, got.source, `action="confirm"`)
			assert.Contains(t, got.text, "read-only")
			for _, path := range []string{"confirm", "act"} {
				got := s.send("POST", path, form)
				assert.Equal(t, 403, got.status)
				assert.Contains(t, got.text, "read-only for you")
			}
			assert.Equal(t, "outcome-unknown", s.run("K", respond).Problem)
		})
	}
}

func TestAnActorNeedsAnAudit(t *testing.T) {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	_, err = inspect.Handler(engine, inspect.Options{Actor: func(*http.Request) string { return "ann" }})
	assert.ErrorContains(t, err, "an Actor needs Operator.Audit")
}

func TestAPageWithoutAnActorIsForThisMachine(t *testing.T) {
	s := newSite(t, readOnly)
	for _, test := range []struct {
		from, host string
		status     int
	}{
		{"127.0.0.1:5000", "127.0.0.1:8080", 200}, {"[::1]:5000", "[::1]:8080", 200}, {"[::1]:5000", "[::1]", 200},
		{"127.0.0.1:5000", "localhost:8080", 200}, {"127.0.0.1:5000", "localhost", 200},
		{"192.0.2.1:5000", "127.0.0.1:8080", 403}, {"127.0.0.1:5000", "hostile.example:8080", 403}, {"@", "localhost", 403},
		{"127.0.0.1:5000", "localhost.hostile.example", 403}, {"127.0.0.1:5000", "", 403},
	} {
		got := s.send("GET", "", nil, func(r *http.Request) { r.RemoteAddr, r.Host = test.from, test.host })
		assert.Equal(t, test.status, got.status, "OPR-06: %+v", test)
	}
	got := newSite(t).send("GET", "", nil, func(r *http.Request) { r.RemoteAddr, r.Host = "192.0.2.1:1", "ops.example" })
	assert.Equal(t, 200, got.status, "with an Actor, authentication is the mount's")
}

// On Fiber the header of a request is in memory that the next request gets.
func TestTheAuditKeepsTheNameOfTheActor(t *testing.T) {
	inBubble(t, "OPR-06", func(t *testing.T) {
		header := []byte("ann")
		s := newSite(t, func(o *inspect.Options) {
			o.Actor = func(*http.Request) string { return unsafe.String(&header[0], len(header)) }
		})
		s.run("K", vanish)
		time.Sleep(lease)
		require.Equal(t, 200, s.send("POST", "act", s.confirm("K", "not-done")).status)
		copy(header, "bob")
		assert.Equal(t, "ann", s.audited[0].Who)
	})
}

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	inBubble(t, "OPR-06", func(t *testing.T) {
		s := newSite(t)
		s.run("K", vanish)
		time.Sleep(lease)
		form := s.confirm("K", "not-done")
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://hostile.example"} {
			for _, path := range []string{"act", "confirm", "record", "unknown"} {
				got := s.send("POST", path, form, func(r *http.Request) { r.Header.Set(name, value) })
				assert.Equal(t, 403, got.status)
				assert.Contains(t, got.text, "another site")
			}
		}
		assert.Empty(t, s.audited)
		got := s.send("POST", "act", form, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
		assert.Equal(t, 200, got.status)
	})
}

func TestStepsAreHiddenUnlessTheRequestMaySeeThem(t *testing.T) {
	inBubble(t, "OPR-08", func(t *testing.T) {
		s := newSite(t, func(o *inspect.Options) { o.Reveal = func(r *http.Request) bool { return r.Header.Get("May") != "" } })
		s.run("K", vanish)
		time.Sleep(lease)
		got := s.look("K")
		assert.Contains(t, got.text, "charge")
		assert.NotContains(t, got.text, "private")
		got = s.send("POST", "record", of("K"), func(r *http.Request) { r.Header.Set("May", "yes") })
		assert.Contains(t, got.text, "private")
	})
}

func TestTheCauseOfATaskIsEscaped(t *testing.T) {
	s := newSite(t)
	task := core.Task{Kind: "MESSAGE", Scope: hostile, Key: hostile + "\u202e"}
	_, _ = s.engine.DoTask(ctx, task, failing)
	got := s.send("POST", "record", url.Values{"kind": {task.Kind}, "scope": {task.Scope}, "key": {task.Key}})
	assert.Equal(t, 200, got.status)
	assert.Contains(t, got.text, strconv.Quote(errTest.Error()), "OPR-06")
	assert.Equal(t, 3, strings.Count(got.text, "scope\" value=\""+hostile), "in the forms of two acts, and in that which looks up")
}

func TestErrorsOfTheStoreAreSaidInPlainWords(t *testing.T) {
	const nothing, perhaps = "nothing was changed", "The act may have been done all the same: look at the record before you try again."
	for _, test := range []struct {
		sentence, call string
		fault          storetest.Fault
		path, act      string
		says           string
	}{
		{"the store does not respond to a look-up", "look", storetest.Before, "record", "", nothing},
		{"the store hangs in a look-up", "look", storetest.Hang, "record", "", nothing},
		{"the store does not respond to a scan", "scan", storetest.Before, "unknown", "", nothing},
		{"the steps cannot be read", "inspect-steps", storetest.Before, "record", "", nothing},
		{"the store does not respond before an act", "look", storetest.Before, "act", "forget", nothing},
		{"the store is lost during an act", "forget", storetest.After, "act", "forget", perhaps},
		{"the store is lost while an outcome is stored", "complete", storetest.Before, "act", "resolve", perhaps},
	} {
		inBubble(t, "OPR-06/"+test.sentence, func(t *testing.T) {
			s := newSite(t)
			s.run("K", vanish)
			time.Sleep(lease)
			form := of("K")
			if test.act != "" {
				form = s.confirm("K", test.act)
			}
			s.store.Inject(test.call, test.fault, 1)
			got := s.send("POST", test.path, form)
			assert.Contains(t, got.text, test.says)
			assert.NotContains(t, got.text, "Done: ")
		})
	}
}

func TestAScanThatTakesTooLongStops(t *testing.T) {
	inBubble(t, "OPR-06", func(t *testing.T) {
		s, start := newSite(t), time.Now()
		s.store.Inject("scan", storetest.Hang, 1)
		assert.Contains(t, s.send("POST", "unknown", nil).text, "The scan took 10s and has stopped before its end")
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestAnActThatAnotherOneOvertakesIsNotDone(t *testing.T) {
	inBubble(t, "OPR-04", func(t *testing.T) {
		var overtake func()
		s := newSite(t, func(o *inspect.Options) {
			o.Operator.Audit = func(context.Context, operator.Act) error { overtake(); return nil }
		})
		s.run("K", vanish)
		time.Sleep(lease)
		form := s.confirm("K", "release")
		overtake = func() {
			require.NoError(t, s.engine.Resolve(ctx, core.Task{Scope: "alice", Key: "K"}, &core.Response{Status: 204}))
		}
		got := s.send("POST", "act", form)
		assert.Equal(t, 409, got.status, "the record has changed after the page had looked")
		assert.Contains(t, got.text, "Nothing was changed")
		assert.Contains(t, got.text, "the outcome is stored", "the new state")
		assert.True(t, s.run("K", respond).Replayed)
	})
}

func TestThePageSaysThatAnActWasNotAudited(t *testing.T) {
	inBubble(t, "OPR-05", func(t *testing.T) {
		s := newSite(t)
		s.run("K", vanish)
		time.Sleep(lease)
		s.refuses = errTest
		got := s.send("POST", "act", s.confirm("K", "not-done"))
		assert.Equal(t, 503, got.status)
		assert.Contains(t, got.text, "Nothing was changed, because the act could not be audited")
		assert.Equal(t, "outcome-unknown", s.run("K", respond).Problem)
	})
}

func TestThePageDrawsWhatTheHooksHaveCounted(t *testing.T) {
	inBubble(t, "OPR-06", func(t *testing.T) {
		s := newSite(t)
		for range 3 {
			s.run("K", func(ctx context.Context) (*core.Response, error) {
				time.Sleep(2 * time.Second)
				return respond(ctx)
			})
		}
		s.run("L", failing)
		got := s.send("GET", "", nil)
		for _, says := range []string{"kept 1<", "replays 2<", "failed 1<", "No run is in progress in this process."} {
			assert.Contains(t, got.source, says)
		}
		assert.Contains(t, got.source, `<title>2 replays from `)
		assert.Equal(t, 2, strings.Count(got.source, "<title>1 runs</title>"), "of 2 s and of 0 s")
		for _, number := range regexp.MustCompile(`(?:y|height)="(-?\d+)"`).FindAllStringSubmatch(got.source, -1) {
			assert.NotContains(t, number[1], "-")
		}
		time.Sleep(10 * time.Minute)
		assert.NotContains(t, s.send("GET", "", nil).source, "replays from", "it draws ten minutes")
		none := newSite(t, func(o *inspect.Options) { o.Monitor = nil }).send("GET", "", nil)
		assert.Contains(t, none.text, "This page has no Monitor")
	})
}

func TestFormsHaveALimitWhateverTheEngineStores(t *testing.T) {
	cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
	cfg.Keep.MaxBody = math.MaxInt
	engine, err := core.New(cfg)
	require.NoError(t, err)
	page, err := inspect.Handler(engine, inspect.Options{})
	require.NoError(t, err)
	s := &site{Handler: page, t: t}
	assert.Equal(t, 404, s.look("K").status, "the form is read")
	for path, length := range map[string]int{"record": 1 << 17, "act": 1 << 24} {
		got := s.send("POST", path, url.Values{"key": {strings.Repeat("k", length)}})
		assert.Equal(t, 400, got.status)
		assert.Contains(t, got.text, "The form cannot be read")
	}
}

func TestThePageIsSmall(t *testing.T) {
	s := newSite(t)
	length := 0
	for _, path := range []string{"", "style.css"} {
		got := s.send("GET", path, nil)
		require.Equal(t, 200, got.status)
		length += len(got.source)
	}
	assert.Less(t, length, 40<<10)
}
