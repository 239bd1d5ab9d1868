package mqnic_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
	"github.com/trapeze-nic/trapeze/ci/kit/programtest"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// long is far more than a command takes.
const long = 2 * time.Minute

// buildTrapeze builds the command and returns its path.
func buildTrapeze(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the command: not with -short")
	}
	folder, err := programtest.Build("trapeze")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "trapeze")
}

// output is what a command has printed; its methods may be called while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// serve serves a device to one client after the other until the test ends, and returns the socket.
func serve(t *testing.T, d *fakemqnic.Device) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "board.sock")
	l, err := vfiouser.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- vfiouser.Serve(ctx, l, fakepci.Served{Function: d.Function}, vfiouser.ServerOptions{Logger: quiet})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if l := d.Log(); len(l.Strays) > 0 {
			t.Errorf("strays: %v", l.Strays)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return path
}

// cabled serves two devices that are joined by a cable, and returns their sockets.
func cabled(t *testing.T) (a, b string) {
	t.Helper()
	var ends [2]*fakemqnic.Device
	for i := range ends {
		var err error
		if ends[i], err = fakemqnic.New(fakemqnic.Options{Queues: 4}); err != nil {
			t.Fatal(err)
		}
	}
	var cable sync.WaitGroup
	stop := make(chan struct{})
	for i, d := range ends {
		frames := make(chan []byte, 4096)
		d.OnSend = func(s fakemqnic.Sent) {
			select {
			case frames <- s.Bytes:
			default: // the cable is full: a frame is lost
			}
		}
		cable.Go(func() {
			for {
				select {
				case b := <-frames:
					ends[1-i].Arrive(0, b)
				case <-stop:
					return
				}
			}
		})
	}
	t.Cleanup(func() { close(stop); cable.Wait() })
	return serve(t, ends[0]), serve(t, ends[1])
}

// TestSendRecv sends a file from one board to another with the commands.
func TestSendRecv(t *testing.T) {
	trapeze := buildTrapeze(t)
	a, b := cabled(t)
	dir := t.TempDir()
	want := make([]byte, 300_001)
	if _, err := rand.Read(want); err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, want, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var told output
	recv := exec.CommandContext(ctx, trapeze, "recv", "--device", "eth:vfio-user:"+a, "--output", out)
	recv.Stderr, recv.Stdout = &told, &told
	if err := recv.Start(); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(ctx, trapeze, "send", "--device", "eth:vfio-user:"+b, in).CombinedOutput()
	if err != nil {
		cancel()
		_ = recv.Wait()
		t.Fatalf("send: %v: %s; recv: %s", err, text, told.String())
	}
	if err := recv.Wait(); err != nil {
		t.Fatalf("recv: %v: %s", err, told.String())
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came, %v", len(got), len(want), err)
	}
}

// TestFramesEcho pings a board on which frames echo answers, and looks at what info says.
func TestFramesEcho(t *testing.T) {
	trapeze := buildTrapeze(t)
	d, err := fakemqnic.New(fakemqnic.Options{Queues: 4})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan []byte, 64)
	d.OnSend = func(s fakemqnic.Sent) {
		select {
		case answers <- s.Bytes:
		default:
		}
	}
	device := "vfio-user:" + serve(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var told output
	echo := exec.CommandContext(ctx, trapeze, "frames", "echo", "--device", device, "--ip", "10.0.0.2")
	echo.Stderr, echo.Stdout = &told, &told
	if err := echo.Start(); err != nil {
		t.Fatal(err)
	}
	// ask repeats a frame until an answer passes.
	ask := func(frame []byte, passes func(b []byte) bool) []byte {
		t.Helper()
		for ctx.Err() == nil {
			d.Arrive(0, frame)
			select {
			case b := <-answers:
				if passes(b) {
					return b
				}
			case <-time.After(100 * time.Millisecond):
			}
		}
		t.Fatalf("no answer: %s", told.String())
		return nil
	}
	us := []byte{2, 0, 0, 0, 0, 0x66}
	request := append(bytes.Repeat([]byte{0xff}, 6), us...)
	request = append(request, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	request = append(append(request, us...), 10, 0, 0, 1)
	request = append(append(request, make([]byte, 6)...), 10, 0, 0, 2)
	reply := ask(request, func(b []byte) bool { return b[12] == 8 && b[13] == 6 && b[21] == 2 && bytes.Equal(b[:6], us) })
	ping := append(bytes.Clone(reply[6:12]), us...)
	ping = append(ping, 8, 0, 0x45, 0, 0, 36, 0, 1, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	binary.BigEndian.PutUint16(ping[24:], ^inetsum.Of(ping[14:34]))
	ping = append(ping, 8, 0, 0, 0, 0, 1, 0, 1, 't', 'r', 'a', 'p', 'e', 'z', 'e', '!')
	binary.BigEndian.PutUint16(ping[36:], ^inetsum.Of(ping[34:]))
	pong := ask(ping, func(b []byte) bool { return len(b) >= 50 && b[12] == 8 && b[13] == 0 && b[23] == 1 && b[34] == 0 })
	if string(pong[42:50]) != "trapeze!" || inetsum.Of(pong[34:50]) != 0xffff {
		t.Errorf("answer % x", pong)
	}
	if err := echo.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := echo.Wait(); err != nil {
		t.Errorf("echo: %v: %s", err, told.String())
	}

	text, err := exec.CommandContext(ctx, trapeze, "info", "--device", device, "--json").Output()
	var r struct {
		Driver string
		Tables []struct{ Name string }
	}
	if jerr := json.Unmarshal(text, &r); err != nil || jerr != nil || r.Driver != "mqnic" || len(r.Tables) != 7 {
		t.Errorf("info: %v, %v, %s", err, jerr, text)
	}
	text, err = exec.CommandContext(ctx, trapeze, "info", "--device", device).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "SPI_FLASH") || !strings.Contains(string(text), "Alveo U200") {
		t.Errorf("info: %v: %s", err, text)
	}
}
