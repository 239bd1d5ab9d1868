package cli_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// policiesReport is what demo --policies promises to print with --json.
type policiesReport struct {
	Bytes   int
	Burst   int `json:"burst_bytes"`
	Idle    []loadReport
	Loaded  []loadReport
	Picture string
	Logs    []string
}

type loadReport struct {
	Policy, At     string
	Latency        float64 `json:"p50_us"`
	Way            float64 `json:"way_us"`
	Rate           float64 `json:"mb_per_s"`
	NetTx, HostRcv float64
	Sender         float64 `json:"sender_overlap"`
	Receiver       float64 `json:"receiver_overlap"`
}

// TestDemoPolicies: the policies differ on live NICs as they must, however busy the machine is: frames overlap
// under load where a policy uses several buffers, and nowhere else. The
// picture and the logs are there, and the model cuts frames like the policies that cut all alike.
func TestDemoPolicies(t *testing.T) {
	dir := t.TempDir()
	picture, logs := filepath.Join(dir, "policies.svg"), filepath.Join(dir, "logs")
	var r policiesReport
	decode(t, run(t, "demo", "--policies", "--json", "--output", picture, "--log-folder", logs), &r)
	must.Hold(t, len(r.Idle) == 9 && len(r.Loaded) == 9 && r.Bytes == 8192 && r.Burst == 512 && r.Picture == picture && len(r.Logs) == 18, "%+v", r)
	pulses := float64(r.Bytes / r.Burst)
	places := map[string]int{}
	for i, p := range r.Idle {
		places[p.At]++
		for load, l := range map[string]loadReport{"idle": p, "loaded": r.Loaded[i]} {
			// A frame that a busy machine had sent again counts a little.
			netTx, hostRcv := l.NetTx, l.HostRcv
			if l.Policy != p.Policy || l.Latency <= 0 || l.Way <= 0 || l.Rate <= 0 || netTx < 0.9 || hostRcv < 0.9 {
				t.Errorf("%s, %s: %+v", p.Policy, load, l)
			}
			switch {
			case strings.HasPrefix(p.Policy, "store-and-forward") && (netTx > 1.1 || hostRcv > 1.1),
				(strings.HasPrefix(p.Policy, "cut-through") || p.Policy == "static") && (netTx < pulses-1 || hostRcv < pulses-1),
				strings.HasPrefix(p.Policy, "amp") && load == "loaded" && netTx > pulses/2:
				t.Errorf("%s, %s: %v, %v", p.Policy, load, netTx, hostRcv)
			}
			// On an idle wire frames overlap only where one went twice.
			if overlap := load == "loaded" && !strings.HasSuffix(p.Policy, "one buffer"); (l.Sender > 0.5) != overlap || overlap && l.Receiver == 0 ||
				strings.HasSuffix(p.Policy, "one buffer") && l.Sender+l.Receiver != 0 {
				t.Errorf("%s, %s: %v of the frames overlap at the sender, %v at the receiver", p.Policy, load, l.Sender, l.Receiver)
			}
		}
		if strings.HasPrefix(p.Policy, "amp") && (p.NetTx <= 1.1 || p.NetTx >= pulses) {
			t.Errorf("%s on an idle wire: %v", p.Policy, p.NetTx)
		}
	}
	should.Hold(t, places["nic"] == 7 && places["host"] == 1 && places["program"] == 1, "policies run at %v", places)
	svg, err := os.ReadFile(picture)
	if err != nil || !bytes.HasSuffix(svg, []byte("</svg>\n")) || bytes.Count(svg, []byte(">hostTx<")) != 18 {
		t.Errorf("the picture: %v, %d bytes", err, len(svg))
	}
	for _, name := range r.Logs {
		f := must.Get(os.Open(name))(t)
		log, err := dmalog.Read(f, name)
		if f.Close(); err != nil || log.Setup == nil || log.Setup.Burst != r.Burst || log.Setup.Rate != 1e8 || len(log.Records) == 0 {
			t.Errorf("%s: %+v, %v", name, log.Setup, err)
		}
		least := "0"
		if base := filepath.Base(name); strings.HasPrefix(base, "store-and-forward") || strings.HasPrefix(base, "cut-through") {
			least = "100"
		}
		should.OK(t, runLab(t, "model", "replay", "--log", name, "--min-alike", least), "%s", name)
	}
}

// TestDemoPoliciesRefused: flags that have no part in it, and files that cannot be written.
func TestDemoPoliciesRefused(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "x")
	there := filepath.Join(dir, "amp-idle.log")
	must.OK(t, os.WriteFile(there, []byte("older"), 0o600))
	for _, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a policy":            {[]string{"--policies", "--policy", "amp"}, shell.ExitUsage, "[policies policy]"},
		"channels":            {[]string{"--policies", "--channels"}, shell.ExitUsage, "[policies channels]"},
		"a picture of none":   {[]string{"--output", missing}, shell.ExitUsage, "--output is about --policies"},
		"logs of none":        {[]string{"--log-folder", dir}, shell.ExitUsage, "--log-folder is about --policies"},
		"no name":             {[]string{"--policies", "--output", ""}, shell.ExitUsage, "must not be empty"},
		"no folder's name":    {[]string{"--policies", "--log-folder", ""}, shell.ExitUsage, "must not be empty"},
		"no folder":           {[]string{"--policies", "--output", missing}, shell.ExitFailure, "no such file"},
		"no folder of logs":   {[]string{"--policies", "--log-folder", missing}, shell.ExitFailure, "no such file"},
		"a folder":            {[]string{"--policies", "--output", dir}, shell.ExitFailure, "directory"},
		"a log that is there": {[]string{"--policies", "--log-folder", dir}, shell.ExitFailure, "--force"},
	} {
		run(t, append([]string{"demo"}, c.args...)...).refused(t, c.code, c.says)
	}
	names := left(t, dir)
	should.Hold(t, len(names) == 1, "left behind: %v", names)
}

// TestDemoPoliciesStopped: a demonstration that is interrupted leaves no file, and an older one as it was.
func TestDemoPoliciesStopped(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "policies.svg")
	must.OK(t, os.WriteFile(picture, []byte("older"), 0o600))
	logs := filepath.Join(t.TempDir(), "logs")
	runWith(signalled(t, 150*time.Millisecond), nil, "demo", "--policies", "--force", "--output", picture, "--log-folder", logs).refused(t, 130)
	if got, err := os.ReadFile(picture); err != nil || string(got) != "older" || len(left(t, filepath.Dir(picture))) != 1 || len(left(t, filepath.Dir(logs))) != 0 {
		t.Errorf("%q, %v, %v, %v", got, err, left(t, filepath.Dir(picture)), left(t, filepath.Dir(logs)))
	}
}

// runLab runs a command of trapeze-lab on files of this program's.
func runLab(t *testing.T, args ...string) error {
	t.Helper()
	root := &cobra.Command{SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(lab.Commands(&command.Env{Stdout: io.Discard, Stderr: io.Discard})...)
	root.SetArgs(args)
	return root.ExecuteContext(t.Context())
}
