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
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
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
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), holder) {
		t.Errorf("does not say that it is busy, or not that %s holds it", holder)
	}
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
	if !strings.Contains(said, "permission denied") || !strings.Contains(said, "chown") {
		t.Errorf("without the nodes: %s", said)
	}
	for _, n := range nodes {
		if err := os.Chown(n, user, user); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(n, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chown(n, 0, 0) })
	}
	var old unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &old, nil) })
	t.Run("within the limit", func(t *testing.T) {
		if said := child(t, addressOf(f), as("65536")); !strings.HasPrefix(said, "process") {
			t.Error(said)
		}
	})
	t.Run("over the limit", func(t *testing.T) {
		said := child(t, addressOf(f), as("4194304"))
		for _, want := range []string{"cannot allocate memory", "4194304 bytes are wanted", "at most 1048576", "ulimit -l", "LimitMEMLOCK"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not in: %s", want, said)
			}
		}
	})
}
