package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// hold is what this program does as a child of a test: it opens a device, maps
// as much memory as it is told to, says how that went in one line, and waits
// for the end of its standard input.
func hold(address string) int {
	var size uint64
	fmt.Sscan(os.Getenv("TRAPEZE_MAP"), &size)
	d, err := vfio.Open(context.Background(), address)
	if err == nil {
		defer d.Close()
		if size > 0 {
			err = mapSome(d, size)
		}
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 0
	}
	fmt.Println("holding")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

func mapSome(d vfio.Device, size uint64) error {
	mem, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return err
	}
	return d.MapDMA(mem, 0x100000, vfio.DMARead)
}

// child runs this program as hold, and returns what it says.
func child(t *testing.T, address string, change func(*exec.Cmd)) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), holdVariable+"="+address)
	if change != nil {
		change(cmd)
	}
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		should.OK(t, cmd.Wait())
	})
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	line = strings.TrimSpace(line)
	t.Logf("process %d: %s", cmd.Process.Pid, line)
	if line == "holding" {
		return fmt.Sprintf("process %d", cmd.Process.Pid)
	}
	return line
}

// TestBusy: another process has the device, and the error says which.
func TestBusy(t *testing.T) {
	f := alone(t, eduID, false)
	bind(t, f, "vfio-pci")
	holder := child(t, addressOf(f), nil)
	d, err := vfio.Open(within(t), addressOf(f))
	if err == nil {
		d.Close()
		t.Fatal("opened although another process holds it")
	}
	t.Log(err)
	should.Hold(t, errors.Is(err, unix.EBUSY) && strings.Contains(err.Error(), holder), "does not say that it is busy, or not that %s holds it", holder)
}

// TestWithoutRoot opens a device as a user who has been given its nodes, and
// maps what the user may lock, then more.
func TestWithoutRoot(t *testing.T) {
	needIOMMU(t)
	const user = 1000
	f := alone(t, eduID, false)
	bind(t, f, "vfio-pci")
	nodes := []string{"/dev/vfio/vfio", fmt.Sprintf("/dev/vfio/%d", group(t, f))}
	if backend() == "cdev" {
		nodes = []string{"/dev/iommu", nodeOf(f)}
	}
	as := func(size string) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "TRAPEZE_MAP="+size)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		}
	}
	said := child(t, addressOf(f), as("0"))
	should.Hold(t, strings.Contains(said, "permission denied") && strings.Contains(said, "trapeze doctor"), "without the nodes: %s", said)
	for _, n := range nodes {
		must.OK(t, os.Chown(n, user, user))
		must.OK(t, os.Chmod(n, 0o600))
		t.Cleanup(func() { os.Chown(n, 0, 0) })
	}
	var old unix.Rlimit
	must.OK(t, unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, &old))
	t.Cleanup(func() { unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &old, nil) })
	t.Run("within the limit", func(t *testing.T) {
		if said := child(t, addressOf(f), as("65536")); !strings.HasPrefix(said, "process") {
			t.Error(said)
		}
	})
	t.Run("over the limit", func(t *testing.T) {
		said := child(t, addressOf(f), as("4194304"))
		for _, want := range []string{"cannot allocate memory", "4194304 bytes are wanted", "at most 1048576", "ulimit -l", "LimitMEMLOCK"} {
			should.Contain(t, said, want, "is not")
		}
	})
}
