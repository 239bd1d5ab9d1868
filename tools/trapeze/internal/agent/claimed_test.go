package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/cgrouptest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/via"
)

// claimedAddress, if set, has TestClaimedProcess open a NIC.
const claimedAddress = "TRAPEZE_TEST_CLAIMED"

// TestClaimedProcess is a program in a control group of other tests. It says what it has got.
func TestClaimedProcess(t *testing.T) {
	address := os.Getenv(claimedAddress)
	if address == "" {
		t.Skip("it is for other tests")
	}
	n, err := via.Open(t.Context(), address, via.Options{NoTelemetry: true})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = n.Close()
}

// claimed starts a program in a control group, and returns what it says and what ends it.
func claimed(t *testing.T, in func(*exec.Cmd), address string) (said string, end func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestClaimedProcess$")
	c.Env = append(os.Environ(), claimedAddress+"="+address)
	in(c)
	hold := must.Get(c.StdinPipe())(t)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	must.OK(t, err)
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = hold.Close()
			_ = c.Wait()
		}
	}
	t.Cleanup(end)
	return line, end
}

// TestClaim: a claim narrows what the file grants to the programs of its control group, also
// if they ask for more, and to no others. Once it is withdrawn, so is the NIC.
func TestClaim(t *testing.T) {
	group := fmt.Sprintf("/trapeze-test-%d", os.Getpid())
	in := cgrouptest.Make(t, group+"/pod")
	claims := filepath.Join(t.TempDir(), "claims")
	socket := serve(t, "claims = \""+claims+"\"\n"+local+"vis = 16\nmemory = \"64M\"\n[[grant]]\nname = \"wide\"\nusers = [\"*\"]\nvis = 1024\n")
	want := agentlink.Claim{NIC: "local", Cgroups: []string{group + "/other", group + "/pod"}, VIs: 4, Memory: 1 << 20, Rate: 1 << 30}
	write := func(c agentlink.Claim) {
		t.Helper()
		must.OK(t, agentlink.WriteClaim(claims, "c1", c))
	}
	write(want)
	at := func(options string) string { return "agent:?" + options + "socket=" + socket }
	says := func(options, says string) {
		t.Helper()
		said, end := claimed(t, in, at(options))
		should.Contain(t, said, says, "with %q", options)
		end()
	}
	says("vis=5&", "vis=5: claim c1 grants 4 at most")
	says("memory=2M&", "memory=2097152: claim c1 grants 1048576 bytes")
	open(t, at("vis=16&memory=64M&")) // of this program, which is in another group
	said, end := claimed(t, in, at(""))
	must.Be(t, said, "open\n")
	ofClaim := func(c agentlink.Client) bool { return c.Grant == "claim c1" }
	waittest.Until(t, "the client of the claim is listed", func() bool {
		clients := list(t, socket)
		i := slices.IndexFunc(clients, ofClaim)
		return i >= 0 && clients[i].VIs == 4 && clients[i].Direct == 0
	})
	says("", "as many NICs open") // a second NIC
	end()
	says("", "open\n")
	// What the claim leaves open is as the first grant has it.
	write(agentlink.Claim{NIC: "local", Cgroups: want.Cgroups})
	says("vis=17&", "vis=17: claim c1 grants 16 at most")
	says("memory=65M&", "memory=68157440: claim c1 grants 67108864 bytes")
	write(want)
	said, end = claimed(t, in, at(""))
	should.Hold(t, said == "open\n", "the claim as it was: %q", said)
	// Of a NIC that the claim is not about there is none.
	write(agentlink.Claim{NIC: "another", Cgroups: want.Cgroups})
	says("", "no grant")
	must.OK(t, agentlink.WithdrawClaim(claims, "c1"))
	waittest.Until(t, "the NIC is withdrawn", func() bool { return !slices.ContainsFunc(list(t, socket), ofClaim) })
	end()
}

// TestClaimedOnly: a grant for claimed programs is for no others. Claims that cannot be used, or that
// others could have written, are none.
func TestClaimedOnly(t *testing.T) {
	group := fmt.Sprintf("/trapeze-test-only-%d", os.Getpid())
	in := cgrouptest.Make(t, group)
	claims := filepath.Join(t.TempDir(), "claims")
	socket := serve(t, "claims = \""+claims+"\"\n"+local+"claimed = true\n")
	wants := func(what, says string) {
		t.Helper()
		said, end := claimed(t, in, "agent:?socket="+socket)
		should.Contain(t, said, says, "%s", what)
		end()
	}
	wants("no claim", "no grant")
	must.OK(t, agentlink.WriteClaim(claims, "c1", agentlink.Claim{NIC: "local", Cgroups: []string{group}}))
	wants("a claim", "open")
	_, err := via.Open(t.Context(), "agent:?socket="+socket, via.Options{NoTelemetry: true})
	should.Hold(t, err != nil && strings.Contains(err.Error(), "no grant"), "another group: %v", err)
	must.OK(t, os.Chmod(claims, 0o777))
	wants("a folder of everyone", "no grant")
	must.OK(t, os.Chmod(claims, 0o755))
	must.OK(t, os.WriteFile(filepath.Join(claims, "c1.json"), []byte(`{"nic":"local"`), 0o644))
	wants("a file that is cut off", "no grant")
}
