package metrics_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/metrics"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// nic is one of this process, with VIs. It has a socket if the test has set the environment.
func nic(t testing.TB, vis int) *driver.NIC {
	t.Helper()
	x, y, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { y.Close() })
	n, err := driver.New(t.Context(), x, driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	for range vis {
		if _, err := n.CreateVI(t.Context(), driver.VIAttributes{MaxTransfer: 64, SendDepth: 8, RecvDepth: 4, Reliability: datasheet.Unreliable}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// scrape returns the page of a handler.
func scrape(t testing.TB, o metrics.Options) string {
	t.Helper()
	return served(t, metrics.Handler(o))
}

// collected is what a registry with a collector serves.
func collected(t testing.TB, o metrics.Options) string {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(metrics.Collector(o)); err != nil {
		t.Fatal(err)
	}
	return served(t, promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
}

func served(t testing.TB, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("%d, %v: %s", w.Code, err, b)
	}
	return string(b)
}

// parsed are the families of a text, as Prometheus' own parser reads them.
func parsed(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	f, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	for _, family := range f {
		slices.SortFunc(family.Metric, func(a, b *dto.Metric) int { return strings.Compare(a.String(), b.String()) })
	}
	return f
}

// TestSame: a handler and a collector say the same, and it is what Prometheus reads.
func TestSame(t *testing.T) {
	t.Setenv("TRAPEZE_LATENCY", "1")
	nic(t, 3)
	o := metrics.Options{VIs: true}
	a, b := parsed(t, scrape(t, o)), parsed(t, collected(t, o))
	if len(a) != len(b) || len(a) < 20 {
		t.Errorf("%d families, and %d", len(a), len(b))
	}
	for name, f := range a {
		if got, want := f.String(), b[name].String(); got != want && name != "trapeze_nic_interrupts_total" {
			t.Errorf("%s:\n%s\n%s", name, got, want)
		}
	}
}

// TestScrape: a NIC of this process is there with its counters, and gone when it is closed; no
// peer is a label.
func TestScrape(t *testing.T) {
	leaktest.Check(t)
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	n := nic(t, 3)
	mac := n.Identity().MAC.String()
	for _, host := range []bool{false, true} {
		s := scrape(t, metrics.Options{VIs: true, Host: host})
		for _, want := range []string{`mac="` + mac + `"`, "trapeze_nic_frames_retransmitted_total{", "trapeze_nic_link_up{", `trapeze_vi_queued_descriptors{direction="send"`} {
			if !strings.Contains(s, want) {
				t.Errorf("host %v: no %s in\n%s", host, want, s)
			}
		}
		if strings.Contains(s, `peer="`) || strings.Contains(s, `remote="`) {
			t.Errorf("a peer is a label:\n%s", s)
		}
		if s := scrape(t, metrics.Options{Host: host}); strings.Contains(s, "trapeze_vi_") {
			t.Errorf("VIs that were not asked for:\n%s", s)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if s := scrape(t, metrics.Options{}); strings.Contains(s, mac) {
		t.Errorf("a NIC that is closed:\n%s", s)
	}
}

// TestLint: Prometheus' own tool has nothing against the names.
func TestLint(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: install prometheus")
	}
	nic(t, 1)
	c := exec.CommandContext(t.Context(), tool, "check", "metrics")
	c.WaitDelay = 10 * time.Second
	c.Stdin = strings.NewReader(scrape(t, metrics.Options{VIs: true}))
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// series are the names in a query.
var series = regexp.MustCompile(`trapeze_[a-z_]+`)

// TestDashboard: each query of the dashboard is one, and asks for series that there are.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	nic(t, 1)
	text, queries := scrape(t, metrics.Options{VIs: true}), 0
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries++
			q := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			expr, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			rules.WriteString("  - record: query\n    expr: " + string(expr) + "\n    labels: {number: \"" + strings.Repeat("x", queries) + "\"}\n")
			for _, name := range series.FindAllString(q, -1) {
				if !strings.Contains(text, "# TYPE "+name+" ") && name != "trapeze_vi_send_latency_seconds" {
					t.Errorf("%s: there is no series %s", p.Title, name)
				}
			}
		}
	}
	if queries < 6 {
		t.Errorf("only %d queries", queries)
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: install prometheus")
	}
	path := t.TempDir() + "/rules.yml"
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAlerts: each alert asks for series that there are, and comes when it is to.
func TestAlerts(t *testing.T) {
	rules, err := os.ReadFile("../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	nic(t, 1)
	text, names := scrape(t, metrics.Options{}), 0
	for line := range strings.Lines(string(rules)) {
		if _, expr, found := strings.Cut(line, " expr: "); found {
			for _, name := range series.FindAllString(expr, -1) {
				names++
				if !strings.Contains(text, "# TYPE "+name+" ") && name != "trapeze_up" { // which only other processes have
					t.Errorf("there is no series %s", name)
				}
			}
		}
	}
	if names < 6 {
		t.Errorf("only %d series", names)
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: install prometheus")
	}
	if out, err := exec.CommandContext(t.Context(), tool, "test", "rules", "testdata/alerts_test.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// used is the time of processors that this process has had.
func used(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScrape scrapes a NIC with 4,096 endpoints: from within its process, by the socket as
// 'trapeze serve-metrics' does, and by a collector in a registry.
func BenchmarkScrape(b *testing.B) {
	b.Setenv(telemetry.Variable, "test")
	b.Setenv("RUNTIME_DIRECTORY", b.TempDir())
	nic(b, 4095) // and endpoint 0
	r := prometheus.NewRegistry()
	if err := r.Register(metrics.Collector(metrics.Options{VIs: true})); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		h    http.Handler
	}{
		{"handler", metrics.Handler(metrics.Options{VIs: true})},
		{"host", metrics.Handler(metrics.Options{VIs: true, Host: true})},
		{"collector", promhttp.HandlerFor(r, promhttp.HandlerOpts{})},
	} {
		b.Run(c.name, func(b *testing.B) {
			before := used(b)
			for b.Loop() {
				c.h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
			}
			b.ReportMetric(float64((used(b)-before).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
		})
	}
}
