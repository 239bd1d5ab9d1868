package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// echo runs trapeze frames echo at an address, until stop, which returns what it reports.
func echo(t *testing.T, address string, more ...string) (stop func() echoed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "trapeze", append([]string{"frames", "echo", "--json", "--device", address, "--ip", ourIP}, more...)...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	must.OK(t, cmd.Start())
	var once sync.Once
	end := func() (err error) {
		once.Do(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			err = cmd.Wait()
		})
		return err
	}
	t.Cleanup(func() { _ = end() })
	return func() (r echoed) {
		t.Helper()
		err := end()
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &r)
		}
		must.OK(t, err, "%s%s", out.Bytes(), complaints.Bytes())
		return r
	}
}

// echoed is what this test wants of the report.
type echoed struct {
	Answers struct{ ARP, Echo uint64 }
	Invalid uint64
	Dropped uint64
	Ports   []struct {
		Program *struct {
			Name string
			Maps map[string][]struct{ Value string }
		}
	}
}

// pinged runs Linux's ping, and returns how many of count requests were answered.
func (l *peer) pinged(count int, args ...string) (received int) {
	l.t.Helper()
	// It ends after a minute: if nobody answers it sends one a second.
	all := append([]string{"-t", l.pid, "-n", "timeout", "60", "ping", "-q", "-w", "55", "-c", fmt.Sprint(count)}, args...)
	out, _ := exec.Command("nsenter", append(all, ourIP)...).CombinedOutput() // without an answer it fails
	sent := 0
	for _, line := range strings.Split(string(out), "\n") {
		if n, _ := fmt.Sscanf(line, "%d packets transmitted, %d packets received", &sent, &received); n == 2 {
			break
		}
	}
	if sent != count {
		l.t.Logf("ping %q: %s", args, out)
	}
	return received
}

// waitEcho waits for the first answer.
func (l *peer) waitEcho() {
	l.t.Helper()
	waittest.Until(l.t, "an answer comes", func() bool { return l.pinged(1, "-W", "1") == 1 })
}

// TestPairEcho makes the command answer Linux's ping, which sends the next request as soon as
// an answer comes.
func TestPairEcho(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		const count = 2000
		l := p.linux(t)
		function := p.ours(t)
		bind(t, function, "vfio-pci")
		stop := echo(t, addressOf(function))
		l.waitEcho()
		for _, size := range []string{"56", "1472"} {
			should.Be(t, l.pinged(count, "-A", "-s", size), count, "requests of %s bytes were answered", size)
		}
		r := stop()
		should.Hold(t, r.Answers.ARP != 0 && r.Answers.Echo >= 2*count && r.Invalid+r.Dropped == 0, "reported %+v", r)
	})
}

// TestPairAccessList has the program acl filter these frames, in an engine whose wire the NIC
// is: requests from one of Linux's addresses are dropped, those from the other are answered.
func TestPairAccessList(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		const count, bad = 1000, "10.7.0.66"
		l := p.linux(t)
		l.run("ip", "addr", "add", bad+"/24", "dev", l.name)
		function := p.ours(t)
		bind(t, function, "vfio-pci")
		key := firmware.FlowKey(netip.AddrPortFrom(netip.MustParseAddr(bad), 0), netip.AddrPortFrom(netip.MustParseAddr(ourIP), 0), protocolICMP)
		drop := firmware.Rule{Action: firmware.FilterDrop}
		wire := strings.NewReplacer("?", "%3F", "&", "%26", "=", "%3D").Replace(addressOf(function))
		stop := echo(t, "emu:?wire="+wire, "--image", "acl", "--map", fmt.Sprintf("rules:%x=%x", key, drop.Bytes()), "--show-map", "rules")
		l.waitEcho()
		const few = 100
		should.Be(t, l.pinged(few, "-i", "0.01", "-W", "1", "-I", bad), 0, "of %d requests that are to be dropped were answered", few)
		should.Be(t, l.pinged(count, "-A", "-I", theirIP), count, "requests were answered")
		r := stop()
		if r.Answers.Echo < count || r.Dropped != 0 || len(r.Ports) != 1 || r.Ports[0].Program == nil || r.Ports[0].Program.Name != "acl" {
			t.Fatalf("reported %+v", r)
		}
		drop.Hits = few
		rules := r.Ports[0].Program.Maps["rules"]
		should.Hold(t, len(rules) == 1 && rules[0].Value == fmt.Sprintf("%x", drop.Bytes()), "the rules are %+v", rules)
	})
}
