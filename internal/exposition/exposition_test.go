package exposition_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/exposition"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// counters is a struct as those of Stats methods are.
type counters struct {
	Timeouts uint64 `json:"timeouts" help:"Times that it was late." unit:"timeouts"`
	Level    uint64 `json:"level" help:"A level." unit:"frames" kind:"gauge"`
}

// shown is a NIC of this process with two endpoints, of which the second is measured.
func shown(t *testing.T, address, prefix string) {
	t.Setenv(telemetry.Variable, prefix)
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	page := telemetry.Page[telemetry.EndpointCounts]{Rows: []telemetry.EndpointCounts{
		{1, 1<<40 + 3, 1 << 40, 9, 4}, {7, 0, 0, 0, 0, 2, 3_000_000_000, 1_000_000_000, 2_000_000_000, 2_000_000_000}}}
	t.Cleanup(telemetry.Register(&telemetry.Source{
		Address: address,
		Port: func() (telemetry.Port, error) {
			return telemetry.Port{Name: address, MAC: "02:00:00:00:00:01", LinkUp: true, Queues: 2}, nil
		},
		Stats: func() (any, error) { return counters{5, 6}, nil },
		Commands: []telemetry.Command{{Name: "counts", Help: "Counts.", Run: func(context.Context, []uint64) (any, error) {
			return page, nil
		}}},
	}, telemetry.Options{}))
}

// TestWrite: all that a NIC counts is there, with 64 bits, and texts of others break no line.
func TestWrite(t *testing.T) {
	shown(t, "emu:\"\\\n", "off")
	var b strings.Builder
	must.OK(t, exposition.Write(&b, exposition.Families(counters{}, true), exposition.Process(t.Context(), true)))
	at := `nic="emu:\"\\?",pid="0",port="0"`
	for _, want := range []string{
		`trapeze_nic_info{mac="02:00:00:00:00:01",` + at + `} 1`, `trapeze_nic_link_up{` + at + `} 1`, `trapeze_nic_endpoints{` + at + `} 2`,
		"# TYPE trapeze_nic_timeouts_total counter", `trapeze_nic_timeouts_total{` + at + `} 5`,
		"# TYPE trapeze_nic_level gauge", `trapeze_nic_level{` + at + `} 6`,
		`trapeze_vi_descriptors_total{direction="send",` + at + `,vi="1"} 1.099511627776e+12`, `trapeze_vi_queued_descriptors{direction="receive",` + at + `,vi="1"} 5`,
		"# TYPE trapeze_vi_send_latency_seconds summary", `trapeze_vi_send_latency_seconds{` + at + `,vi="7",quantile="0.99"} 2`,
		`trapeze_vi_send_latency_seconds_sum{` + at + `,vi="7"} 3`, `trapeze_vi_send_latency_seconds_count{` + at + `,vi="7"} 2`,
	} {
		should.Contain(t, b.String(), want, "no")
	}
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "trapeze_") {
			t.Errorf("%q", line)
		}
	}
}

// TestHandler: so many scrapes are served at a time, and no more.
func TestHandler(t *testing.T) {
	shown(t, "emu:", "off")
	entered, leave := make(chan bool), make(chan bool)
	h := exposition.Handler(exposition.Families(counters{}, false), func(ctx context.Context) []*exposition.Target {
		entered <- true
		<-leave
		return exposition.Process(ctx, false)
	})
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w
	}
	done := make(chan *httptest.ResponseRecorder)
	for range 4 {
		go func() { done <- get() }()
		<-entered
	}
	if w := get(); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a fifth: %d", w.Code)
	}
	close(leave)
	for range 4 {
		if w := <-done; w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "trapeze_nic_level") || strings.Contains(w.Body.String(), "trapeze_vi") {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
}

// TestSilent: a process that does not answer is marked, and the others are shown.
func TestSilent(t *testing.T) {
	shown(t, "emu:", "test")
	t.Cleanup(telemetry.Register(&telemetry.Source{Address: "agent:a",
		Port:  func() (telemetry.Port, error) { return telemetry.Port{Name: "agent:a"}, nil },
		Stats: func() (any, error) { return counters{5, 6}, nil },
	}, telemetry.Options{}))
	l := must.Get(net.Listen("unixpacket", filepath.Join(os.Getenv("RUNTIME_DIRECTORY"), "dpdk", "test", "dpdk_telemetry.v2:1")))(t)
	defer l.Close()
	w := httptest.NewRecorder()
	exposition.Handler(exposition.Families(counters{}, true), func(ctx context.Context) []*exposition.Target { return exposition.Host(ctx, true) }).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	at := fmt.Sprintf(`trapeze_up{pid="%d",program="exposition.test"} `, os.Getpid())
	for _, want := range []string{at + "0\n", at[:strings.Index(at, "program")], `trapeze_nic_level{nic="agent:a",`, `trapeze_nic_level{nic="emu:",`} {
		should.Contain(t, w.Body.String(), want, "no in %s", w.Body)
	}
}

// TestDeadline: a scrape takes no longer than Prometheus waits, nor than the handler's own limit.
func TestDeadline(t *testing.T) {
	for header, most := range map[string]time.Duration{"": 5 * time.Second, "2": 1600 * time.Millisecond, "0.5": 400 * time.Millisecond,
		"60": 5 * time.Second, "-1": 5 * time.Second, "x": 5 * time.Second, "NaN": 5 * time.Second} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", header)
		begin := time.Now()
		exposition.Handler(nil, func(ctx context.Context) []*exposition.Target {
			if d, ok := ctx.Deadline(); !ok || d.Sub(begin) < most || time.Until(d) > most {
				t.Errorf("%q: %v", header, d.Sub(begin))
			}
			return nil
		}).ServeHTTP(httptest.NewRecorder(), r)
	}
}
