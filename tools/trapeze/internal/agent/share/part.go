package share

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// vectors is the number of interrupt vectors of a part: as many as a driver of ours takes.
const vectors = 8

// Limits bound the objects that a client has at a time.
type Limits struct {
	VIs uint32
}

// Part is a PCI function for one client: a vfiouser.FileDevice. The server of the client bounds its memory.
type Part struct {
	nic    *NIC
	limits Limits
	bells  bells
	file   int // of bells.bar
	names  int // guarded by nic.mu

	gone chan struct{} // closed by GiveUp
	once sync.Once

	irqs struct {
		sync.Mutex
		fds [vectors]int // -1 for none
	}

	commands atomic.Uint64 // that the client has given

	mu      sync.Mutex
	config  []byte
	resets  uint32
	admin   adminQueue
	windows []*window // by address
	owned   owned
	real    [vectors]uint16 // the device's vector in place of each, NoVector until it is used
	leaves  []func()

	life context.Context // ends with a reset
	end  context.CancelFunc
	work sync.WaitGroup // commands that wait for the network
}

var _ vfiouser.FileDevice = (*Part)(nil)

// Part makes one. It fails with ErrFull, or an error of the operating system.
func (n *NIC) Part(l Limits) (*Part, error) {
	p := &Part{nic: n, limits: l, file: -1, gone: make(chan struct{}), bells: bells{pages: map[uint32]*page{}}}
	p.life, p.end = context.WithCancel(context.Background())
	for i := range vectors {
		p.irqs.fds[i], p.real[i] = -1, datasheet.NoVector
	}
	p.config = n.config()
	p.begin()
	var err error
	if p.file, p.bells.bar, err = memfile.Map("doorbells", n.doorbellSize(), memfile.Options{Seals: memfile.Final}); err != nil {
		return nil, err
	}
	if err := n.add(p); err != nil {
		return nil, errors.Join(err, p.closeFile())
	}
	return p, nil
}

// doorbellSize is the size of BAR2: one page for each number of the device's.
func (n *NIC) doorbellSize() uint64 {
	size := uint64(datasheet.PageSize)
	for size < (uint64(n.id.MaxEndpoints)+uint64(n.id.MaxCQs))*datasheet.PageSize {
		size *= 2
	}
	return size
}

// config is the configuration space of a part, without capabilities (PCI Local Bus 3.0, 6.1): a client has the part
// from a server that tells all that they would.
func (n *NIC) config() []byte {
	b := make([]byte, vfio.ConfigSize)
	le := binary.LittleEndian
	const revision, subsystem = 0x08, 0x2c
	le.PutUint16(b, n.id.PCI.Vendor)
	le.PutUint16(b[2:], n.id.PCI.Device)
	le.PutUint32(b[revision:], datasheet.PCIClass<<8|uint32(datasheet.PCIRevision))
	le.PutUint16(b[subsystem:], datasheet.PCISubsystemVendorID)
	le.PutUint16(b[subsystem+2:], datasheet.PCISubsystemID)
	return b
}

// Counts are the commands that the client has given, and its doorbells that were passed on.
func (p *Part) Counts() (commands, doorbells uint64) { return p.commands.Load(), p.bells.passed.Load() }

// GiveUp has Gone say that the client is to go.
func (p *Part) GiveUp() { p.once.Do(func() { close(p.gone) }) }

// Gone returns the channel that GiveUp closes.
func (p *Part) Gone() <-chan struct{} { return p.gone }

// Close ends all that the client has. The server of the client has returned.
func (p *Part) Close() error {
	err := p.stop()
	err = errors.Join(err, p.UnmapWindows(0, ^uint64(0)))
	p.mu.Lock()
	for _, leave := range p.leaves {
		leave()
	}
	p.leaves = nil
	p.mu.Unlock()
	p.nic.remove(p)
	return errors.Join(err, p.closeFile())
}

// closeFile gives the doorbells back. The relay may have the part still, and waits for its lock.
func (p *Part) closeFile() error {
	p.bells.mu.Lock()
	defer p.bells.mu.Unlock()
	clear(p.bells.pages)
	err := errors.Join(unix.Munmap(p.bells.bar), unix.Close(p.file))
	p.bells.bar, p.file = nil, -1
	return err
}

// Info is described at vfio.Device.
func (p *Part) Info() vfio.Info {
	return vfio.Info{Address: "agent:", Backend: "agent", Resettable: true, Regions: vfio.RegionConfig + 1, IRQs: vfio.IRQReq + 1}
}

// Region is described at vfio.Device.
func (p *Part) Region(index int) (vfio.RegionInfo, error) {
	r := vfio.RegionInfo{Index: index}
	switch index {
	case datasheet.BARRegisters:
		r.Size, r.Flags = datasheet.BAR0Size, vfio.RegionRead|vfio.RegionWrite
	case datasheet.BARDoorbells:
		r.Size, r.Flags = p.nic.doorbellSize(), vfio.RegionRead|vfio.RegionWrite|vfio.RegionMmap
	case vfio.RegionConfig:
		r.Size, r.Flags = uint64(len(p.config)), vfio.RegionRead|vfio.RegionWrite
	default:
		if index < 0 || index > vfio.RegionConfig {
			return r, fmt.Errorf("%w: index %d", vfio.ErrNoSuchRegion, index)
		}
	}
	return r, nil
}

// IRQ is described at vfio.Device.
func (p *Part) IRQ(index int) (vfio.IRQInfo, error) {
	q := vfio.IRQInfo{Index: index}
	switch index {
	case vfio.IRQMSIX:
		q.Count, q.Flags = vectors, vfio.IRQEventfd
	case vfio.IRQReq: // the server signals it
		q.Count, q.Flags = 1, vfio.IRQEventfd
	default:
		if index < 0 || index > vfio.IRQReq {
			return q, fmt.Errorf("%w: index %d", vfio.ErrNoSuchIRQ, index)
		}
	}
	return q, nil
}

// within checks an access.
func (p *Part) within(index int, offset uint64, n int) error {
	r, err := p.Region(index)
	if err == nil && (offset > r.Size || uint64(n) > r.Size-offset) {
		err = fmt.Errorf("%w: %d bytes at %#x of region %d", vfio.ErrOutOfRange, n, offset, index)
	}
	return err
}

// ReadRegion is described at vfio.Device.
func (p *Part) ReadRegion(index int, offset uint64, b []byte) error {
	if err := p.within(index, offset, len(b)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch index {
	case datasheet.BARRegisters:
		v := ^uint32(0)
		if len(b) == 4 && offset%4 == 0 {
			v = p.register(uint32(offset))
		}
		for i := range b {
			b[i] = byte(v >> (8 * (i % 4)))
		}
	case datasheet.BARDoorbells:
		copy(b, p.bells.bar[offset:])
	case vfio.RegionConfig:
		copy(b, p.config[offset:])
	}
	return nil
}

// WriteRegion is described at vfio.Device. Of configuration space the command register can be written.
func (p *Part) WriteRegion(index int, offset uint64, b []byte) error {
	if err := p.within(index, offset, len(b)); err != nil {
		return err
	}
	switch index {
	case datasheet.BARRegisters:
		if len(b) == 4 && offset%4 == 0 {
			return p.setRegister(uint32(offset), binary.LittleEndian.Uint32(b))
		}
	case datasheet.BARDoorbells:
		// A client that has not mapped it, and marks nothing.
		copy(p.bells.bar[offset:], b)
	case vfio.RegionConfig:
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, v := range b {
			if at := offset + uint64(i); at == vfio.ConfigCommand || at == vfio.ConfigCommand+1 {
				p.config[at] = v
			}
		}
	}
	return nil
}

// SetIRQs is described at vfio.Device.
func (p *Part) SetIRQs(index, start int, eventfds []int) error {
	q, err := p.IRQ(index)
	if err != nil {
		return err
	}
	if start < 0 || start+len(eventfds) > q.Count {
		return fmt.Errorf("%w: %d from %d of index %d", vfio.ErrNoSuchIRQ, len(eventfds), start, index)
	}
	if index == vfio.IRQMSIX {
		p.irqs.Lock()
		defer p.irqs.Unlock()
		copy(p.irqs.fds[start:], eventfds)
	}
	return nil
}

// DisableIRQs is described at vfio.Device.
func (p *Part) DisableIRQs(index int) error {
	if _, err := p.IRQ(index); err != nil || index != vfio.IRQMSIX {
		return err
	}
	p.irqs.Lock()
	defer p.irqs.Unlock()
	for i := range p.irqs.fds {
		p.irqs.fds[i] = -1
	}
	return nil
}

// raise signals a vector of the client.
func (p *Part) raise(vector uint16) {
	p.irqs.Lock()
	defer p.irqs.Unlock()
	if int(vector) < vectors && p.irqs.fds[vector] >= 0 {
		passedfd.SignalEventfd(p.irqs.fds[vector])
	}
}

// vector is the vector of the device in place of one of the client. mu is held.
func (p *Part) vector(of uint16) (v uint16, ok bool) {
	if of == datasheet.NoVector {
		return of, true
	}
	if of >= vectors {
		return 0, false
	}
	if p.real[of] == datasheet.NoVector {
		var leave func()
		p.real[of], leave = p.nic.nic.OnInterrupt(func() { p.raise(of) })
		p.leaves = append(p.leaves, leave)
	}
	return p.real[of], true
}

// RegionFile is described at vfiouser.ServedDevice.
func (p *Part) RegionFile(index int) (fd int, offset uint64, err error) {
	if index != datasheet.BARDoorbells {
		return -1, 0, fmt.Errorf("%w: index %d", vfio.ErrNotMappable, index)
	}
	return p.file, 0, nil
}

// Reset is described at vfio.Device.
func (p *Part) Reset(context.Context) error {
	err := p.stop()
	p.mu.Lock()
	p.config = p.nic.config()
	p.mu.Unlock()
	return errors.Join(err, p.DisableIRQs(vfio.IRQMSIX))
}

// Renew is described at vfiouser.ServedDevice. A part has one client only.
func (p *Part) Renew(ctx context.Context) error { return p.Reset(ctx) }
