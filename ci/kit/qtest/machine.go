package qtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/qmp"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Options are choices of Start.
type Options struct {
	// Devices are arguments of QEMU's option -device, such as "igb" or
	// "virtio-net-pci,packed=on,mac=02:00:00:00:00:01": 1 to MaxDevices network
	// devices for PCI Express. Properties id, bus, addr, netdev and romfile are taken. Of
	// virtio, one with disable-legacy=off or iommu_platform=off goes around the IOMMU: it
	// shares no memory with others.
	Devices []string
	// QEMU begins QEMU's command line: the program, and arguments if it needs
	// any. The default is qemu-system-x86_64. Models differ by version: igb is there
	// from 8.0 on.
	QEMU []string
	// RAM is the memory that the devices can have mapped, together, and each one that
	// goes around the IOMMU: a multiple of 2 MiB up to 192 MiB, 64 MiB if it is 0.
	RAM uint64
	// Timeout is the time that QEMU may take to answer, 10 seconds if it is 0. One that
	// takes longer is lost.
	Timeout time.Duration
}

// MaxDevices is the number of devices that a machine can have.
const MaxDevices = 7

// Machine is a QEMU process. Methods may be called from several goroutines.
type Machine struct {
	timeout time.Duration
	process *process
	link    *link
	ram     *vfio.Memory
	words   *vfio.Mapping // the same, for what is accessed atomically
	names   []string
	direct  []bool // which go around the IOMMU
	size    uint64 // Options.RAM
	wires   []*net.UDPConn
	// unplugged devices do not answer: QEMU has zero read there, where a bus has ones.
	unplugged [MaxDevices]atomic.Bool

	monitorMu sync.Mutex
	monitor   net.Conn
	qmp       *qmp.Client

	mu     sync.Mutex
	free   *vfio.IOVAAllocator     // of RAM
	placed map[*vfio.Memory]*place // what is in RAM
	open   [MaxDevices]*Device
	closed bool
	once   sync.Once
	err    error // of closing
}

// Start starts QEMU and sets up the machine, until ctx ends. Errors are *vfio.Error.
// They wrap an *ExitError if QEMU ended, which says what it complained about, such as
// a model that it does not have; exec.ErrNotFound if there is no QEMU;
// os.ErrDeadlineExceeded or the error of ctx if it did not answer in time.
func Start(ctx context.Context, o Options) (*Machine, error) {
	m, err := start(ctx, o)
	if err != nil {
		return nil, &vfio.Error{Op: "start", Device: "qtest:" + strings.Join(o.Devices, "+"), Err: err}
	}
	return m, nil
}

func start(ctx context.Context, o Options) (_ *Machine, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m := &Machine{timeout: o.Timeout, size: o.RAM, placed: map[*vfio.Memory]*place{}}
	for _, d := range o.Devices {
		name, _, _ := strings.Cut(d, ",")
		m.names = append(m.names, name)
		m.direct = append(m.direct, goesAround(d))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.shutDown())
		}
	}()
	begin := ramBegin(len(o.Devices))
	end := begin + o.RAM
	for n, direct := range m.direct {
		if share, _ := m.share(n); direct {
			end = share.Last + 1
		}
	}
	if m.ram, err = vfio.AllocMemory(end, vfio.MemoryOptions{Huge: vfio.HugeNever}); err != nil {
		return nil, err
	}
	m.free = vfio.NewIOVAAllocator([]vfio.IOVARange{{First: begin, Last: begin + o.RAM - 1}}, pageSize)
	m.words = vfio.NewMapping(m.ram.Bytes(), nil)
	if err := m.launch(o); err != nil {
		return nil, err
	}
	// A machine that is not set up yet ends with ctx, whatever it waits for.
	defer context.AfterFunc(ctx, func() { m.link.fail(ctx.Err()) })()
	if err := m.setUpBuses(); err != nil {
		return nil, err
	}
	if err := m.setUpIOMMU(); err != nil {
		return nil, err
	}
	return m, m.link.lost()
}

func (o *Options) check() error {
	if len(o.QEMU) == 0 {
		o.QEMU = []string{"qemu-system-x86_64"}
	}
	o.RAM, o.Timeout = cmp.Or(o.RAM, 64<<20), cmp.Or(o.Timeout, 10*time.Second)
	switch {
	case len(o.Devices) == 0 || len(o.Devices) > MaxDevices:
		return fmt.Errorf("%d devices, want 1 to %d", len(o.Devices), MaxDevices)
	case o.RAM%hugePage != 0 || o.RAM > 192<<20:
		return fmt.Errorf("RAM of %#x bytes, want a multiple of %#x up to %#x", o.RAM, uint64(hugePage), 192<<20)
	case o.Timeout < 0:
		return fmt.Errorf("timeout of %v", o.Timeout)
	}
	return nil
}

// hugePage is the largest page of DMA memory: its addresses are multiples of it.
const hugePage = 2 << 20

// PID returns the number of QEMU's process.
func (m *Machine) PID() int { return m.process.cmd.Process.Pid }

// Devices returns how many devices the machine has.
func (m *Machine) Devices() int { return len(m.names) }

// Open takes the device with number n, as Options.Devices counts from 0, and resets
// it. It fails with ErrBusy while it is open.
func (m *Machine) Open(n int) (*Device, error) {
	if err := m.has(n); err != nil {
		return nil, m.fail("open", n, err)
	}
	d := newDevice(m, n)
	if err := m.hold(d); err != nil {
		return nil, m.fail("open", n, err)
	}
	if err := d.setUp(); err != nil {
		return nil, errors.Join(m.fail("open", n, err), d.Close())
	}
	return d, nil
}

// has fails if the machine has no device of that number.
func (m *Machine) has(n int) error {
	if n < 0 || n >= len(m.names) {
		return fmt.Errorf("there are %d devices", len(m.names))
	}
	return nil
}

// hold keeps others from opening the device.
func (m *Machine) hold(d *Device) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return vfio.ErrClosed
	case m.open[d.number] != nil:
		return ErrBusy
	}
	m.open[d.number] = d
	return nil
}

// ErrBusy: the device is open already.
var ErrBusy = errors.New("the device is open")

func (m *Machine) release(d *Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[d.number] = nil
}

func (m *Machine) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// Close kills QEMU, waits for its end and closes the devices. Memory that they had
// mapped stays. Closing again does nothing more.
func (m *Machine) Close() error {
	m.once.Do(func() {
		m.mu.Lock()
		m.closed = true
		open := m.open
		m.mu.Unlock()
		m.link.fail(vfio.ErrClosed)
		m.process.kill()
		for _, d := range open {
			if d != nil {
				m.err = errors.Join(m.err, d.Close())
			}
		}
		m.err = errors.Join(m.err, m.shutDown())
	})
	if m.err != nil {
		return &vfio.Error{Op: "close", Device: "qtest:" + strings.Join(m.names, "+"), Err: m.err}
	}
	return nil
}

// shutDown frees what there is.
func (m *Machine) shutDown() (err error) {
	if m.process != nil {
		m.process.kill()
	}
	if m.link != nil {
		m.link.fail(vfio.ErrClosed)
		err = m.link.conn.Close()
	}
	if m.monitor != nil {
		err = errors.Join(err, m.monitor.Close())
	}
	for _, w := range m.wires {
		err = errors.Join(err, w.Close())
	}
	if m.ram != nil {
		err = errors.Join(err, m.ram.Close())
	}
	return err
}

func (m *Machine) address(n int) string {
	return fmt.Sprintf("qtest:%d/%s", n, m.names[max(0, min(n, len(m.names)-1))])
}

// fail makes the error of an operation on a device, nil if nothing has failed.
func (m *Machine) fail(op string, n int, err error) error {
	if err == nil {
		return nil
	}
	e := &vfio.Error{Op: op, Device: m.address(n), Err: err}
	switch cause := m.link.lost(); {
	case m.isClosed():
		e.Err = vfio.ErrClosed
	case cause != nil && errors.Is(err, cause):
		e.Err = fmt.Errorf("%w: %w", vfio.ErrDeviceGone, err)
	}
	return e
}

// connected makes a connection of which QEMU inherits one end.
func connected() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "socket")
	file := os.NewFile(uintptr(fds[0]), "socket")
	ours, err = net.FileConn(file)
	if err = errors.Join(err, file.Close()); err != nil {
		if ours != nil {
			err = errors.Join(err, ours.Close())
		}
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}
