package kernel

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestWarning: a device without IOMMU is not opened quietly.
func TestWarning(t *testing.T) {
	old := slog.Default()
	t.Cleanup(func() { slog.SetDefault(old) })
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	ready(t, backendNoIOMMU)
	for _, want := range []string{"level=WARN", "NO IOMMU", "ALL memory", "pci:" + nic} {
		should.Hold(t, bytes.Contains(log.Bytes(), []byte(want)), "%q is not in: %s", want, log.Bytes())
	}
}

// TestNormalPages: memory that may move is refused.
func TestNormalPages(t *testing.T) {
	_, d := ready(t, backendNoIOMMU)
	mem := alloc(t, 4096)
	for what, err := range map[string]error{"map": d.MapDMA(mem, 0x100000, both), "locate": second(d.PhysicalAddress(mem))} {
		if !errors.Is(err, vfio.ErrNotSupported) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		says(t, err, "normal pages", "HugeRequire", nic)
	}
	must.OK(t, mem.Close())
	should.Refuse(d.PhysicalAddress(mem))(t, vfio.ErrClosed, "closed memory")
}

func second[T any](_ T, err error) error { return err }

// The optional interfaces that drivers look for.
var (
	_ vfio.Physical = (*Device)(nil)
	_ vfio.Alerter  = (*Device)(nil)
)

func TestUnguarded(t *testing.T) {
	forEachBackend(t, func(t *testing.T, _ *fake, d *Device) {
		should.Be(t, d.Unguarded(), d.Info().Backend == backendNoIOMMU, "unguarded")
	})
}

func TestPhysicalAddressBehindIOMMU(t *testing.T) {
	_, d := ready(t, backendGroup)
	should.Refuse(d.PhysicalAddress(alloc(t, 4096)))(t, vfio.ErrNotSupported)
}

// TestLocate reads page maps of all kinds.
func TestLocate(t *testing.T) {
	const present = pagemapPresent
	page := uint64(os.Getpagesize())
	for _, tt := range []struct {
		name    string
		pages   uint64
		pagemap func(n uint64) uint64 // entry of page n of the memory
		want    uint64
		err     error
		says    string
	}{
		{"one page", 1, func(uint64) uint64 { return present | 77 }, 77 * page, nil, ""},
		{"soft-dirty and exclusive bits", 1, func(uint64) uint64 { return present | 1<<55 | 1<<56 | 1<<61 | 77 }, 77 * page, nil, ""},
		{"in one piece", 1500, func(n uint64) uint64 { return present | (5000 + n) }, 5000 * page, nil, ""},
		{"in two pieces", 1500, func(n uint64) uint64 { return present | (5000 + n + n/1200) }, 0, vfio.ErrNotSupported, "one piece"},
		{"backwards", 2, func(n uint64) uint64 { return present | (5000 - n) }, 0, vfio.ErrNotSupported, "one piece"},
		{"swapped out", 3, func(n uint64) uint64 { return 1<<62 | (5000 + n) }, 0, unix.EFAULT, "not in memory"},
		{"hidden", 3, func(uint64) uint64 { return present }, 0, unix.EPERM, "CAP_SYS_ADMIN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, d := ready(t, backendNoIOMMU)
			const base = 0x7f0000000000
			k.pagemap = func(n uint64) uint64 { return tt.pagemap(n - base/page) }
			s := d.domain.space.(*unguardedSpace)
			got, err := s.locate(base, tt.pages*page)
			must.Hold(t, errors.Is(err, tt.err) && got == tt.want, "address %#x, %v; want %#x, %v", got, err, tt.want, tt.err)
			if err != nil {
				says(t, d.fail("locate", err, ""), tt.says)
			}
		})
	}
}

func TestPagemapCannotBeRead(t *testing.T) {
	k, d := ready(t, backendNoIOMMU)
	k.fail["read pagemap"] = unix.EIO
	should.Refuse(d.domain.space.(*unguardedSpace).locate(0x1000, 4096))(t, unix.EIO)
}

// TestSystemRAM: bus addresses are where memory is.
func TestSystemRAM(t *testing.T) {
	for _, tt := range []struct {
		name, iomem string
		want        []vfio.IOVARange
	}{
		{"told", "00001000-0009fbff : System RAM\n00100000-1ffdffff : System RAM\n  01000000-01ffffff : Kernel code\nfee00000-fee00fff : Local APIC\n",
			[]vfio.IOVARange{{First: 0x1000, Last: 0x9fbff}, {First: 0x100000, Last: 0x1ffdffff}}},
		{"hidden", "00000000-00000000 : System RAM\n00000000-00000000 : Reserved\n", everything},
		{"nonsense", "System RAM\nx-y : System RAM\n", everything},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, d := ready(t, backendNoIOMMU)
			must.OK(t, d.Close())
			k.tr.file(tt.iomem, "proc/iomem")
			d = mustOpen(t, d.host, d.Info().Address)
			got, err := d.IOVARanges()
			diff := cmp.Diff(tt.want, got)
			should.Hold(t, err == nil && diff == "", "%v, %v", err, diff)
		})
	}
}
