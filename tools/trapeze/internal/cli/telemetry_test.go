package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
	"github.com/trapeze-nic/trapeze/via"
)

// shownNIC is the address of a NIC that this process has open and shows, with a VI.
func shownNIC(t *testing.T) string {
	t.Helper()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	address := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire")
	nic := must.Get(via.Open(t.Context(), address, via.Options{}))(t)
	t.Cleanup(func() { nic.Close() })
	must.Get(nic.CreateVI(t.Context(), via.VIAttributes{}, nil, nil))(t)
	return address
}

// TestOwner: commands show what a process has open, and info leaves the NIC to it.
func TestOwner(t *testing.T) {
	address := shownNIC(t)
	pid := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ps", "--interval", "0"}, []string{address, pid}},
		{[]string{"stats", address}, []string{"endpoints", "reliable delivery"}},
		{[]string{"stats", pid}, []string{address}},
		{[]string{"top", "--once", "--interval", "50ms"}, []string{pid, "SENT/s"}},
		{[]string{"info", "--device", address}, []string{"owner\n  pid      " + pid, "resets        1"}},
	} {
		run(t, c.args...).exit(t, shell.ExitOK, c.want...)
	}
	var r struct {
		Owner *struct {
			PID int `json:"pid"`
		} `json:"owner"`
		Features []string `json:"features"`
	}
	if o := run(t, "info", "--device", address, "--json"); json.Unmarshal([]byte(o.stdout), &r) != nil || r.Owner == nil || r.Owner.PID != os.Getpid() || len(r.Features) == 0 {
		t.Errorf("%+v", o)
	}
	if o := run(t, "info", "--json"); json.Unmarshal([]byte(o.stdout), &r) != nil || r.Owner != nil {
		t.Errorf("a NIC that no process has: %+v", o)
	}
}

// TestStatsOnce: no figure has a second name.
func TestStatsOnce(t *testing.T) {
	o := run(t, "stats", shownNIC(t), "--json")
	should.Hold(t, !strings.Contains(o.stdout, `"rx_`) && !strings.Contains(o.stdout, `"tx_`), "%+v", o.stdout)
	for _, name := range []string{"frames_received", "bytes_sent", "receive_queue_empty"} {
		should.Be(t, strings.Count(o.stdout, `"`+name+`"`), 1, "%s: %s", name, o.stdout)
	}
}

// TestOwnerRefused: what cannot be is said, and no NIC is opened for it.
func TestOwnerRefused(t *testing.T) {
	address := shownNIC(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"stats", "nothing"}, shell.ExitFailure, "no process shows such a NIC"},
		{[]string{"log", address, "--json"}, shell.ExitUsage, "--count"},
		{[]string{"top"}, shell.ExitUsage, "terminal"},
		{[]string{"capture", "--output", "-", "--json"}, shell.ExitUsage, "stdout"},
		{[]string{"capture", "--output", "-", "--match", "vi"}, shell.ExitUsage, "--match"},
		{[]string{"capture", "--output", "/nowhere/x"}, shell.ExitFailure, "--output"},
		{[]string{"top", "--json"}, shell.ExitUsage, "no JSON"},
		{[]string{"web", "--listen", "192.0.2.1:0"}, shell.ExitFailure, "--listen"},
		{[]string{"web", "--listen", "0.0.0.0:0", "--no-token"}, shell.ExitUsage, "--no-token"},
	} {
		run(t, c.args...).exit(t, c.code, c.says)
	}
}

// TestOwnerNamed: of two NICs with one address, PID:PORT names each, and the error lists both.
func TestOwnerNamed(t *testing.T) {
	address := shownNIC(t)
	const twice = "emu:?wire=mem:named"
	for range 2 {
		nic := must.Get(via.Open(t.Context(), twice, via.Options{}))(t)
		defer nic.Close()
	}
	pid := strconv.Itoa(os.Getpid())
	for port, want := range []string{address, twice, twice} {
		var r struct {
			NICs []struct {
				Address string `json:"address"`
				Port    int    `json:"port"`
			} `json:"nics"`
		}
		id := pid + ":" + strconv.Itoa(port)
		o := run(t, "stats", id, "--json")
		err := json.Unmarshal([]byte(o.stdout), &r)
		should.Hold(t, err == nil && len(r.NICs) == 1 && r.NICs[0].Port == port && r.NICs[0].Address == want, "stats %s: %v, %+v", id, err, o)
	}
	for _, args := range [][]string{{"log", twice}, {"log", pid}, {"log"}, {"capture", "--output", "-", "--device", twice}} {
		run(t, args...).exit(t, shell.ExitUsage, pid+":1 ("+twice+")", pid+":2 ("+twice+")")
	}
	for _, id := range []string{pid + ":3", pid + ":", ":0", pid + ":-1", pid + ":00"} {
		run(t, "stats", id).exit(t, shell.ExitFailure, "no process shows such a NIC")
	}
}

// TestWeb: the address that web prints opens the page, its port is refused to a second one, and an
// interrupt ends it with code 0.
func TestWeb(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, in := io.Pipe()
		code := make(chan int, 1)
		args := []string{"web", "--listen", "127.0.0.1:0"}
		if asJSON {
			args = append(args, "--json")
		}
		go func() { code <- cli.Program.Run(ctx, args, strings.NewReader(""), in, io.Discard) }()
		var r struct{ URL string }
		var err error
		if asJSON {
			err = json.NewDecoder(out).Decode(&r)
		} else {
			_, err = fmt.Fscanln(out, &r.URL)
		}
		must.OK(t, err)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for address, want := range map[string]int{r.URL: http.StatusOK, r.URL + "x": http.StatusForbidden} {
			answer := must.Get(client.Get(address))(t)
			if answer.Body.Close(); answer.StatusCode != want {
				t.Errorf("%s: %s", address, answer.Status)
			}
		}
		at := must.Get(url.Parse(r.URL))(t)
		run(t, "web", "--listen", at.Host).refused(t, shell.ExitFailure, "--listen")
		cancel()
		should.Be(t, <-code, shell.ExitOK, "it ends")
	}
}
