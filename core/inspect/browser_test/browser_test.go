// Package browser_test uses the page of package inspect with a real browser, Debian's chromium. It is a module of its own, so that
// nobody else needs the driver of the browser.
package browser_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"image"
	"image/color/palette"
	"image/draw"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/inspect"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/internal/needs"
	"github.com/go-idem/idem/internal/redistest"
)

var update = flag.Bool("update", false, "write the pictures of docs/")

const (
	lease  = time.Second
	narrow = 360 // pixels: the width of a small phone

	// hostile would open a dialog in a page that does not escape it.
	hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
)

var (
	task     = core.Task{Kind: "refund", Scope: "alice", Key: "8e03978e-40d5"}
	response = "HTTP/1.1 201 Created\n\n{\"id\": 7}"
)

// site serves the page of an engine.
type site struct {
	t       *testing.T
	engine  *core.Engine
	url     string
	audited atomic.Pointer[operator.Act]
}

// newSite serves a page on which ann acts, or nobody.
func newSite(t *testing.T, who string) *site {
	t.Helper()
	s, monitor := &site{t: t}, inspect.NewMonitor()
	cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: monitor.Hooks(core.Hooks{})}
	cfg.Lease.Duration, cfg.Lease.OnUnknown = lease, core.RefuseUnknown
	var err error
	s.engine, err = core.New(cfg)
	require.NoError(t, err)
	options := inspect.Options{Monitor: monitor, Operator: operator.Config{
		Audit: func(_ context.Context, act operator.Act) error { s.audited.Store(&act); return nil },
	}}
	if who != "" {
		options.Actor = func(*http.Request) string { return who }
	}
	handler, err := inspect.Handler(s.engine, options)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.url = server.URL + "/"
	return s
}

// vanish makes the outcome of a task unknown, and waits for the end of its lease.
func (s *site) vanish(which core.Task) {
	s.t.Helper()
	s.run(which, func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown)
		return &core.Response{Status: 201}, nil
	})
	ops, err := operator.New(s.engine, operator.Config{})
	require.NoError(s.t, err)
	redistest.Eventually(s.t, "the outcome is unknown", func() bool {
		seen, err := ops.Look(context.Background(), which)
		return err == nil && seen.State == driver.Unknown
	})
}

// run runs a task, and returns its result.
func (s *site) run(which core.Task, handle func(context.Context) (*core.Response, error)) core.Result {
	result, _ := s.engine.DoTask(context.Background(), which, handle)
	return result
}

// browser is one tab.
type browser struct {
	context.Context
	t       *testing.T
	dialogs atomic.Int32
}

// shared is the browser of all tests, since the start of one takes seconds.
var shared struct {
	once sync.Once
	context.Context
	err  error
	stop context.CancelFunc
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}

// startBrowser starts the shared browser. A root user, as in containers, needs NoSandbox.
func startBrowser(path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	shared.stop = stop
	shared.Context, _ = chromedp.NewContext(ctx)
	shared.err = chromedp.Do(shared.Context)
}

// newBrowser opens a tab whose window is narrow. Scripts run only where hostile ones are looked for.
func newBrowser(t *testing.T, scripts bool) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		needs.Missing(t, "NO CHROMIUM: this test needs it on the PATH (Debian: apt-get install chromium)")
	}
	shared.once.Do(func() { startBrowser(path) })
	require.NoError(t, shared.err)
	ctx, stopTab := chromedp.NewContext(shared.Context)
	t.Cleanup(stopTab)
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(narrow, 740))) // A timeout must not end the first call of a tab.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	b := &browser{Context: ctx, t: t}
	_, err = chromedp.Call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !scripts})
	require.NoError(t, err)
	dialogs := chromedp.Events(b, page.JavascriptDialogOpening)
	go func() {
		for _, err := range dialogs {
			if err != nil {
				return
			}
			b.dialogs.Add(1)
		}
	}()
	return b
}

// do does these actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b, actions...))
}

// get returns what an action finds.
func get[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	found, err := chromedp.Run(b, action)
	require.NoError(b.t, err)
	return found
}

// fill replaces the text of a field.
func fill(name, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SetValue(chromedp.CSS(`main [name="`+name+`"]:not([type=hidden])`), text)
}

// press presses the button of a form, and waits for the page that follows.
func (b *browser) press(form string) {
	b.t.Helper()
	_, err := chromedp.RunResponse(b, chromedp.Click(chromedp.CSS(form+" button")))
	require.NoError(b.t, err)
}

// text returns what the page shows. Nothing on it is wider than the window, and no text of others has become an element.
func (b *browser) text() string {
	b.t.Helper()
	text, width := get(b, chromedp.Text(chromedp.CSS("body"))), get(b, chromedp.Evaluate[int](`document.documentElement.scrollWidth`))
	assert.LessOrEqual(b.t, width, narrow, "the page must not scroll sideways: %s", text)
	assert.Zero(b.t, get(b, chromedp.Evaluate[int](`document.querySelectorAll("script, img, [onerror]").length`)))
	return text
}

// lookUp looks a task up by the form.
func (b *browser) lookUp(s *site, which core.Task) string {
	b.t.Helper()
	b.do(chromedp.Navigate(s.url), fill("scope", which.Scope), fill("key", which.Key), fill("kind", which.Kind))
	b.press(`form[action="record"]`)
	return b.text()
}

// confirm opens the confirm page of an act on the page of a record.
func (b *browser) confirm(act string) string {
	b.t.Helper()
	b.press(`form:has([value="` + act + `"])`)
	return b.text()
}

// picture writes what the page shows to docs/, with -update.
func (b *browser) picture(name string) {
	b.t.Helper()
	if !*update {
		return
	}
	shot, err := png.Decode(bytes.NewReader(get(b, chromedp.FullScreenshot(100))))
	require.NoError(b.t, err)
	small := image.NewPaletted(shot.Bounds(), palette.Plan9) // a third of the bytes
	draw.Draw(small, small.Rect, shot, shot.Bounds().Min, draw.Src)
	var file bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, small))
	require.NoError(b.t, os.WriteFile("../../../docs/"+name, file.Bytes(), 0o644))
}

func TestAnOperatorSettlesAnOutcomeWithoutScripts(t *testing.T) {
	t.Parallel()
	s, b := newSite(t, "ann"), newBrowser(t, false)
	s.vanish(task)
	for _, key := range []string{"K", "L", "K"} {
		s.run(core.Task{Kind: "refund", Scope: "alice", Key: key}, func(context.Context) (*core.Response, error) {
			return &core.Response{Status: 201}, nil
		})
	}
	b.do(chromedp.Navigate(s.url))
	b.text()
	b.picture("page-home.png")
	b.press(`form[action="unknown"]`)
	assert.Contains(t, b.text(), "ago", "one outcome is listed")
	assert.Contains(t, b.lookUp(s, task), "a process vanished during the run")
	b.picture("page-record.png")
	assert.Contains(t, b.confirm("resolve"), "The audit names you as ann")
	b.do(fill("response", response), fill("why", "ticket 4711"))
	b.press(`form[action="act"]`)
	assert.Contains(t, b.text(), "the outcome is stored")
	retry := s.run(task, func(context.Context) (*core.Response, error) { return nil, io.EOF })
	assert.True(t, retry.Replayed, "OPR-06")
	assert.Equal(t, `{"id": 7}`, string(retry.Response.Body))
	assert.Equal(t, "ticket 4711", s.audited.Load().Why)
}

func TestARetryThatOvertakesTheConfirmPageIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, b := newSite(t, "ann"), newBrowser(t, false)
	s.vanish(task)
	b.lookUp(s, task)
	b.confirm("not-done")
	b.do(fill("why", "ticket 4711"))
	require.NoError(t, s.engine.Resolve(b, task, nil))
	s.run(task, func(context.Context) (*core.Response, error) {
		b.press(`form[action="act"]`)
		text := b.text()
		assert.Contains(t, text, "Nothing was changed", "OPR-04")
		assert.Contains(t, text, "a process runs the handler")
		return &core.Response{Status: 201}, nil
	})
	assert.Nil(t, s.audited.Load())
}

func TestHostileTextRunsNoScript(t *testing.T) {
	t.Parallel()
	s, b := newSite(t, "ann"), newBrowser(t, true)
	bad := core.Task{Kind: "refund", Scope: hostile, Key: hostile}
	s.run(bad, func(ctx context.Context) (*core.Response, error) {
		b.do(chromedp.Navigate(s.url))
		assert.Contains(t, b.text(), hostile, "OPR-06: what runs here now")
		return nil, errors.New(hostile)
	})
	text := b.lookUp(s, bad)
	assert.Equal(t, 3, strings.Count(text, hostile), "scope, key and cause")
	assert.Contains(t, b.confirm("forget"), hostile)
	bad.Key = "K"
	s.vanish(bad)
	b.lookUp(s, bad)
	b.confirm("resolve")
	b.do(fill("response", hostile), fill("why", hostile))
	b.press(`form[action="act"]`)
	assert.Contains(t, b.text(), "The response cannot be read", "it is shown again, as it was typed")
	assert.Zero(t, b.dialogs.Load())
}

func TestTheFormOfAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	s, b := newSite(t, "ann"), newBrowser(t, true)
	s.vanish(task)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<main><form method="post" action="`+s.url+`unknown"><button>win a prize</button></form></main>`)
	}))
	t.Cleanup(other.Close)
	b.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	b.press("form")
	assert.Contains(t, b.text(), "This form was sent by another site", "OPR-06")
}

func TestWithoutAnActorThereIsNothingToPress(t *testing.T) {
	t.Parallel()
	s, b := newSite(t, ""), newBrowser(t, false)
	s.vanish(task)
	text := b.lookUp(s, task)
	assert.Contains(t, text, "read-only", "OPR-06")
	assert.Zero(t, get(b, chromedp.Evaluate[int](`document.querySelectorAll('form[action="confirm"], form[action="act"]').length`)))
}
