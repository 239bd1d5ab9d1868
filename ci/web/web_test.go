// Package web has the tests of the page of 'trapeze web' in a browser, headless Chromium. It is a
// module of its own, so that no other needs chromedp.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// screenshots is the folder for pictures of the page, such as those of the documentation.
var screenshots = flag.String("screenshots", "", "folder to put pictures of the page into")

// timeout ends tests that do not end by themselves: CI machines are busy.
const timeout = 3 * time.Minute

// trapeze is the program under test.
var trapeze string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trapeze-web-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	trapeze = filepath.Join(dir, "trapeze")
	// Without its profile: other tests have compiled its packages so.
	build := exec.Command("go", "build", "-buildvcs=false", "-pgo=off", "-o", trapeze, "./cmd/trapeze")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// start runs trapeze with args, among programs that show their NICs in a folder of the test's own. It
// returns its output, and what ends it with a signal and waits.
func start(t *testing.T, folder string, args ...string) (stdout io.Reader, pid int, end func(syscall.Signal) error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), trapeze, args...)
	cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+folder, "TRAPEZE_TELEMETRY=web", "TRAPEZE_LATENCY=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = wait()
	})
	return stdout, cmd.Process.Pid, func(s syscall.Signal) error {
		return errors.Join(cmd.Process.Signal(s), wait())
	}
}

// browser is a tab of Chromium. problems lists what it has complained about.
type browser struct {
	context.Context
	mu  sync.Mutex
	bad []string
}

func (b *browser) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bad
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("TRAPEZE_REQUIRE_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip("chromium is missing: on Debian, apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(timeout))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses root otherwise
	}
	limited, cancel := context.WithTimeout(t.Context(), timeout)
	allocated, stop := chromedp.NewExecAllocator(limited, options...)
	tab, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(func() { closeTab(); stop(); cancel() })
	b := &browser{Context: tab}
	if err := chromedp.Listen(tab, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.bad = append(b.bad, e.ExceptionDetails.Exception.Description)
		case *log.EventEntryAdded:
			b.bad = append(b.bad, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		case *runtime.EventConsoleAPICalled:
			b.bad = append(b.bad, fmt.Sprintf("console.%s", e.Type))
		}
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

// command is a command of Chromium's protocol.
func command[P, R any](c cdp.Command[P, R], parameters P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, parameters)
		return err
	})
}

// do runs actions, of which a failure ends the test.
func (b *browser) do(t *testing.T, what string, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b, actions...); err != nil {
		t.Fatalf("%s: %v; the console has %q", what, err, b.problems())
	}
}

// value is that of an expression of JavaScript.
func value[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v; the console has %q", expression, err, b.problems())
	}
	return v
}

// until waits for an expression to be true.
func (b *browser) until(t *testing.T, what, expression string) {
	t.Helper()
	for n := 0; !value[bool](t, b, expression); n++ {
		if n%200 == 199 { // some 10 s: say what there is instead
			t.Logf("%s: %s", what, value[string](t, b, "[$('state').textContent, source?.readyState, Date.now() - heard, document.body.innerText].join(' ').slice(0, 700)"))
		}
		select {
		case <-b.Done():
			t.Fatalf("%s: %v; the console has %q", what, b.Err(), b.problems())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// click presses what an expression stands for.
func (b *browser) click(t *testing.T, expression string) {
	t.Helper()
	value[bool](t, b, "("+expression+".click(), true)")
}

// serve starts the page, and returns its address.
func serve(t *testing.T, folder string) (url string, pid int, end func(syscall.Signal) error) {
	t.Helper()
	stdout, pid, end := start(t, folder, "web", "--listen", "127.0.0.1:0", "--interval", "200ms", "--json")
	var report struct{ URL string }
	if err := json.NewDecoder(stdout).Decode(&report); err != nil {
		t.Fatal(err)
	}
	return report.URL, pid, end
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// button selects the first NIC of a process.
func button(pid int) string {
	return fmt.Sprintf("document.querySelector('#nics button[data-name^=\"%d,0,\"]')", pid)
}

// TestPage: the page loads, its numbers move while ping runs, it notices that NICs go and come, and
// it goes on after it was hidden, and after its
// machine has slept. Its console has no error.
func TestPage(t *testing.T) {
	b, folder := newBrowser(t), t.TempDir()
	url, server, end := serve(t, folder)
	b.do(t, "load", chromedp.Navigate(url))
	_, pid, kill := start(t, folder, "ping", "--count", "0", "--interval", "2ms", "--size", "4096", "--quiet")
	b.until(t, "the NIC of ping", button(pid)+" !== null")
	b.click(t, button(pid))
	moves(t, b)
	_, other, stop := start(t, folder, "ping", "--count", "0", "--quiet") // its NICs have the same addresses
	b.until(t, "the NIC of another ping", button(other)+" !== null")
	titles := value[[]string](t, b, "[...document.querySelectorAll('#nics b')].map(e => e.textContent)")
	slices.Sort(titles)
	if all := len(titles); all < 4 || len(slices.Compact(titles)) != all {
		t.Errorf("two cards of one title: %q", titles)
	}
	_ = stop(syscall.SIGKILL)
	b.until(t, "groups of digits", `/\d,\d{3}/.test($('counters').textContent)`)
	for i, text := range value[[]string](t, b, "[...document.querySelectorAll('.stage')].map(e => e.textContent)") {
		if name := []string{"hostTx", "netTx", "netRcv", "hostRcv"}[i]; !strings.HasPrefix(text, name) || !strings.HasSuffix(text, " %") {
			t.Errorf("stage %d: %q", i, text)
		}
	}
	if text := value[string](t, b, "document.body.innerText"); strings.Contains(text, "[object") || strings.Contains(text, "undefined") || strings.Contains(text, "NaN") {
		t.Errorf("the page says %q", text)
	}
	b.until(t, "a histogram", "document.querySelector('#latency rect') !== null")
	b.until(t, "an endpoint", "document.querySelector('#endpoints tbody td') !== null")
	b.until(t, "counters", "$('counters').textContent.includes('frames sent')")

	// As when the user shows another page, and this one again.
	hidden := func(hidden bool) string {
		return fmt.Sprintf("(Object.defineProperty(document, 'hidden', {value: %v, configurable: true}), document.dispatchEvent(new Event('visibilitychange')))", hidden)
	}
	value[bool](t, b, hidden(true))
	b.until(t, "a hidden page asks for nothing", "source === null")
	value[bool](t, b, hidden(false))
	moves(t, b)

	// As when the browser's machine has slept: nothing comes, for longer than the page waits.
	signal(t, server, syscall.SIGSTOP)
	b.until(t, "another connection", "(window.old ??= source, heard = Math.min(heard, 1), source !== window.old)")
	signal(t, server, syscall.SIGCONT)
	moves(t, b)
	b.click(t, "$('pause')")
	b.until(t, "paused", "$('state').textContent === 'paused'")
	b.click(t, "$('pause')")
	moves(t, b)

	_ = kill(syscall.SIGKILL)
	b.until(t, "the NIC is gone", "!$('gone').hidden && $('nic').hidden")
	_, pid, _ = start(t, folder, "ping", "--count", "0", "--interval", "2ms", "--quiet")
	b.until(t, "another NIC", button(pid)+" !== null")
	b.click(t, button(pid))
	moves(t, b)
	_, pid, _ = start(t, folder, "frames", "echo", "--device", "emu:", "--ip", "10.0.0.1", "--image", "acl")
	b.until(t, "a NIC with a program", button(pid)+" !== null")
	b.click(t, button(pid))
	b.until(t, "the program and its map", "$('program').textContent.includes('acl 1.0, running') && $('program').textContent.includes('Map rules: hash')")
	if problems := b.problems(); len(problems) > 0 {
		t.Errorf("the console has %q", problems)
	}
	if err := end(syscall.SIGTERM); err != nil {
		t.Errorf("the server ends with %v", err)
	}
	b.until(t, "the server is gone", "$('state').className === 'bad'")
}

// moves waits until the count of transfers, their picture and the rates have changed.
func moves(t *testing.T, b *browser) {
	t.Helper()
	b.until(t, "transfers", "document.querySelectorAll('#flow .transfer').length > 3")
	for _, id := range []string{"flowtext", "flow", "rates"} {
		before, err := json.Marshal(value[string](t, b, "$('"+id+"').innerHTML"))
		if err != nil {
			t.Fatal(err)
		}
		b.until(t, id+" moves", fmt.Sprintf("$('%s').innerHTML !== %s", id, before))
	}
}

// unreadable lists texts that are smaller than 12 pixels, or whose colour has less contrast with what is
// behind it than WCAG 2.1 asks for, 4.5 to 1.
const unreadable = `(() => {
	const light = c => c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
	const rgb = s => s.match(/[\d.]+/g).map(Number)
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = rgb(getComputedStyle(e).backgroundColor)
			if (c.length === 3 || c[3] === 1) return c.slice(0, 3)
		}
		return [255, 255, 255]
	}
	const bad = []
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		const e = n.parentElement, style = getComputedStyle(e)
		if (n.data.trim() === '' || !e.checkVisibility() || e.closest('script, style, title')) continue
		const a = light(rgb(e instanceof SVGElement ? style.fill : style.color).slice(0, 3)), b = light(behind(e))
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		const size = parseFloat(style.fontSize) * (e.getScreenCTM?.().a ?? 1)
		if (contrast < 4.5 || size < 11.9) bad.push(n.data.trim() + ': ' + contrast.toFixed(2) + ', ' + size)
	}
	return bad
})()`

// tooWide lists elements that reach beyond the window, those within a part that scrolls aside.
const tooWide = `[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('.scroll') &&
	e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + ' ' + e.id + ' ' + e.textContent.slice(0, 40))`

// TestReadable: at 400 and at 1600 pixels, in the light and in the dark, nothing is cut off, small or of
// too little contrast, also without a NIC.
func TestReadable(t *testing.T) {
	b, folder := newBrowser(t), t.TempDir()
	url, _, _ := serve(t, folder)
	b.do(t, "load", chromedp.Navigate(url))
	b.until(t, "live", "$('state').textContent === 'live'")
	readable(t, b, "empty")
	_, pid, _ := start(t, folder, "ping", "--count", "0", "--interval", "2ms", "--size", "65536", "--quiet")
	b.until(t, "the NIC of ping", button(pid)+" !== null") // root sees those of others too
	b.click(t, button(pid))
	b.until(t, "transfers", "document.querySelectorAll('#flow .transfer').length > 15")
	b.until(t, "rates", "document.querySelector('#rates polyline').getAttribute('points').split(' ').length > 5")
	b.until(t, "a histogram", "document.querySelector('#latency rect') !== null")
	if *screenshots != "" {
		b.until(t, "more to see", "document.querySelector('#rates polyline').getAttribute('points').split(' ').length > 40")
	}
	readable(t, b, "ping")
	if problems := b.problems(); len(problems) > 0 {
		t.Errorf("the console has %q", problems)
	}
}

func readable(t *testing.T, b *browser, name string) {
	t.Helper()
	for _, width := range []int64{400, 1600} {
		for _, scheme := range []string{"light", "dark"} {
			b.do(t, scheme, command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 1000, DeviceScaleFactor: 1}),
				command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
			// Pictures are drawn for the new width with the next event.
			at := value[float64](t, b, "heard")
			b.until(t, "another event", fmt.Sprintf("heard > %f + 300", at))
			bad, wide := value[[]string](t, b, unreadable), value[[]string](t, b, tooWide)
			if len(bad) > 0 || len(wide) > 0 {
				t.Errorf("%s at %d pixels, %s: unreadable %q, too wide %q", name, width, scheme, bad, wide)
			}
			if *screenshots != "" {
				picture, err := chromedp.Run(b, chromedp.FullScreenshot(100))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(*screenshots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
