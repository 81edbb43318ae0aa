// Package inspect is a page for the people who run a service: one http.Handler for any mux. It shows what the process does, finds
// records by scope and key, lists unknown outcomes, and lets operators settle and forget what is stuck. The page works without
// JavaScript.
//
//	monitor := inspect.NewMonitor()
//	cfg.Hooks = monitor.Hooks(cfg.Hooks) // before core.New
//	page, err := inspect.Handler(engine, inspect.Options{Monitor: monitor})
//	mux.Handle("/idem/", page) // any path that ends with a slash
//
// The page shows no outcomes, since operators do not read them from a store. It shows no scope and no key of a request but those
// that its reader has typed. They are in no URL, and so in no log of URLs.
package inspect

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// Options say who may do what. With the zero value the page is read-only, and only for requests of this machine.
type Options struct {
	// Actor returns who sends the request, such as the user that authentication has put into its context. It goes to the audit as
	// By.Who of each act. "" makes the page read-only for this request.
	//
	// Without an Actor the page is read-only, and is refused with 403 unless the request comes from a loopback address and its
	// Host is one. A proxy on the same machine can pass requests of others on, so it must ask for a password, or leave the page
	// out. With an Actor the page is for every request that reaches it, so authentication must run before it.
	Actor func(*http.Request) string

	// Reveal reports whether the request may see the results of steps. Default: no request may.
	Reveal func(*http.Request) bool

	// Operator has the audit, which an Actor requires.
	Operator operator.Config

	// Monitor has what runs in this process, and the counts of its results. Without it the page shows neither.
	Monitor *Monitor

	// Check finds settings of the server that can lose records, such as redisstore.Check with its client. It is called when
	// somebody asks for it.
	Check func(context.Context) ([]driver.Finding, error)
}

const (
	callTimeout = 10 * time.Second // of all calls of the store for one request
	mostListed  = 100              // how many unknown outcomes a scan shows
	formRoom    = 64 << 10         // bytes of a form besides a response

	longestTyped = 4 << 20 // bytes of the longest response that a form can have, whatever Keep.MaxBody is
)

//go:embed page.html style.css
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"name": nameOf, "rounded": rounded, "utc": utc,
}).ParseFS(assets, "page.html"))

// page is the handler. Everything but busy is set by Handler and only read afterwards. A scan or a check holds busy while it
// runs. routes has the functions by the method and the last element of the path.
type page struct {
	Options
	operator *operator.Operator
	store    driver.Inspector
	longest  int // the longest body of a response that the engine stores
	busy     sync.Mutex
	routes   map[string]func(*http.Request) *view
}

// view is what one template shows. Each template reads the fields that its page has set; the others are zero.
type view struct {
	status   int
	template string

	Title    string
	Problem  string // why the page does not show what was asked for, or did not do it
	Done     string // what was done
	Actor    string // "" if the page is read-only
	CanCheck bool

	Live     *live
	Task     core.Task
	Found    *driver.Record
	Cause    string
	Steps    []operator.Step
	Revealed bool
	Choices  []*act
	Act      *act
	Why      string // as it was sent, when an act was refused
	Response string // as it was sent

	Listed   []driver.Record
	IsListed bool // a scan has ended
	Findings []driver.Finding
	Checked  bool
}

// Handler returns the page of an engine, which has the configuration of the service. Its error wraps [errors.ErrUnsupported] if
// the store is no [driver.Inspector].
//
// Three things happen before the function of a route runs: the response gets its security headers, a page without an Actor
// refuses strangers, and a form that another site has sent is refused. The functions below rely on that.
func Handler(engine *core.Engine, options Options) (http.Handler, error) {
	if options.Actor != nil && options.Operator.Audit == nil {
		return nil, errors.New("idem: inspect.Handler: an Actor needs Operator.Audit, so that each act is known")
	}
	if audit := options.Operator.Audit; audit != nil {
		options.Operator.Audit = func(ctx context.Context, act operator.Act) error {
			if err := audit(ctx, act); err != nil {
				return &auditError{err}
			}
			return nil
		}
	}
	ops, err := operator.New(engine, options.Operator)
	if err != nil {
		return nil, fmt.Errorf("idem: inspect.Handler: %w", err)
	}
	cfg := engine.Config()
	p := &page{Options: options, operator: ops, store: cfg.Store.(driver.Inspector), longest: cfg.Keep.MaxBody}
	p.routes = map[string]func(*http.Request) *view{
		"GET ": p.home, "GET record": p.named, "POST record": p.record, "POST unknown": p.unknown, "POST findings": p.findings,
		"POST confirm": p.confirm, "POST act": p.act,
	}
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.render(w, r, refusal(http.StatusForbidden, "This form was sent by another site, so nothing was done."))
	}))
	guarded := guard.Handler(http.HandlerFunc(p.serve))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeader(w.Header())
		if p.Actor == nil && !isLocal(r) {
			p.render(w, r, refusal(http.StatusForbidden, "Without Options.Actor this page is only for requests of this machine."))
			return
		}
		guarded.ServeHTTP(w, r)
	}), nil
}

// setHeader sets what all responses have in common: browsers run no script, show the page in no frame, and keep no copy.
func setHeader(h http.Header) {
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// isLocal reports whether a request comes from this machine, and is for it. The Host of a browser that a hostile name server has
// sent here is the name of the hostile site, so the address of the client alone would not do.
func isLocal(r *http.Request) bool {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	host := r.Host
	if name, _, isPair := net.SplitHostPort(r.Host); isPair == nil {
		host = name
	}
	return err == nil && isLoopback(from) && (host == "localhost" || isLoopback(strings.Trim(host, "[]")))
}

// isLoopback reports whether a text is an address of this machine alone.
func isLoopback(text string) bool {
	ip := net.ParseIP(text)
	return ip != nil && ip.IsLoopback()
}

// serve finds the function for the last element of the path, so that the page can be mounted under any path. It reads the form
// and bounds the time of all calls of the store, so the functions get a request that is ready.
func (p *page) serve(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if method == http.MethodGet && name == "style.css" {
		http.ServeFileFS(w, r, assets, "style.css")
		return
	}
	show, ok := p.routes[method+" "+name]
	if !ok {
		p.render(w, r, refusal(http.StatusNotFound, "There is no such page."))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, p.formLimit(name))
	if err := r.ParseForm(); err != nil {
		p.render(w, r, refusal(http.StatusBadRequest, "The form cannot be read, so nothing was done: "+err.Error()))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	p.render(w, r, show(r.WithContext(ctx)))
}

// formLimit returns how long the form of a page may be. The form of an act can have a response, of which each byte can take
// three, because forms are percent-encoded.
func (p *page) formLimit(name string) int64 {
	if name != "act" {
		return formRoom
	}
	return formRoom + 3*int64(min(p.longest, longestTyped))
}

// refusal is a page with a problem alone.
func refusal(status int, problem string) *view {
	return &view{status: status, template: "message", Title: "Not done", Problem: problem}
}

// render sends a page. It runs the template into memory first: an error of the template then still gets a status of its own.
func (p *page) render(w http.ResponseWriter, r *http.Request, v *view) {
	v.Actor, v.CanCheck = p.actor(r), p.Check != nil
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, v.template, v); err != nil {
		http.Error(w, "The page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(v.status)
	_, _ = w.Write(out.Bytes()) // An error means that the browser has left.
}

// actor returns who may act by this request, or "". It returns a copy for the audit, since a header of Fiber is in memory that
// the next request gets.
func (p *page) actor(r *http.Request) string {
	if p.Actor == nil {
		return ""
	}
	return strings.Clone(p.Actor(r))
}

// home shows this process.
func (p *page) home(*http.Request) *view {
	v := &view{status: http.StatusOK, template: "home", Title: "This process"}
	if p.Monitor != nil {
		v.Live = p.Monitor.live()
	}
	return v
}

// unknown lists unknown outcomes. One scan runs at a time, because a scan reads all records of the store. A scan that runs out of
// time shows what it has found so far.
func (p *page) unknown(r *http.Request) *view {
	if !p.busy.TryLock() {
		return refusal(http.StatusTooManyRequests, "Another scan or check is in progress. Wait for its end.")
	}
	defer p.busy.Unlock()
	v := &view{status: http.StatusOK, template: "unknown", Title: "Unknown outcomes"}
	err := p.operator.Scan(r.Context(), operator.Filter{States: []driver.State{driver.Unknown}}, func(seen driver.Record) bool {
		v.Listed = append(v.Listed, seen)
		return len(v.Listed) < mostListed
	})
	v.IsListed = err == nil
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		v.Problem = fmt.Sprintf("The scan took %s and has stopped before its end: idem ls takes the time that it needs.", callTimeout)
	case err != nil:
		v.status, v.Problem = http.StatusServiceUnavailable, unreached(err)
	case len(v.Listed) == mostListed:
		v.Problem = fmt.Sprintf("These are the first %d; there may be more.", mostListed)
	}
	return v
}

// findings shows what the check has found. It shares the lock of unknown, so that no reader can make the server do both at once.
func (p *page) findings(r *http.Request) *view {
	if p.Check == nil {
		return refusal(http.StatusNotFound, "There is no such page.")
	}
	if !p.busy.TryLock() {
		return refusal(http.StatusTooManyRequests, "Another scan or check is in progress. Wait for its end.")
	}
	defer p.busy.Unlock()
	v := &view{status: http.StatusOK, template: "findings", Title: "Settings of the server"}
	found, err := p.Check(r.Context())
	v.Findings, v.Checked = found, err == nil
	if err != nil {
		v.status, v.Problem = http.StatusServiceUnavailable, unreached(err)
	}
	return v
}

// unreached says what an error of the store means for somebody who wanted to look.
func unreached(err error) string {
	return "The store does not respond, or refuses; nothing was changed: " + err.Error()
}

// nameOf returns the text form of a record's name.
func nameOf(seen driver.Record) string { return string(driver.AppendRecordName(nil, seen.Name)) }

// utc returns a time as people read it.
func utc(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// rounded returns a duration as people read it, without its sign.
func rounded(d time.Duration) string {
	if d = d.Abs(); d >= time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
