package bench_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// TestCompareVeth: a stream of ours crosses two interfaces, and socat's, if it is here; the
// program is in the network where it was.
func TestCompareVeth(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	if os.Geteuid() != 0 {
		t.Skip("it takes root")
	}
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	rows := bench.RootRows()
	c := bench.Comparison{Wire: bench.UsualWire, Rounds: 1, For: 50 * time.Millisecond, Pairs: samePair(), Rows: rows}
	_, missing := exec.LookPath("socat")
	if missing == nil {
		c.Peers = append(c.Peers, peer(t, "socat"))
	}
	rows, err = c.Compare(context.Background())
	if errors.Is(err, unix.EPERM) || err != nil && strings.Contains(err.Error(), "not supported") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.Unit != "MB/s" || r.Better != "higher" || r.Ours <= 0 || missing == nil && r.Peers["socat"] <= 0 || len(r.Failures) > 0 {
			t.Errorf("%+v", r)
		}
	}
	if now, err := netns.Get(); err != nil || !now.Equal(home) {
		t.Errorf("the program is in another network namespace: %v", err)
	} else {
		_ = now.Close()
	}
}

// TestVethWithoutRoot: a thread without rights gets an error that says what it takes.
func TestVethWithoutRoot(t *testing.T) {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread has lost its rights, and ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			ended <- err
			return
		}
		_, err := bench.Run(context.Background(), task(bench.Latency, "veth"))
		ended <- err
	}()
	if err := <-ended; !errors.Is(err, unix.EPERM) || !strings.HasSuffix(err.Error(), "takes root: operation not permitted") {
		t.Errorf("%v", err)
	}
}
