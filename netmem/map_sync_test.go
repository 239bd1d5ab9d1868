package netmem_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/netmem"
)

// mapperArgument makes a run of this test binary map the source of the second argument, write to
// it and stay.
const mapperArgument = "run-as-mapper"

// lockVariable has the mapper lock all that it maps.
const lockVariable = "TRAPEZE_TEST_LOCK"

// mark is what the mapper writes to the first byte of each page.
const mark = 0x5a

func init() {
	if len(os.Args) != 3 || os.Args[1] != mapperArgument {
		return
	}
	if os.Getenv(lockVariable) != "" {
		if err := unix.Mlockall(unix.MCL_FUTURE); err != nil {
			fmt.Println("mlockall:", err)
			os.Exit(1)
		}
	}
	m, err := mapAs(os.Args[2])
	if err == nil {
		for at := 0; at < len(m.Bytes()); at += m.PageSize() {
			m.Bytes()[at] = mark
		}
		fmt.Println("written", m.UserModeOnly())
		_, _ = io.Copy(io.Discard, os.Stdin)
		err = m.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// mapAs maps the source that text describes, with this program as the pager.
func mapAs(text string) (*netmem.Mapping, error) {
	var s fileSource
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return netmem.Map(context.Background(), netmem.MapOptions{Command: []string{"/proc/self/exe", pagerArgument, text}, Local: 16 * int64(s.Page), Stderr: os.Stderr})
}

// startMapper starts a mapper, and returns its first line.
func startMapper(t *testing.T, s *fileSource, change func(*exec.Cmd)) (*exec.Cmd, io.Closer, string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", mapperArgument, s.command(t)[2])
	cmd.Stderr = os.Stderr
	if change != nil {
		change(cmd)
	}
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	return cmd, in, strings.TrimSpace(line)
}

// TestSync: what was written is in the source after Sync, and what is written later after the
// next.
func TestSync(t *testing.T) {
	const page = 16 << 10
	model := random(40*page, 1)
	s := newSource(t, page, model)
	m := open(t, s, netmem.MapOptions{Local: 24 * page})
	for round := range 4 {
		for at := round * 64; at < len(model); at += page / 2 {
			m.Bytes()[at]++
			model[at]++
		}
		must.OK(t, m.Sync(t.Context()))
		s.want(t, model)
		must.Same(t, m.Bytes(), model, "round %d", round)
	}
	stats, err := m.Stats(t.Context())
	must.OK(t, err)
	before := stats.Back
	must.OK(t, m.Sync(t.Context()))
	if stats, err = m.Stats(t.Context()); err != nil || stats.Back != before {
		t.Errorf("%d pages were written back that nobody had written, %v", stats.Back-before, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m.Bytes()[0]++
	if err := m.Sync(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	should.OK(t, m.Close())
	if err := m.Do(func() {}); !errors.Is(err, net.ErrClosed) || m.Close() != nil {
		t.Errorf("after Close: %v", err)
	}
}

// TestMapperKilled: what a process has written before it was killed gets to the source.
func TestMapperKilled(t *testing.T) {
	const page = 4 << 10
	s := newSource(t, page, make([]byte, 60*page))
	cmd, _, line := startMapper(t, s, nil)
	if !strings.HasPrefix(line, "written") {
		t.Skip(line)
	}
	must.OK(t, cmd.Process.Kill())
	written := func() bool {
		got := must.Get(os.ReadFile(s.Path))(t)
		n := 0
		for at := 0; at < len(got); at += page {
			if got[at] == mark {
				n++
			}
		}
		return n == 60
	}
	waittest.Until(t, "what the mapper wrote in the source", written)
}
