package trapeze_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// wired makes a network namespace with a wire, of which Linux has one end with addresses,
// and runs trapeze there, which has the other.
const wired = `set -e
ip link add ours type veth peer name linux
ip link set ours up
ip link set linux up
ip address add 10.77.0.2/24 dev linux
exec "$@"`

// TestFramesLinux: Linux's own flood ping is answered, through AF_XDP on a pair of
// interfaces in a namespace of the test.
func TestFramesLinux(t *testing.T) {
	needsProgram(t)
	if os.Geteuid() != 0 {
		t.Skip("a network namespace with AF_XDP needs root")
	}
	for _, tool := range []string{"ip", "nsenter", "ping"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	c := exec.Command("sh", "-c", wired, "sh", trapeze, "frames", "echo", "--device", "afxdp:ours", "--ip", "10.77.0.1", "--json")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	echo := launch(t, c, "echo")
	pid := strconv.Itoa(echo.Process.Pid)
	linux := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=/proc/" + pid + "/ns/net"}, args...)...).CombinedOutput()
		return string(out), err
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		out, err := linux("ping", "-c", "1", "-W", "1", "10.77.0.1")
		if err == nil {
			break
		}
		must.Hold(t, !echo.ended() && !time.Now().After(deadline), "no answer: %s; %s", out, echo.stderr.String())
	}
	answers := 0
	for _, c := range []struct {
		to    string
		count int
		size  int
	}{{"10.77.0.1", 2000, 56}, {"10.77.0.1", 1000, 1472}, {"10.77.0.1", 200, 0}} {
		out, err := linux("ping", "-f", "-q", "-c", strconv.Itoa(c.count), "-s", strconv.Itoa(c.size), "-M", "do", c.to)
		var sent, received int
		at := strings.Index(out, "---\n")
		must.Hold(t, at >= 0, "%v: %v, %s", c, err, out)
		if _, err := fmt.Sscanf(out[at+4:], "%d packets transmitted, %d received", &sent, &received); err != nil {
			t.Fatalf("%v: %v in %s", c, err, out)
		}
		// Ping does not wait for the last answers.
		should.Hold(t, !strings.Contains(out, "errors") && !strings.Contains(out, "duplicates") && received >= c.count-c.count/20, "%v: %s", c, out)
		answers += received
	}
	must.OK(t, echo.Process.Signal(os.Interrupt))
	echo.succeed(t)
	var r struct {
		Answers          map[string]int
		Invalid, Dropped int
	}
	must.OK(t, json.Unmarshal(echo.stdout.Bytes(), &r))
	should.Hold(t, r.Answers["echo"] >= answers && r.Answers["arp"] != 0 && r.Invalid+r.Dropped == 0, "%+v, and ping has %d answers", r, answers)
}
