package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// tab is a page of a browser. It gathers what must not happen.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string
	begun  bool

	mu    sync.Mutex
	wrong []string // requests to elsewhere, reports of the content security policy, errors
}

func open(t *testing.T, w *world) *tab {
	t.Helper()
	exe := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			exe = p
			break
		}
	}
	if exe == "" {
		t.Skip("there is no Chromium here: apt install chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(exe), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-dev-shm-usage", true))
	alloc, stop := chromedp.NewExecAllocator(within(t, 8*time.Minute), opts...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, origin: w.link[:strings.Index(w.link, "/enter")]}
	chromedp.ListenTarget(ctx, b.hears)
	b.do(network.Enable(), log.Enable(), runtime.Enable(), chromedp.Navigate(w.link), chromedp.WaitVisible(`main h1`), chromedp.Poll(`location.pathname == "/"`, nil))
	return b
}

// hears is called for each event of the browser.
func (b *tab) hears(ev any) {
	what := ""
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(ev.Request.URL, b.origin+"/") {
			what = "a request to " + ev.Request.URL
		}
	case *runtime.EventExceptionThrown:
		what = "an exception: " + ev.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.APITypeError || ev.Type == runtime.APITypeWarning {
			what = "on the console: " + string(ev.Args[0].Value)
		}
	case *log.EventEntryAdded:
		if e := ev.Entry; (e.Level == log.LevelError || e.Level == log.LevelWarning) && !strings.Contains(e.Text, "status of 400") { // the view of an error
			what = fmt.Sprintf("%s: %s %s", e.Source, e.Text, e.URL)
		}
	}
	if what != "" {
		b.mu.Lock()
		b.wrong = append(b.wrong, what)
		b.mu.Unlock()
	}
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := b.ctx, context.CancelFunc(func() {})
	if b.begun { // the first call starts the browser, which ends with its context
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
	}
	b.begun = true
	defer cancel()
	require.NoError(b.t, chromedp.Run(ctx, actions...))
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin+path), chromedp.WaitReady(`footer`))
}

func (b *tab) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.wrong)
}

// shape is a size of the window and a colour scheme.
type shape struct {
	width, height int64
	scheme        string
}

func (b *tab) as(s shape) {
	b.t.Helper()
	b.do(emulation.SetDeviceMetricsOverride(s.width, s.height, 1, s.width < 500),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}}))
}

var shapes = []shape{{360, 780, "light"}, {360, 780, "dark"}, {1280, 900, "light"}, {1280, 900, "dark"}, {1920, 1080, "light"}, {1920, 1080, "dark"}}

// Every view: nothing is asked of elsewhere, nothing is reported, nothing is wider than the window, and axe-core finds nothing. With
// CTXPAGE_PICTURES it keeps pictures there.
func TestViewsInABrowser(t *testing.T) {
	w := newWorld(t, "--write")
	b := open(t, w)
	axe := axeSource(t)
	for _, p := range w.views() {
		b.visit(p.path)
		for _, s := range shapes {
			b.as(s)
			where := fmt.Sprintf("%s at %d %s", p.name, s.width, s.scheme)
			var wide bool
			b.do(chromedp.Evaluate(`document.documentElement.scrollWidth > window.innerWidth`, &wide))
			require.False(t, wide, "%s is wider than the window", where)
			if axe != "" && s.width != 1920 && (s.width != 360 || s.scheme == "light") {
				var found string
				b.do(chromedp.Evaluate(axe, nil), chromedp.Evaluate(`axe.run(document).then(r => JSON.stringify(r.violations.map(v => [v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + n.failureSummary.slice(0, 200))])))`, &found,
					func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
				require.JSONEq(t, "[]", found, where)
			}
			if dir := os.Getenv("CTXPAGE_PICTURES"); dir != "" {
				var png []byte
				b.do(chromedp.CaptureScreenshot(&png))
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", p.name, s.width, s.scheme)), png, 0o644))
			}
		}
	}
	b.clean()
}

// README's two pictures are made by: CTXPAGE_README=../../docs go test -run TestPicturesOfReadme .
func TestPicturesOfReadme(t *testing.T) {
	dir := os.Getenv("CTXPAGE_README")
	if dir == "" {
		t.Skip("it makes the pictures of README.md: CTXPAGE_README names their folder")
	}
	w := newWorld(t)
	b := open(t, w)
	b.as(shape{1180, 720, "light"})
	for name, path := range map[string]string{"ui-context": "/context?trace=" + w.second, "ui-session": "/session?turn=200&id=monday&scope=" + strings.ReplaceAll(scopeName, "/", "%2F")} {
		b.visit(path)
		var png []byte
		b.do(chromedp.CaptureScreenshot(&png))
		require.LessOrEqual(t, len(png), 150_000, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
	}
}

// axeSource is axe-core, which the caller fetched; "": it is not there, and the rules of accessibility are not checked.
func axeSource(t *testing.T) string {
	path := os.Getenv("CTXPAGE_AXE")
	if path == "" {
		t.Log("CTXPAGE_AXE names no axe.min.js of the npm package axe-core: accessibility is not checked")
		return ""
	}
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(src)
}

// The control of the test above: what it looks for is found.
func TestWrongsAreSeen(t *testing.T) {
	b := open(t, newWorld(t))
	var done bool
	b.do(chromedp.Evaluate(`const i = new Image(); const p = new Promise(r => { i.onerror = () => r(true); }); i.src = "http://127.0.0.1:1/x.png"; p`, &done,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	b.do(chromedp.Evaluate(`document.body.setAttribute("style", "color:red"); console.error("wrong"); 1`, nil))
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		all := strings.Join(b.wrong, "\n")
		return strings.Contains(all, "Content Security Policy") && strings.Contains(all, "wrong")
	}, time.Minute, 10*time.Millisecond)
	axe := axeSource(t)
	if axe == "" {
		return
	}
	var found string
	b.do(chromedp.Evaluate(`document.querySelector("main").insertAdjacentHTML("beforeend", "<input>"); 1`, nil), chromedp.Evaluate(axe, nil),
		chromedp.Evaluate(`axe.run(document).then(r => JSON.stringify(r.violations.map(v => v.id)))`, &found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var ids []string
	require.NoError(t, json.Unmarshal([]byte(found), &ids))
	require.Contains(t, ids, "label")
}

// Every view is whole without JavaScript.
func TestWithoutJavaScript(t *testing.T) {
	w := newWorld(t)
	b := open(t, w)
	b.do(emulation.SetScriptExecutionDisabled(true))
	for _, p := range w.views() {
		b.visit(p.path)
		var title string
		b.do(chromedp.Text(`main h1`, &title))
		require.NotEmpty(t, title, p.name)
	}
	b.clean()
}

// keys counts what a person presses to activate something.
type keys struct {
	*tab
	pressed int
}

// press moves the focus by Tab to the first link or button whose text or label matches, and presses Enter there.
func (k *keys) press(pattern string) {
	k.t.Helper()
	k.focus(pattern)
	k.pressed++
	var marked bool
	k.do(chromedp.Evaluate(`document.documentElement.dataset.seen = "1"; true`, &marked), chromedp.KeyEvent(kb.Enter))
	require.Eventually(k.t, func() bool { // while the page changes there is none to ask
		var done bool
		err := chromedp.Run(k.ctx, chromedp.Evaluate(`document.documentElement.dataset.seen === undefined && document.readyState === "complete" && !!document.querySelector("footer")`, &done))
		return err == nil && done
	}, time.Minute, 20*time.Millisecond, pattern)
}

func (k *keys) focus(pattern string) {
	k.t.Helper()
	want := regexp.MustCompile(pattern)
	var seen []string
	for range 400 {
		var text string
		k.do(chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`(e => (e.innerText || "") + " " + (e.labels && e.labels[0] ? e.labels[0].innerText : "") + " " + (e.getAttribute("href") || ""))(document.activeElement)`, &text))
		text = strings.Join(strings.Fields(text), " ")
		if want.MatchString(text) {
			return
		}
		seen = append(seen, text)
	}
	require.Fail(k.t, "the keyboard does not reach "+pattern, strings.Join(seen[:min(len(seen), 60)], "\n"))
}

func (k *keys) shows(want string) {
	k.t.Helper()
	var text string
	k.do(chromedp.Text(`main`, &text))
	require.Contains(k.t, strings.Join(strings.Fields(text), " "), want)
}

// The tasks of docs/ui.md, by keyboard alone, with the greatest number of activations.
func TestTasksByKeyboard(t *testing.T) {
	w := newWorld(t, "--write")
	b := open(t, w)
	b.as(shapes[2])
	task := func(name string, most int, do func(k *keys)) {
		t.Run(name, func(t *testing.T) {
			b.t = t
			k := &keys{tab: b}
			do(k)
			t.Logf("%d activations, at most %d", k.pressed, most)
			require.LessOrEqual(t, k.pressed, most)
		})
	}
	toContext := func(k *keys) {
		k.press(`^Sessions`)
		k.press(`^monday`)
		k.press(`^context .*` + w.second)
	}
	b.visit("/")
	task("from a wrong answer to its context", 3, func(k *keys) {
		toContext(k)
		k.shows("What is the limit of refunds without approval")
	})
	task("why a document was not in it", 2, func(k *keys) {
		k.focus(`Why is this page in it`)
		k.do(chromedp.KeyEvent("answer-2"))
		k.press(`^Explain`)
		k.shows("is not in the context")
	})
	b.visit("/")
	task("what changed since the last good context", 3, func(k *keys) {
		k.press(`^What is the limit.*` + w.second)
		k.press(`^what changed since.*a=` + w.first)
		k.shows("refund-limit#1@2")
	})
	b.visit("/")
	task("approve one of three, knowing what it replaces", 3, func(k *keys) {
		k.press(`^Review`)
		k.press(w.held[0])
		k.shows("Replaces " + scopeName + ":refund-limit@2")
		k.focus(`Your name`)
		k.do(chromedp.KeyEvent("ann"))
		k.focus(`approve although`)
		k.do(chromedp.KeyEvent(" "))
		k.press(`^Approve`)
		k.shows("It was approved by ann.")
		v, err := w.db.Scope(scopeName).Get(t.Context(), "refund-limit")
		require.NoError(t, err)
		require.Contains(t, v.Text, "$900")
	})
	b.visit("/")
	task("how full the window was at turn 200", 2, func(k *keys) {
		k.press(`^Sessions`)
		k.press(`^monday`)
		var row string
		k.do(chromedp.Text(`#turn-200`, &row))
		require.Regexp(t, `[0-9]+\.[0-9] %`, row)
	})
	b.visit("/")
	task("which pages of a user are stale", 3, func(k *keys) {
		k.press(`^Browse`)
		k.press(`^stale pages.*scope=acme%2Fsupport$`)
		k.shows("policy-1.md")
		k.shows("Changed since they were loaded")
	})
	b.t = t
	b.clean()
}

// What the other process does appears by itself, can be held back, and is not lost with the connection.
func TestLiveInABrowser(t *testing.T) {
	w := newWorld(t)
	b := open(t, w)
	s := w.db.Scope("live", ctxpage.WithActor("agent"))
	ask := func(text string) {
		_, err := s.Assemble(t.Context(), ctxpage.Query{Text: text, Budget: 300})
		require.NoError(t, err)
	}
	has := func(text string) chromedp.Action {
		return chromedp.Poll(fmt.Sprintf(`document.querySelector("#events") && document.querySelector("#events").innerText.includes(%q)`, text), nil, chromedp.WithPollingTimeout(time.Minute))
	}
	says := func(text string) chromedp.Action {
		return chromedp.Poll(fmt.Sprintf(`document.querySelector("#state").innerText.includes(%q)`, text), nil, chromedp.WithPollingTimeout(time.Minute))
	}
	b.do(says("Live"))
	ask("the first question <b>bold</b>")
	b.do(has("the first question <b>bold</b>"))
	b.do(chromedp.Click(`#pause`), says("Paused"))
	ask("while it is paused")
	b.do(says("1 newer"))
	var shown bool
	b.do(chromedp.Evaluate(`document.querySelector("#events") && document.querySelector("#events").innerText.includes("while it is paused")`, &shown))
	require.False(t, shown)
	b.do(chromedp.Click(`#pause`), has("while it is paused"), says("Live"))
	b.clean()
}
