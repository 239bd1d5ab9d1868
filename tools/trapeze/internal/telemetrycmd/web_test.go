package telemetrycmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	_ "github.com/trapeze-nic/trapeze/emulator"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/via"
)

// webWait ends tests that do not end by themselves.
const webWait = time.Minute

// running is a site that serves.
type running struct {
	*site
	url  string // without path
	ctx  context.Context
	stop func() error // ends it, and says how it ended
}

// serveSite serves a site with a token until the test ends.
func serveSite(t *testing.T) *running {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), webWait)
	r := &running{site: &site{feed: newFeed(ctx, 2*time.Millisecond), token: "secret", timeout: webTimeout}, url: "http://" + l.Addr().String(), ctx: ctx}
	ended := make(chan error, 1)
	go func() { ended <- r.serve(ctx, l) }()
	r.stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		r.feed.close()
		return err
	}
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// get asks for a path as a browser does, with a Host and a method if they are not empty.
func (r *running) get(t *testing.T, method, path, host string) *http.Response {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(r.ctx, method, r.url+path, nil))(t)
	request.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	answer := must.Get(transport.RoundTrip(request))(t)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// TestWebRefuses: without the token, and under the name of another host, nothing is told.
func TestWebRefuses(t *testing.T) {
	leaktest.Check(t)
	r := serveSite(t)
	r.name = "nic.example"
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.url, "http://"))
	for _, c := range []struct {
		method, path, host string
		want               int
	}{
		{"GET", "/?token=secret", "", 200},
		{"HEAD", "/?token=secret", "", 200},
		{"HEAD", "/events?token=secret", "", 200},
		{"GET", "/?token=secret", "localhost", 200},
		{"GET", "/?token=secret", "LOCALHOST:9999", 200}, // ssh -L 9999:127.0.0.1:8080
		{"GET", "/?token=secret", "127.0.0.1:" + port, 200},
		{"GET", "/?token=secret", "[::1]:" + port, 200},
		{"GET", "/?token=secret", "nic.example:" + port, 200},
		{"GET", "/", "", 403},
		{"GET", "/?token=", "", 403},
		{"GET", "/?token=secre", "", 403},
		{"GET", "/?token=secret2", "", 403},
		{"GET", "/?Token=secret", "", 403},
		{"GET", "/events", "", 403},
		{"GET", "/events?token=wrong", "", 403},
		{"GET", "/?token=secret", "evil.example", 421},
		{"GET", "/events?token=secret", "evil.example:" + port, 421},
		{"GET", "/?token=secret", "127.0.0.1.evil.example", 421},
		{"GET", "/?token=secret", "192.0.2.1:" + port, 421},
		{"GET", "/?token=secret", "localhost.", 421},
		{"POST", "/?token=secret", "", 405},
		{"DELETE", "/events?token=secret", "", 405},
		{"GET", "/other?token=secret", "", 404},
		{"GET", "/events/../etc/passwd?token=secret", "", 404},
	} {
		answer := r.get(t, c.method, c.path, c.host)
		text, err := io.ReadAll(answer.Body)
		should.Hold(t, err == nil && answer.StatusCode == c.want, "%+v: %s, %v", c, answer.Status, err)
		if c.want != 200 && (len(text) > 200 || strings.Contains(string(text), "secret")) {
			t.Errorf("%+v: %q", c, text)
		}
		for key, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": ""} {
			should.Be(t, answer.Header.Get(key), want, "%+v: %s", c, key)
		}
	}
	r.token = ""
	should.Hold(t, r.get(t, "GET", "/", "").StatusCode == 200 && r.get(t, "GET", "/", "evil.example").StatusCode == 421, "without a token")
}

// TestWebPage: the page runs its own script only, loads nothing from elsewhere, and takes no text of
// a NIC for HTML.
func TestWebPage(t *testing.T) {
	leaktest.Check(t)
	r := serveSite(t)
	answer := r.get(t, "GET", "/?token=secret", "")
	text, err := io.ReadAll(answer.Body)
	must.Hold(t, err == nil && string(text) == page, "%+v %+v", err, len(text))
	rules := answer.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'"} {
		should.Contain(t, rules, want, "is not")
	}
	should.Hold(t, !strings.Contains(rules, "unsafe"), "%+v", rules)
	for pattern, most := range map[string]int{`<script>`: 1, `<style>`: 1, `<script `: 0, `\bsrc=`: 0, `(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write`: 0,
		`\son[a-z]+="`: 0, `\sstyle="`: 0, `https?://`: 1, `\beval\(`: 0} {
		n := len(regexp.MustCompile(pattern).FindAllString(page, -1))
		should.Hold(t, n <= most, "%s is there %d times", pattern, n)
	}
	should.Be(t, strings.Count(page, "http://www.w3.org/2000/svg"), 1, "the name space of SVG is not the one address")
}

// stream reads the events of a site.
type stream struct {
	*bufio.Scanner
	t *testing.T
}

func (r *running) stream(t *testing.T, nic string) *stream {
	t.Helper()
	answer := r.get(t, "GET", "/events?token=secret&nic="+nic, "")
	kind := answer.Header.Get("Content-Type")
	must.Hold(t, answer.StatusCode == 200 && kind == "text/event-stream", "%+v %+v", answer.Status, kind)
	s := &stream{bufio.NewScanner(answer.Body), t}
	s.Buffer(nil, 16<<20)
	must.Hold(t, s.Scan() && s.Text() == "retry: 1000" && s.Scan() && s.Text() == "", "%q, %v", s.Text(), s.Err())
	return s
}

// next reads the next event of a name, and checks the form of all that it reads.
func (s *stream) next(name string, into any) {
	s.t.Helper()
	for s.Scan() {
		got, ok := strings.CutPrefix(s.Text(), "event: ")
		must.Hold(s.t, ok && s.Scan(), "%q, %v", s.Text(), s.Err())
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		must.Hold(s.t, ok && json.Valid([]byte(data)) && s.Scan() && s.Text() == "", "%.100q, %v", s.Text(), s.Err())
		if got == name {
			must.OK(s.t, json.Unmarshal([]byte(data), into))
			return
		}
	}
	s.t.Fatalf("no event %s: %v", name, s.Err())
}

// until reads events of a name until one is as it is to be.
func until[E any](s *stream, name string, good func(E) bool) (e E) {
	s.t.Helper()
	for {
		e = *new(E)
		if s.next(name, &e); good(e) {
			return e
		}
	}
}

// shownPair has two NICs of this process, and has messages pass until the test ends or more is
// closed. names are those by which the page knows them.
func shownPair(t *testing.T) (nics [2]*via.NIC, names [2]string) {
	t.Helper()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	address := "emu:?wire=mem:" + t.Name()
	for i := range nics {
		var err error
		nics[i], err = via.Open(t.Context(), address, via.Options{SampleLatency: 1})
		must.Hold(t, err == nil, "%+v", err)
		t.Cleanup(func() { nics[i].Close() })
		names[i] = fmt.Sprintf("%d,%d,%s", os.Getpid(), i, nics[i].Query().Address)
	}
	return nics, names
}

// traffic has messages of 4000 bytes pass from one NIC to the other until a NIC is closed, or stop
// is called.
func traffic(t *testing.T, from, to *via.NIC) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listener := must.Get(via.Listen(to, "web", via.ListenOptions{}))(t)
	out := must.Get(via.Dial(ctx, from, listener.Address().String(), via.ConnOptions{}))(t)
	in := must.Get(listener.Accept(ctx))(t)
	var passing sync.WaitGroup
	// A NIC runs while its own program waits for it.
	passing.Go(func() {
		for ctx.Err() == nil {
			if err := out.Send(ctx, make([]byte, 4000)); err != nil && ctx.Err() == nil {
				t.Errorf("send: %v", err)
				return
			}
			_ = pause.For(ctx, time.Millisecond)
		}
	})
	passing.Go(func() {
		for ctx.Err() == nil {
			_, err := in.Receive(ctx)
			if err == nil {
				err = in.Release()
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("receive: %v", err)
				return
			}
		}
	})
	stop = func() {
		cancel()
		passing.Wait()
		_ = errors.Join(out.Close(), in.Close(), listener.Close())
	}
	t.Cleanup(stop)
	return stop
}

// find is the NIC of a name among those of an event; nil if it is not there.
func find(list []shownNIC, name string) *shownNIC {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// TestWebEvents: rates, transfers, stages, endpoints, times and the maps of a program are there while
// messages pass, and when a NIC is closed the rest goes on.
func TestWebEvents(t *testing.T) {
	leaktest.Check(t)
	nics, names := shownPair(t)
	spec := must.Get(firmware.BuildShipped("count"))(t)
	img := must.Get(load.Flat(spec.Link()))(t)
	must.Get(nics[0].LoadProgram(t.Context(), img, load.Options{Timeout: webWait}))(t)
	stop := traffic(t, nics[0], nics[1])
	r := serveSite(t)
	s := r.stream(t, names[0])
	until(s, "host", func(list []shownNIC) bool {
		a, b := find(list, names[0]), find(list, names[1])
		return a != nil && b != nil && a.Sent > 0 && b.Received > 0 && a.Messages > 0 && a.P99 > 0
	})
	v := until(s, "nic", func(v shownView) bool {
		return v.Name == names[0] && v.Flow.Count > 20 && v.Flow.Busy[0] > 0 && v.Flow.Busy[1] > 0 && len(v.Rows) > 0 && v.Rows[0].Sends > 0
	})
	if v.Flow.Missing || len(v.Flow.Records) == 0 || len(v.Flow.Records) > shownTransfers || v.Endpoints != len(v.Rows) || v.Rates["bytes_sent"] <= 0 {
		t.Errorf("%+v", v)
	}
	for i, busy := range v.Flow.Busy {
		should.Hold(t, busy >= 0 && busy <= 1, "engine %d: %v", i, busy)
	}
	d := until(s, "details", func(d shownDetails) bool { return len(d.Histograms) > 0 })
	if d.Report == nil || d.Report.MAC != nics[0].Query().Address.String() || d.Report.Program == nil || d.Report.Program.Name != "count" {
		t.Errorf("%+v", d.Report)
	}
	should.Hold(t, len(d.Maps) == len(spec.Maps) && d.Maps[0].Name == spec.Maps[0].Name, "%+v", d.Maps)
	h := d.Histograms[0]
	should.Hold(t, h.Number == v.Rows[0].Number && h.Samples != 0 && len(h.Buckets) != 0 && h.P50 > 0, "%+v", h)
	stop()
	must.OK(t, nics[0].Close())
	until(s, "host", func(list []shownNIC) bool { return find(list, names[0]) == nil && find(list, names[1]) != nil })
}

// TestWebOwnLog: the page leaves the log of transfers to a program that keeps it, and shows the rest;
// when the program gives it up, the page has it.
func TestWebOwnLog(t *testing.T) {
	leaktest.Check(t)
	nics, names := shownPair(t)
	must.OK(t, nics[1].EnableDMALog(64))
	traffic(t, nics[0], nics[1])
	s := serveSite(t).stream(t, names[1])
	until(s, "nic", func(v shownView) bool { return v.Flow.Missing && v.Rates["bytes_received"] > 0 })
	state, err := nics[1].DMALog()
	should.Hold(t, err == nil && state.Enabled && state.Records == 64, "the log of the program: %+v, %v", state, err)
	must.OK(t, nics[1].DisableDMALog())
	until(s, "nic", func(v shownView) bool { return !v.Flow.Missing && v.Flow.Count > 0 })
}

// TestWebBrowsers: there is room for so many browsers, one that does not read delays no other and is
// cut off, and when the last has gone the NICs are asked no more.
func TestWebBrowsers(t *testing.T) {
	leaktest.Check(t)
	_, names := shownPair(t)
	r := serveSite(t)
	r.timeout = 100 * time.Millisecond
	var all []*viewer
	for range maxViewers - 2 {
		v := must.Get(r.feed.join(""))(t)
		all = append(all, v)
	}
	deaf := must.Get(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
	defer deaf.Close()
	_ = deaf.(*net.TCPConn).SetReadBuffer(4096)
	must.Get(fmt.Fprintf(deaf, "GET /events?token=secret&nic=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", names[0]))(t)
	s := r.stream(t, names[0])
	for r.viewers() < maxViewers {
		until(s, "host", func([]shownNIC) bool { return true })
	}
	answer := r.get(t, "GET", "/events?token=secret", "")
	should.Hold(t, answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != "", "%s, %v", answer.Status, answer.Header)
	until(s, "host", func([]shownNIC) bool { return r.viewers() < maxViewers })
	for _, v := range all {
		r.feed.leave(v)
	}
	until(s, "host", func(list []shownNIC) bool { return find(list, names[0]) != nil })
	should.Be(t, r.viewers(), 1, "browsers")
	s2 := r.stream(t, names[0])
	until(s2, "nic", func(v shownView) bool { return v.Name == names[0] })
}

func (r *running) viewers() int {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return len(r.feed.viewers)
}

// TestWebRests: no NIC is asked before a browser comes, nor after the last one has gone.
func TestWebRests(t *testing.T) {
	leaktest.Check(t)
	nics, names := shownPair(t)
	f := newFeed(t.Context(), time.Millisecond)
	defer f.close()
	asked := func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.running }
	should.Hold(t, !asked(), "asked for no browser")
	for range 2 {
		v := must.Get(f.join(names[0]))(t)
		<-v.events
		should.Hold(t, asked(), "not asked")
		f.leave(v)
		waittest.Until(t, "no NIC is asked", func() bool { return !asked() })
	}
	// The log that was lent ends by itself, some seconds later.
	waittest.Until(t, "the log ends", func() bool { return !must.Get(nics[0].DMALog())(t).Enabled })
}

// TestWebEnds: an interrupt ends the streams, and nothing is left.
func TestWebEnds(t *testing.T) {
	leaktest.Check(t)
	_, names := shownPair(t)
	r := serveSite(t)
	s := r.stream(t, names[0])
	until(s, "nic", func(shownView) bool { return true })
	should.OK(t, r.stop())
	for s.Scan() { // what was on its way
	}
	should.Refuse(r.feed.join(""))(t, context.Canceled, "a browser after the end")
	_, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	should.Hold(t, err != nil, "it still listens")
}

// TestFlowBusy: the part of time in which engines move follows from the time between looks, or from
// what the records cover if some are missing; transfers of an engine that overlap count once.
func TestFlowBusy(t *testing.T) {
	at := time.Now()
	records := [][5]int64{{0, 0, 1000, 2000, 1}, {0, 0, 1500, 3000, 1}, {0, 3, 2000, 5000, 1}, {0, 9, 0, 5000, 1}, {0, -1, 0, 1, 1}}
	for _, c := range []struct {
		since   time.Time
		partial bool
		want    [4]float64
	}{
		{at.Add(-10 * time.Microsecond), false, [4]float64{0.2, 0, 0, 0.3}},
		{at.Add(-10 * time.Microsecond), true, [4]float64{0.4, 0, 0, 0.6}},
		{at.Add(-time.Microsecond), false, [4]float64{1, 0, 0, 1}},
		{time.Time{}, false, [4]float64{}},
	} {
		f := flow{looked: at}
		if f.measure(records, c.since, c.partial); f.Busy != c.want {
			t.Errorf("%+v: %v", c, f.Busy)
		}
	}
	var f flow
	f.measure(nil, at, true)
	should.Be(t, f.Busy, [4]float64{})
}

// TestWebIdleConnections: connections that say nothing, or not all, shut no browser out.
func TestWebIdleConnections(t *testing.T) {
	leaktest.Check(t)
	r := serveSite(t)
	for i := range 2 * maxConnections {
		c := must.Get(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
		defer c.Close()
		if i%2 == 1 {
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: ")
		}
	}
	var end context.CancelFunc
	r.ctx, end = context.WithTimeout(r.ctx, webTimeout/2) // they are not waited for
	defer end()
	a := r.get(t, "GET", "/?token=secret", "")
	should.Hold(t, a.StatusCode == http.StatusOK, "%s beside idle connections", a.Status)
}
