package netmem_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	killPage, killPages = 64 << 10, 8
	killEnv             = "NETMEM_KILLED_SERVER"
)

// killedServer: a process that lends a file is killed while pages of 64 KiB are written. Then
// each page is old or new as a whole, and what was acknowledged is there.
func killedServer(t *testing.T) {
	rounds := soak.Count(6, 100)
	path := filepath.Join(netmem.MemoryDir(t), "lent")
	if err := os.WriteFile(path, make([]byte, killPage*killPages), 0o600); err != nil {
		t.Fatal(err)
	}
	var acknowledged [killPages]uint64
	total := 0
	for round := range rounds {
		total += killedWriter(t, path, uint64(round+1)<<32, &acknowledged)
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { readAfterKill(t, path, round, &acknowledged) })
		if t.Failed() {
			return
		}
	}
	if total == 0 {
		t.Fatal("no writer was killed while it wrote")
	}
}

// readAfterKill lends the file again and looks at each page.
func readAfterKill(t *testing.T, path string, round int, acknowledged *[killPages]uint64) {
	t.Helper()
	r := newRigBesides(t, emulator.PairOptions{})
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := r.serve(netmem.ServerOptions{Page: killPage, File: file})
	c := r.open(netmem.Options{Cache: 8 * killPage}, s)
	for page := range acknowledged {
		b := r.read(c, killPage, int64(page*killPage))
		got := binary.LittleEndian.Uint64(b)
		if !bytes.Equal(b, bytes.Repeat(b[:8], killPage/8)) {
			t.Fatalf("round %d: page %d is half old and half new", round, page)
		}
		if got < acknowledged[page] {
			t.Fatalf("round %d: page %d is write %x, and %x was acknowledged", round, page, got, acknowledged[page])
		}
		acknowledged[page] = got
	}
	r.close(c)
	r.kill(s)
}

// killedWriter runs writeUntilKilled in a process of its own, kills it and returns how many
// writes were acknowledged.
func killedWriter(t *testing.T, path string, first uint64, acknowledged *[killPages]uint64) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledWriter$")
	cmd.Env = append(os.Environ(), killEnv+"="+path, killEnv+"_FIRST="+strconv.FormatUint(first, 10))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, seen, last := bufio.NewScanner(out), 0, ""
	for lines.Scan() {
		last = lines.Text()
		var page int
		var n uint64
		if _, err := fmt.Sscanf(last, "wrote %d %d", &page, &n); err != nil {
			continue
		}
		acknowledged[page] = n
		if seen++; seen == 1 {
			time.AfterFunc(time.Duration(rand.IntN(8000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || !strings.Contains(exit.String(), "killed") {
		t.Fatalf("the writer ended by itself: %v, %q", err, last)
	}
	return seen
}

// TestKilledWriter is the process of killedServer: a server and its client.
func TestKilledWriter(t *testing.T) {
	path := os.Getenv(killEnv)
	if path == "" {
		t.Skip("it is started by TestAway")
	}
	n, err := strconv.ParseUint(os.Getenv(killEnv+"_FIRST"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	near, err1 := via.OpenDevice(t.Context(), a, via.Options{})
	far, err2 := via.OpenDevice(t.Context(), b, via.Options{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s, err := netmem.NewServer(t.Context(), far, netmem.ServerOptions{Page: killPage, File: file})
	if err != nil {
		t.Fatal(err)
	}
	c, err := netmem.Open(t.Context(), near, []string{s.Address().String()}, netmem.Options{Cache: 8 * killPage, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); n++ { // killed long before
		page := int(n % killPages)
		content := bytes.Repeat(binary.LittleEndian.AppendUint64(nil, n), killPage/8)
		_, err := c.WriteAt(content, int64(page*killPage))
		if err := errors.Join(err, c.Sync()); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("wrote %d %d\n", page, n)
	}
}
