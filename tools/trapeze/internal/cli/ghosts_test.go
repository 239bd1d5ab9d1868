package cli_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/ghost"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestSendersThatDieWhileConnecting come before one that lives.
func TestSendersThatDieWhileConnecting(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	address := fmt.Sprint("127.0.0.1:", freePort(t))
	out := filepath.Join(t.TempDir(), "out.bin")
	received := make(chan outcome, 1)
	go func() {
		received <- runWith(ctx, nil, "recv", "--device", "emu:?wire=udp://"+address, "--output", out)
	}()
	ghost.Ask(t, address, []byte("trapeze-file/3"), 5, datasheet.ReliableDelivery, 256<<10)
	input, _ := file(t, "input.bin", 100_000)
	runWith(ctx, nil, "send", "--device", "emu:?wire=udp://127.0.0.1:0&peer="+address, input).exit(t, shell.ExitOK)
	o := <-received
	should.Hold(t, o.code == shell.ExitOK && digestOf(t, out) == digestOf(t, input), "recv: exit code %d, %s", o.code, o.stderr)
}

// TestClientsThatDieWhileConnecting come before one that lives.
func TestClientsThatDieWhileConnecting(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	address := fmt.Sprint("127.0.0.1:", freePort(t))
	serving, stop := context.WithCancel(ctx)
	served := make(chan outcome, 1)
	go func() { served <- runWith(serving, nil, "ping", "--serve", "--device", "emu:?wire=udp://"+address) }()
	for _, level := range []datasheet.Reliability{datasheet.Unreliable, datasheet.ReliableDelivery} {
		ghost.Ask(t, address, []byte("trapeze-ping/2"), 10, level, 64<<10)
		for _, more := range []string{"--unreliable", "--unreliable=false"} {
			o := runWith(ctx, nil, "ping", "-c", "2", "-i", "0s", more, "--device", "emu:?wire=udp://127.0.0.1:0&peer="+address)
			o.exit(t, shell.ExitOK, "received     2")
		}
	}
	stop()
	(<-served).exit(t, shell.ExitOK)
}
