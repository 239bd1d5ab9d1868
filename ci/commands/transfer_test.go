package commands_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

func TestSendAndReceive(t *testing.T) {
	needsProgram(t)
	for _, tt := range []struct {
		name, wire string
		bytes      int64
	}{
		{"empty file", "", 0},
		{"clean wire", "", 20_000_003},
		{"20 % loss both ways", "&loss=0.2&seed=1", 2_000_003},
		{"everything goes wrong", "&loss=0.05&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=2", 2_000_003},
	} {
		t.Run(tt.name, func(t *testing.T) {
			receiver, sender := udpPair(t, tt.wire)
			input := randomFile(t, tt.bytes)
			output := filepath.Join(t.TempDir(), "out.bin")
			recv := start(t, "recv", "--device", receiver, "--output", output)
			send := start(t, "send", "--device", sender, input)
			send.succeed(t)
			recv.succeed(t)
			if got, want := digestOf(t, output), digestOf(t, input); got != want {
				t.Errorf("sha256 %s arrived, %s was sent", got, want)
			}
			onlyFile(t, output)
		})
	}
}

// TestReceiverDies kills the receiver in the middle of a file: the sender ends
// with an error that says so.
func TestReceiverDies(t *testing.T) {
	needsProgram(t)
	receiver, sender := udpPair(t, "")
	output := filepath.Join(t.TempDir(), "out.bin")
	recv := start(t, "recv", "--device", receiver, "--output", output)
	send := start(t, "send", "--device", sender, endlessFile(t))
	awaitData(t, output, recv, send)

	killed := time.Now()
	if err := recv.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	code := send.code(t)
	t.Logf("the sender ended %v after the receiver: exit code %d, %s", time.Since(killed).Round(time.Millisecond), code, lastLine(&send.stderr))
	if code <= 0 {
		t.Errorf("exit code %d, want an error", code)
	}
	if lastLine(&send.stderr) == "" {
		t.Error("the sender does not say why it failed")
	}
	notThere(t, output)
}

// TestSenderDies kills the sender in the middle of a file: the receiver ends
// with an error, and leaves nothing behind.
func TestSenderDies(t *testing.T) {
	needsProgram(t)
	receiver, sender := udpPair(t, "")
	output := filepath.Join(t.TempDir(), "out.bin")
	recv := start(t, "recv", "--device", receiver, "--output", output)
	send := start(t, "send", "--device", sender, endlessFile(t))
	awaitData(t, output, recv, send)

	killed := time.Now()
	if err := send.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	code := recv.code(t)
	t.Logf("the receiver ended %v after the sender: exit code %d, %s", time.Since(killed).Round(time.Millisecond), code, lastLine(&recv.stderr))
	if code <= 0 {
		t.Errorf("exit code %d, want an error", code)
	}
	if lastLine(&recv.stderr) == "" {
		t.Error("the receiver does not say why it failed")
	}
	if left, err := os.ReadDir(filepath.Dir(output)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestInterruptedReceiverCleansUp stops the receiver as Ctrl-C does.
func TestInterruptedReceiverCleansUp(t *testing.T) {
	needsProgram(t)
	receiver, sender := udpPair(t, "")
	output := filepath.Join(t.TempDir(), "out.bin")
	recv := start(t, "recv", "--device", receiver, "--output", output)
	send := start(t, "send", "--device", sender, endlessFile(t))
	awaitData(t, output, recv, send)

	if err := recv.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := recv.code(t); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code of the receiver is %d\n%s", code, &recv.stderr)
	}
	if code := send.code(t); code <= 0 {
		t.Errorf("exit code of the sender is %d\n%s", code, &send.stderr)
	}
	if left, err := os.ReadDir(filepath.Dir(output)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestNobodyReceives(t *testing.T) {
	needsProgram(t)
	_, sender := udpPair(t, "")
	send := start(t, "send", "--timeout", "300ms", "--device", sender, randomFile(t, 10))
	if code := send.code(t); code <= 0 {
		t.Errorf("exit code %d, want an error", code)
	}
	if lastLine(&send.stderr) == "" {
		t.Error("the sender does not say why it failed")
	}
}

// TestLinesOfWires: what a wire logs has the format and the level that the user has named.
func TestLinesOfWires(t *testing.T) {
	needsProgram(t)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"--log-format json": `"msg":"UDP wire: the peer has no key,`, "--log-level warn": `level=WARN msg="UDP wire: the peer has no key,`, "--log-level error": "",
	} {
		receiver, sender := udpPair(t, "")
		recv := start(t, append(strings.Fields(flags), "recv", "--device", receiver+"&key="+key, "--output", filepath.Join(t.TempDir(), "out"))...)
		waittest.Until(t, "recv waits", func() bool { return strings.Contains(recv.stderr.String(), "waiting for a file") })
		if code := start(t, "send", "--timeout", "300ms", "--device", sender, randomFile(t, 10)).code(t); code != 5 {
			t.Errorf("send ends with %d", code)
		}
		waittest.Until(t, "a line as "+flags+" says", func() bool { return strings.Contains(recv.stderr.String(), want) })
		if err := recv.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if recv.code(t); want == "" && strings.Contains(recv.stderr.String(), "has no key") {
			t.Errorf("%s: %s", flags, &recv.stderr)
		}
	}
}

// randomFile makes a file of n bytes that are the same in every run.
func randomFile(t *testing.T, n int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "input.bin")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), n)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// endlessFile makes a file that takes longer to send than any test waits. It
// takes no room.
func endlessFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "endless.bin")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(1<<40), f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

func digestOf(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// awaitData waits until recv has received a good part of its file.
func awaitData(t *testing.T, output string, recv, send *process) {
	t.Helper()
	awaitProgress(t, recv, func() bool { return recv.hasWritten(t, output, 1<<20) })
}

// hasWritten reports whether a process has written n bytes of a file: it has one open in
// the folder of output, with another name or none.
func (p *process) hasWritten(t *testing.T, output string, n int64) bool {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		fd := filepath.Join(fds, e.Name())
		if to, err := os.Readlink(fd); err != nil || filepath.Dir(to) != filepath.Dir(output) {
			continue
		}
		if info, err := os.Stat(fd); err == nil && info.Size() >= n {
			notThere(t, output)
			return true
		}
	}
	return false
}

func notThere(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a half-written file stands under its final name: %v", err)
	}
}

// onlyFile checks that nothing else was left beside a file.
func onlyFile(t *testing.T, name string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("beside the file there are %v", entries)
	}
}

func lastLine(w *outputtest.Buffer) string {
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	return lines[len(lines)-1]
}
