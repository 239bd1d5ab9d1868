package nic

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/round"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

const (
	// DefaultMTU is a frame of the 1500 bytes of payload that every Ethernet carries, and
	// MaxMTU one of the 9000 of jumbo frames; both with the Ethernet header, as the MTU of
	// all wires is (SPEC.md 8).
	DefaultMTU = 1500 + ethernet.HeaderSize
	MaxMTU     = ethernet.MaxMTU + ethernet.HeaderSize
	// Those of virtual interfaces may be longer.
	maxOverAFXDP = ethernet.MaxMTUOverAFXDP + ethernet.HeaderSize

	// ringSize is the number of descriptors that the NIC has for each direction: eight windows of a
	// connection (SPEC.md 8.4).
	ringSize = 512
	// buffers hold what is in both rings, what the driver keeps at hand and the bursts of
	// this package.
	buffers = 3 * ringSize
	// headroom before a frame aligns it. A buffer begins with a page and takes whole ones:
	// an IOMMU then translates as few of them as can be, and QEMU's igb drops frames that
	// lie in two pages which are not neighbours in a guest's memory.
	headroom = 64
	pageSize = 4096
	// Devices may fill only whole KiB of a buffer.
	fillUnit = 1024
)

// Options are the choices of New. Address is needed. The tag is that of addresses, see package option.
type Options struct {
	// Address is that of an ethernet.Port, see ethernet.Open: a PCI function, as in
	// "pci:0000:03:00.0", or of a scheme of ethernet.Schemes.
	Address string
	// MTU is the largest frame in bytes, Ethernet header included: datasheet.MinMTU to
	// MaxMTU, and 33038 over AF_XDP. If zero it is that of Linux's interface over AF_XDP, as far as frames of it can be
	// had, and DefaultMTU over other NICs. All stations of a network should have the same.
	MTU int
	// MAC is the address of the station, if not the NIC's own.
	MAC datasheet.MAC
	// Promiscuous has the NIC receive all frames, for endpoints that want those to other
	// stations and to groups.
	Promiscuous bool `option:"promiscuous" oneof:"off,on"`
	// Logger is told of failures and restarts; nil for slog.Default.
	Logger *slog.Logger
}

// IsAddress reports whether New may know what is at an address: that of a PCI function, also in
// another process, or one of a scheme that a driver has registered.
func IsAddress(address string) bool {
	scheme, rest, ok := strings.Cut(address, ":")
	return ok && rest != "" && (scheme == "pci" || scheme == "vfio-user" || slices.Contains(ethernet.Schemes(), scheme))
}

// Check fails with what New would find wrong with the options before it opens anything,
// an error that wraps ends.ErrOptions.
func (o Options) Check() error { return o.complete() }

func (o *Options) complete() error {
	o.MTU, o.Logger = cmp.Or(o.MTU, DefaultMTU), cmp.Or(o.Logger, slog.Default())
	most := MaxMTU
	if strings.HasPrefix(o.Address, ethernet.SchemeAFXDP+":") {
		most = maxOverAFXDP
	}
	switch {
	case o.MTU < datasheet.MinMTU || o.MTU > most:
		return fmt.Errorf("%w: MTU %d is not in %d..%d, the frames of a NIC with their header", ends.ErrOptions, o.MTU, datasheet.MinMTU, most)
	case o.MAC.IsMulticast():
		return fmt.Errorf("%w: MAC %v is the address of a group", ends.ErrOptions, o.MAC)
	}
	return nil
}

// interfaceMTU is the largest frame, with its header, of Linux's interface at an address of AF_XDP.
// It is zero of other addresses, and if there is no such interface.
func interfaceMTU(address string) int {
	name, ok := strings.CutPrefix(address, ethernet.SchemeAFXDP+":")
	if !ok {
		return 0
	}
	name, _, _ = strings.Cut(name, "?")
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0 // opening it says why
	}
	return max(datasheet.MinMTU, min(i.MTU+ethernet.HeaderSize, maxOverAFXDP))
}

// pool is where frames lie.
func (o *Options) pool() ethernet.PoolOptions {
	frame := round.Up(o.MTU+ethernet.TagSize, fillUnit)
	return ethernet.PoolOptions{Buffers: buffers, Headroom: headroom, Size: round.Up(headroom+frame, pageSize) - headroom}
}
