package kernel

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// fakeFunction is a PCI function: memory behind regions, and interrupts.
type fakeFunction struct {
	token      string
	noTokens   bool // a kernel that takes none when binding
	gone       bool // reads give all ones
	resettable bool
	locked     int // how often a reset finds the function locked
	resets     int
	// busMaster records the bit at each reset and close.
	busMaster []bool

	regions []fakeRegion
	irqs    []fakeIRQ
}

// fakeRegion lies at its index shifted left by 40 bits.
type fakeRegion struct {
	memory []byte
	flags  uint32
	caps   [][]byte
	broken error // of reads and writes
}

const regionShift = 40

// fakeIRQ is an interrupt index.
type fakeIRQ struct {
	count, flags uint32
	// most vectors that there are; 0 for count.
	most int
	// fds by vector, dup'ed as the kernel keeps the file; nil if it is off.
	fds    []int
	masked bool
}

const readWrite, readWriteMmap = 3, 7

// newFakeFunction is a NIC: BAR0 that can be mapped, BAR2 with a hole for the
// vector table, BAR4 that cannot be mapped, configuration space.
func newFakeFunction() *fakeFunction {
	f := &fakeFunction{resettable: true, regions: make([]fakeRegion, 9), irqs: make([]fakeIRQ, 5)}
	f.regions[0] = fakeRegion{memory: make([]byte, 64<<10), flags: readWriteMmap}
	f.regions[2] = fakeRegion{memory: make([]byte, 64<<10), flags: readWriteMmap,
		caps: [][]byte{rangesCapability(regionCapSparseMmap, [2]uint64{0, 0x4000}, [2]uint64{0x6000, 0xa000})}}
	f.regions[4] = fakeRegion{memory: make([]byte, 256), flags: readWrite}
	f.regions[vfio.RegionConfig] = fakeRegion{memory: make([]byte, 4096), flags: readWrite}
	copy(f.config(), []byte{0xf4, 0x1a, 0x37, 0x13, 0x06}) // ids; decode and bus mastering are on
	f.irqs[vfio.IRQINTx] = fakeIRQ{count: 1, flags: 7}
	f.irqs[vfio.IRQMSI] = fakeIRQ{count: 4, flags: 9}
	f.irqs[vfio.IRQMSIX] = fakeIRQ{count: 16, flags: 1}
	f.irqs[vfio.IRQErr] = fakeIRQ{count: 1, flags: 9}
	f.irqs[vfio.IRQReq] = fakeIRQ{count: 1, flags: 9}
	return f
}

func (f *fakeFunction) config() []byte { return f.regions[vfio.RegionConfig].memory }

func (f *fakeFunction) command() uint16 {
	return binary.LittleEndian.Uint16(f.config()[vfio.ConfigCommand:])
}

// reset does what the kernel does: the command register survives.
func (f *fakeFunction) reset() error {
	if f.locked > 0 {
		f.locked--
		return unix.EAGAIN
	}
	f.resets++
	f.busMaster = append(f.busMaster, f.command()&vfio.CommandBusMaster != 0)
	return nil
}

// closed is called when the descriptor is closed.
func (f *fakeFunction) closed() {
	f.busMaster = append(f.busMaster, f.command()&vfio.CommandBusMaster != 0)
	for i := range f.irqs {
		f.irqs[i].off()
	}
}

func (q *fakeIRQ) off() {
	for _, fd := range q.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	q.fds, q.masked = nil, false
}

// fire signals a vector as the device would.
func (f *fakeFunction) fire(k *fake, index, vector int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := &f.irqs[index]
	if vector >= len(q.fds) || q.fds[vector] < 0 {
		return errors.New("not connected")
	}
	if q.masked {
		return errors.New("masked")
	}
	q.masked = index == vfio.IRQINTx
	_, err := unix.Write(q.fds[vector], binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// connected lists the vectors that are.
func (f *fakeFunction) connected(k *fake, index int) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []int
	for v, fd := range f.irqs[index].fds {
		if fd >= 0 {
			list = append(list, v)
		}
	}
	return list
}

func (k *fake) deviceInfo(h *handle, arg []byte) (int, error) {
	info, ok := load[deviceInfo](arg)
	if !ok || !h.usable() {
		return 0, unix.EINVAL
	}
	info.flags, info.numRegions, info.numIRQs = deviceFlagPCI, uint32(len(h.function.regions)), uint32(len(h.function.irqs))
	if h.function.resettable {
		info.flags |= deviceFlagReset
	}
	put(arg, info)
	return 0, nil
}

// usable: a node does nothing before it is bound.
func (h *handle) usable() bool { return !h.direct || h.bound != nil && h.attachTo != 0 }

func (k *fake) regionInfo(h *handle, arg []byte) (int, error) {
	info, ok := load[regionInfo](arg)
	if !ok || int(info.index) >= len(h.function.regions) || info.index == 8 { // no VGA here
		return 0, unix.EINVAL
	}
	r := h.function.regions[info.index]
	info.flags, info.size, info.offset = r.flags, uint64(len(r.memory)), uint64(info.index)<<regionShift
	if len(r.caps) > 0 {
		info.flags |= regionFlagCaps
	}
	withCaps(arg, bytesOf(&info), r.caps, 12)
	return 0, nil
}

func (k *fake) irqInfo(h *handle, arg []byte) (int, error) {
	info, ok := load[irqInfo](arg)
	if !ok || int(info.index) >= len(h.function.irqs) || h.function.irqs[info.index].count == 0 && info.index == vfio.IRQErr {
		return 0, unix.EINVAL
	}
	info.count, info.flags = h.function.irqs[info.index].count, h.function.irqs[info.index].flags
	put(arg, info)
	return 0, nil
}

// setIRQs keeps the rules of vfio-pci: one of INTx, MSI and MSI-X at a time,
// what is off cannot be turned off, the number of vectors is set once if it
// cannot change.
func (k *fake) setIRQs(h *handle, arg []byte) (int, error) {
	s, ok := load[irqSet](arg)
	if !ok || int(s.argsz) != len(arg) || int(s.index) >= len(h.function.irqs) {
		return 0, unix.EINVAL
	}
	q := &h.function.irqs[s.index]
	if s.start+s.count > q.count {
		return 0, unix.EINVAL
	}
	on := len(q.fds) > 0
	switch s.flags {
	case irqSetDataNone | irqSetActionTrigger:
		if !on || s.count != 0 {
			return 0, unix.EINVAL
		}
		q.off()
		return 0, nil
	case irqSetDataEventfd | irqSetActionTrigger:
		return k.connect(h.function, int(s.index), int(s.start), arg[20:])
	}
	return 0, unix.EINVAL
}

func (k *fake) connect(f *fakeFunction, index, start int, data []byte) (int, error) {
	q := &f.irqs[index]
	for other := range f.irqs[:vfio.IRQErr] {
		if index < vfio.IRQErr && other != index && len(f.irqs[other].fds) > 0 {
			return 0, unix.EINVAL
		}
	}
	need := start + len(data)/4
	if most := q.most; most > 0 && need > most {
		return most, nil
	}
	if len(q.fds) > 0 && need > len(q.fds) && q.flags&uint32(vfio.IRQNoResize) != 0 {
		return 0, unix.EINVAL
	}
	var fds []int
	for i := start; i < need; i++ {
		fd := int(int32(binary.NativeEndian.Uint32(data[4*(i-start):])))
		if fd >= 0 {
			var err error
			if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				for _, fd := range fds {
					unix.Close(max(fd, 0))
				}
				return 0, unix.EBADF
			}
		}
		fds = append(fds, fd)
	}
	for len(q.fds) < need {
		q.fds = append(q.fds, -1)
	}
	for i, fd := range fds {
		if old := q.fds[start+i]; old >= 0 {
			unix.Close(old)
		}
		q.fds[start+i] = fd
	}
	return 0, nil
}

func (k *fake) access(fd int, offset int64, move func([]byte) int, step string) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.fds[fd]
	if h == nil {
		return 0, unix.EBADF
	}
	if err := k.enter(step + " " + h.kind); err != nil {
		return 0, err
	}
	if h.kind == "pagemap" {
		return move(k.pagemapAt(offset)), nil
	}
	index, at := int(offset>>regionShift), int(offset&(1<<regionShift-1))
	r := h.function.regions[index]
	if r.broken != nil {
		return 0, r.broken
	}
	return move(r.memory[at:]), nil
}

// pagemapAt is a page of the page map from an offset on.
func (k *fake) pagemapAt(offset int64) []byte {
	var b []byte
	for page := uint64(offset) / 8; len(b) < 4096; page++ {
		b = binary.NativeEndian.AppendUint64(b, k.pagemap(page))
	}
	return b
}

func (k *fake) read(fd int, p []byte, offset int64) (int, error) {
	return k.access(fd, offset, func(memory []byte) int {
		n := copy(p, memory)
		if h := k.fds[fd]; h.function != nil && h.function.gone {
			for i := range p[:n] {
				p[i] = 0xff
			}
		}
		return n
	}, "read")
}

func (k *fake) write(fd int, p []byte, offset int64) (int, error) {
	return k.access(fd, offset, func(memory []byte) int { return copy(memory, p) }, "write")
}

func (k *fake) mmap(fd int, offset int64, size, _ int) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("mmap"); err != nil {
		return nil, err
	}
	h := k.fds[fd]
	if h == nil {
		return nil, unix.EBADF
	}
	if h.function.command()&vfio.CommandMemory == 0 {
		return nil, unix.EFAULT // the real one kills the process later
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	index, at := int(offset>>regionShift), int(offset&(1<<regionShift-1))
	copy(b, h.function.regions[index].memory[at:])
	k.maps[&b[0]] = size
	return b, nil
}

func (k *fake) munmap(b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.maps[&b[0]] != len(b) {
		return unix.EINVAL
	}
	delete(k.maps, &b[0])
	if err := unix.Munmap(b); err != nil {
		return err
	}
	return k.enter("munmap")
}

func (k *fake) blind(b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("blind"); err != nil {
		return err
	}
	return linux{}.blind(b)
}
