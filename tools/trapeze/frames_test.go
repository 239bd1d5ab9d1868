package trapeze_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// says waits until a process says something on stderr.
func (p *process) says(t *testing.T, what string) {
	t.Helper()
	awaitProgress(t, p, func() bool { return strings.Contains(p.stderr.String(), what) })
}

// TestFramesInterrupted: a signal ends a dump well, with a file that is whole.
func TestFramesInterrupted(t *testing.T) {
	needsProgram(t)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		name := fmt.Sprintf("emu:?wire=shm:@trapeze-interrupted-%d-%v", os.Getpid(), s == os.Interrupt)
		path := filepath.Join(t.TempDir(), "frames.pcapng")
		dump := start(t, "frames", "dump", "--device", name, "--output", path, "--progress", "plain")
		dump.says(t, "looking at frames")
		start(t, "frames", "gen", "--device", name, "--count", "100", "--to", "ff:ff:ff:ff:ff:ff").succeed(t)
		dump.says(t, "in ") // a line of rates: a second has gone by
		must.OK(t, dump.Process.Signal(s))
		dump.succeed(t)
		f := must.Get(os.Open(path))(t)
		r := must.Get(pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions))(t)
		n := 0
		for err := error(nil); err == nil; n++ {
			_, _, err = r.ReadPacketData()
		}
		_ = f.Close()
		matched := regexp.MustCompile(fmt.Sprintf(`(?m)^matched +%d$`, n-1))
		should.Hold(t, n >= 101 && matched.MatchString(dump.stdout.String()), "%d frames in the file; %s", n-1, dump.stdout.String())
	}
}
