package trapeze_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// TestServeMetrics: Prometheus gets what the NICs of other processes count, until it is
// interrupted.
func TestServeMetrics(t *testing.T) {
	owner, address := pinged(t)
	var out outputtest.Buffer
	c := exec.Command(trapeze, "serve-metrics", "--listen", "127.0.0.1:0", "--vis")
	c.Stdout = &out
	p := launch(t, c, "serve-metrics")
	url := regexp.MustCompile(`http://\S+/metrics`)
	waittest.Until(t, "the URL", func() bool { return url.FindString(out.String()) != "" })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrape := func(wants ...string) {
		t.Helper()
		reply := must.Get(client.Get(url.FindString(out.String())))(t)
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		for _, want := range wants {
			if err != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
				t.Errorf("%d, %v: no %s in\n%s", reply.StatusCode, err, want, text)
			}
		}
	}
	up := fmt.Sprintf(`trapeze_up{pid="%d",program="trapeze`, owner.Process.Pid)
	scrape(`nic="`+address+`"`, "# TYPE trapeze_nic_frames_sent_total counter", `trapeze_vi_descriptors_total{direction="send",`, up+` ping"} 1`)

	// A page of another name that leads here is refused.
	for host, code := range map[string]int{"evil.example:9840": http.StatusMisdirectedRequest, "localhost:1": http.StatusOK} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url.FindString(out.String()), nil))(t)
		request.Host = host
		reply := must.Get(client.Do(request))(t)
		if reply.Body.Close(); reply.StatusCode != code {
			t.Errorf("%s: %d", host, reply.StatusCode)
		}
	}

	// A process that stands still is named, and others are shown.
	signal(t, owner, syscall.SIGSTOP)
	scrape(up+`"} 0`, "trapeze_nic_info{")
	pid := strconv.Itoa(owner.Process.Pid)
	start(t, "ps", "--interval", "0").exit(t, long, 0, "process "+pid+" (trapeze) does not answer at")
	start(t, "stats", pid).exit(t, long, 5, "process "+pid+" (trapeze) does not answer at")
	signal(t, owner, syscall.SIGCONT)

	used := strings.TrimSuffix(strings.TrimPrefix(url.FindString(out.String()), "http://"), "/metrics")
	start(t, "serve-metrics", "--listen", used).exit(t, long, 1, "address already in use: give another address or port")
	signal(t, p, syscall.SIGINT)
	p.exit(t, long, 0)
	start(t, "serve-metrics", "--listen", "9840").exit(t, long, 2, "HOST:PORT")
}

// TestServeMetricsAnywhere: the URL names this host, as Prometheus may be on another one.
func TestServeMetricsAnywhere(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	var out outputtest.Buffer
	c := exec.Command(trapeze, "serve-metrics", "--listen", "0.0.0.0:0")
	c.Stdout = &out
	p := launch(t, c, "serve-metrics")
	waittest.Until(t, "the URL", func() bool { return strings.Contains(out.String(), "/metrics\n") })
	said := out.String()
	should.Hold(t, strings.HasPrefix(said, "metrics are at http://"+name+":"), "%q", said)
	signal(t, p, syscall.SIGINT)
	p.exit(t, long, 0)
}
