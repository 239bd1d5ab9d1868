package memif_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

func TestBadOptions(t *testing.T) {
	leaktest.Check(t)
	good := memif.Options{Socket: socketPath(t), Role: memif.Client}
	for _, tt := range []struct {
		name   string
		change func(o *memif.Options)
		says   string
	}{
		{"no role", func(o *memif.Options) { o.Role = 0 }, "Role"},
		{"no such role", func(o *memif.Options) { o.Role = 3 }, "Role"},
		{"no socket", func(o *memif.Options) { o.Socket = "" }, "Socket"},
		{"abstract socket without name", func(o *memif.Options) { o.Socket = "@" }, "Socket"},
		{"long socket", func(o *memif.Options) { o.Socket = "/" + strings.Repeat("x", 107) }, "107"},
		{"zero in socket", func(o *memif.Options) { o.Socket = "a\x00b" }, "Socket"},
		{"long secret", func(o *memif.Options) { o.Secret = strings.Repeat("x", memif.MaxSecret+1) }, "Secret"},
		{"zero in secret", func(o *memif.Options) { o.Secret = "a\x00" }, "Secret"},
		{"long name", func(o *memif.Options) { o.Name = strings.Repeat("x", memif.MaxName+1) }, "Name"},
		{"queues", func(o *memif.Options) { o.Queues = -1 }, "1..16"},
		{"many queues", func(o *memif.Options) { o.Queues = memif.MaxQueues + 1 }, "1..16"},
		{"ring of 1", func(o *memif.Options) { o.Ring = 1 }, "power of two"},
		{"ring of 100", func(o *memif.Options) { o.Ring = 100 }, "power of two"},
		{"large ring", func(o *memif.Options) { o.Ring = 2 * memif.MaxRing }, "16384"},
		{"negative ring", func(o *memif.Options) { o.Ring = -1024 }, "Ring"},
		{"odd buffers", func(o *memif.Options) { o.Buffer = 1500 }, "multiple of 64"},
		{"negative buffers", func(o *memif.Options) { o.Buffer = -64 }, "multiple of 64"},
		{"large buffers", func(o *memif.Options) { o.Buffer = 1 << 17 }, "multiple of 64"},
		{"too much memory", func(o *memif.Options) { o.Buffer, o.Ring, o.Queues = 1<<16, 1<<14, 16 }, "32 bits"},
		{"small MTU", func(o *memif.Options) { o.MTU = datasheet.MinMTU - 1 }, "160..65344"},
		{"large MTU", func(o *memif.Options) { o.MTU = datasheet.MaxMTU + 1 }, "160..65344"},
		{"MTU larger than a ring", func(o *memif.Options) { o.MTU, o.Buffer, o.Ring = 1025, 64, 16 }, "16 buffers of 64"},
		{"timeout", func(o *memif.Options) { o.Timeout = -time.Second }, "Timeout"},
	} {
		o := good
		tt.change(&o)
		if p, err := memif.New(o); p != nil || !errors.Is(err, wire.ErrOptions) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want one that says %q", tt.name, err, tt.says)
		}
	}
}

func TestSocketErrors(t *testing.T) {
	leaktest.Check(t)
	dir := filepath.Dir(socketPath(t))
	file := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	for socket, want := range map[string]error{
		file:                             unix.EADDRINUSE,
		filepath.Join(dir, "none", "s"):  unix.ENOENT,
		filepath.Join(file, "in a file"): unix.ENOTDIR,
	} {
		p, err := memif.New(memif.Options{Socket: socket, Role: memif.Server})
		var e *wire.Error
		if p != nil || !errors.Is(err, want) || !errors.As(err, &e) || e.Op != "listen" || !strings.Contains(e.Device, socket) || errors.Is(err, wire.ErrOptions) {
			t.Errorf("%s: error %v, want %v", socket, err, want)
		}
	}
}

// TestSocketIsTaken: a socket is one port's, in this process too, and goes with it.
func TestSocketIsTaken(t *testing.T) {
	for name, socket := range map[string]string{"path": socketPath(t), "abstract": abstractSocket(t)} {
		o := memif.Options{Socket: socket, Role: memif.Server}
		first := newPort(t, o)
		if p, err := memif.New(o); p != nil || !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: a second port: error %v", name, err)
		}
		stillWorks(t, first, o)
		should.OK(t, first.Close())
		newPort(t, o)
	}
}
