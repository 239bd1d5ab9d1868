package tcpip_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// linux is a veth pair between two network namespaces: this program's stack runs by AF_XDP in the one, Linux' in the other.
type linux struct {
	t            *testing.T
	ours, theirs string // namespaces
	command      string // trapeze-ip
	device       []string
}

// newLinux makes one with an MTU, or skips the test.
func newLinux(t *testing.T, mtu int) *linux {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and AF_XDP take root")
	}
	for _, tool := range []string{"ip", "ethtool", "curl", "iperf3", "tshark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: apt-get install iproute2 ethtool curl iperf3 tshark", tool)
		}
	}
	id := fmt.Sprintf("%d-%d", os.Getpid(), cables.Add(1))
	l := &linux{t: t, ours: "tcpip-a-" + id, theirs: "tcpip-b-" + id, command: filepath.Join(t.TempDir(), "trapeze-ip")}
	if out, err := exec.Command("ip", "netns", "add", l.ours).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces: %s", out)
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", l.ours).Run()
		_ = exec.Command("ip", "netns", "del", l.theirs).Run()
	})
	l.must("go", "build", "-o", l.command, "./cmd/trapeze-ip")
	l.must("ip", "netns", "add", l.theirs)
	l.must("ip", "link", "add", "va", "netns", l.ours, "mtu", fmt.Sprint(mtu), "type", "veth", "peer", "name", "vb", "mtu", fmt.Sprint(mtu), "netns", l.theirs)
	for _, one := range [][2]string{{l.ours, "va"}, {l.ours, "lo"}, {l.theirs, "vb"}, {l.theirs, "lo"}} {
		l.must("ip", "-n", one[0], "link", "set", one[1], "up")
	}
	l.must("ip", "-n", l.theirs, "addr", "add", "10.9.0.1/24", "dev", "vb")
	l.must("ip", "-n", l.theirs, "addr", "add", "fd09::1/64", "dev", "vb", "nodad")
	// Linux leaves checksums to the NIC, and veth passes frames to AF_XDP without.
	l.must("ip", "netns", "exec", l.theirs, "ethtool", "-K", "vb", "tx", "off")
	l.device = []string{"--device", "afxdp:va", "--address", "10.9.0.2/24", "--mtu", fmt.Sprint(mtu)}
	return l
}

func (l *linux) must(name string, args ...string) string {
	l.t.Helper()
	c := exec.Command(name, args...)
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		l.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &said)
	}
	return string(out)
}

// in runs a command in a namespace.
func (l *linux) in(space, name string, args ...string) string {
	l.t.Helper()
	return l.must("ip", append([]string{"netns", "exec", space, name}, args...)...)
}

// ip runs trapeze-ip on the NIC.
func (l *linux) ip(command string, args ...string) string {
	l.t.Helper()
	return l.in(l.ours, l.command, append(append(strings.Fields(command), l.device...), args...)...)
}

// begin starts a command in a namespace, which ends with the test, and waits until it says word on stderr or stdout.
func (l *linux) begin(word, space, name string, args ...string) (end func()) {
	l.t.Helper()
	c := exec.Command("ip", append([]string{"netns", "exec", space, name}, args...)...)
	said := &output{}
	c.Stdout, c.Stderr = said, said
	must.OK(l.t, c.Start())
	stop := sync.OnceFunc(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	l.t.Cleanup(stop)
	for end := time.Now().Add(20 * time.Second); !strings.Contains(said.String(), word); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("%s does not say %q: %s", name, word, said)
		}
	}
	return stop
}

// TestLinux: curl, iperf3 and ping of Linux on one side, this package on the other, both ways.
func TestLinux(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			l := newLinux(t, mtu)
			folder := t.TempDir()
			page := make([]byte, 20<<20)
			_, _ = rand.Read(page)
			must.OK(t, os.WriteFile(filepath.Join(folder, "page"), page, 0o600))
			seen := filepath.Join(t.TempDir(), "seen.pcapng")
			captured := l.begin("Capturing on", l.theirs, "tshark", "-i", "vb", "-w", seen, "-c", "4000")
			l.begin("serving", l.theirs, l.command, "serve", "--kernel", "--listen", "10.9.0.1:80", folder)
			if got := l.ip("get", "http://10.9.0.1/page"); !bytes.Equal([]byte(got), page) {
				t.Errorf("ours gets %d bytes, other ones", len(got))
			}
			if out := l.ip("ping", "--count", "2", "--size", "4000", "10.9.0.1"); strings.Count(out, "4000 bytes from") != 2 {
				t.Errorf("ping: %s", out)
			}
			captured()
			bad := l.must("tshark", "-r", seen, "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
				"-Y", "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0 || _ws.expert.severity == error")
			if lines := strings.Count(l.must("tshark", "-r", seen), "\n"); bad != "" || lines < 1000 {
				t.Errorf("of %d packets tshark calls these bad:\n%s", lines, bad)
			}
			t.Run("serve", func(t *testing.T) {
				l := *l
				l.t = t
				l.begin("serving", l.ours, l.command, append(append([]string{"serve"}, l.device...), folder)...)
				if got := l.in(l.theirs, "curl", "-s", "--max-time", "60", "http://10.9.0.2/page"); !bytes.Equal([]byte(got), page) {
					t.Errorf("curl gets %d bytes, other ones", len(got))
				}
				l.in(l.theirs, "ping", "-c", "3", "-i", "0.2", "-s", "4000", "10.9.0.2")
			})
			t.Run("big", func(t *testing.T) {
				if !soak.Wanted() {
					t.Skip("10 GB take a minute: TRAPEZE_SOAK=1")
				}
				l := *l
				l.t = t
				path := filepath.Join(folder, "big")
				file := must.Get(os.Create(path))(t)
				const size = 10_000_000_000
				for at := int64(0); at < size; at += 97 << 20 { // a sparse file does not fill the disk
					must.Get(file.WriteAt(page[:1<<20], at))(t)
				}
				must.OK(t, errors.Join(file.Truncate(size), file.Close()))
				l.begin("serving", l.ours, l.command, append(append([]string{"serve"}, l.device...), folder)...)
				sums := "test $(curl -s http://10.9.0.2/big | sha256sum | cut -c1-64) = $(sha256sum <" + path + " | cut -c1-64)"
				l.in(l.theirs, "bash", "-c", sums)
			})
			t.Run("iperf3", func(t *testing.T) {
				l := *l
				l.t = t
				l.begin("listening", l.ours, "iperf3", "--server", "--forceflush")
				l.begin("forwarding", l.ours, l.command, append(append([]string{"forward"}, l.device...), ":5201", "127.0.0.1:5201")...)
				for _, way := range [][]string{nil, {"--reverse"}, {"--parallel", "8"}} {
					out := l.in(l.theirs, "iperf3", append([]string{"--client", "10.9.0.2", "--time", "2"}, way...)...)
					if !strings.Contains(out, "iperf Done") {
						t.Errorf("iperf3 %v: %s", way, out)
					}
				}
			})
		})
	}
}
