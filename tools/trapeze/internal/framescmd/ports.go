package framescmd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/rawport"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/vfio"
)

// portFlags say how ports are opened, and how long they are used.
type portFlags struct {
	Devices  []string      `flag:"device" required:"the address of a port or NIC, see 'trapeze list'" help:"address of the port or NIC, see 'trapeze list'"`
	Queues   int           `flag:"queues" default:"1" range:"1..64" help:"queues of each port, 1 to 64; IP flows are spread over them, each with a thread"`
	MTU      int           `flag:"mtu" range:"68..9000" help:"longest payload of a frame in bytes, 68 to 9000 (default 1500, or what an emulated wire takes)"`
	Duration time.Duration `flag:"duration" range:"0s.." help:"end after this time (default when interrupted)"`
	Program  fwcmd.ProgramFlags

	poll, promiscuous bool
}

// pollFlag is that of commands that can also sleep.
type pollFlag struct {
	Poll bool `flag:"poll" help:"look for frames again and again instead of sleeping until an interrupt"`
}

// check refuses another number of devices.
func (f *portFlags) check(devices int) error {
	if n := len(f.Devices); n != devices {
		return option.Errorf("--device was given %d times: give it %d times", n, devices)
	}
	return nil
}

// session is the open ports of a command. They have one pool.
type session struct {
	x       *commands
	flags   *portFlags
	program *fwcmd.Chosen
	pool    *ethernet.Pool
	ports   []openPort
	began   time.Time // when frames were first looked for
}

// openPort is a port, and the NIC behind it if that is a Trapeze NIC.
type openPort struct {
	ethernet.Port
	nic *driver.NIC
}

// rings is the number of descriptors of each ring of a queue.
const rings = 512

// open opens the ports of f.
func (x *commands) open(ctx context.Context, f *portFlags) (*session, error) {
	s := &session{x: x, flags: f}
	var err error
	if s.program, err = f.Program.Open(); err != nil {
		return nil, err
	}
	// Each queue may hold a receive ring, a send ring, a cache and a burst.
	c := ethernet.PoolOptions{Buffers: len(f.Devices)*f.Queues*(3*rings+2*burst) + rings, Headroom: 64}
	// A buffer is whole pages with its headroom: AF_XDP copies frames of others, and QEMU's
	// igb behind an IOMMU drops a frame that crosses into a page that is elsewhere.
	const page = 4096
	frame := max(f.MTU, 1500) + ethernet.HeaderSize + ethernet.TagSize
	c.Size = (c.Headroom+frame+page-1)/page*page - c.Headroom
	if s.pool, err = ethernet.NewPool(c); err != nil {
		return nil, err
	}
	for _, address := range f.Devices {
		p, err := s.openPort(ctx, address)
		if err != nil {
			err = &command.DeviceError{Err: err}
			s.close(&err)
			return nil, err
		}
		s.ports = append(s.ports, p)
	}
	s.began = time.Now()
	return s, nil
}

// openPort opens the port at an address: by a driver that knows its scheme, or the one
// for its PCI function, which may be a Trapeze NIC.
func (s *session) openPort(ctx context.Context, address string) (openPort, error) {
	level := command.Quiet
	if !s.x.JSON {
		level = slog.LevelWarn
	}
	c := ethernet.Options{Pool: s.pool, Queues: s.flags.Queues, MTU: s.flags.MTU, ReceiveDescriptors: rings, SendDescriptors: rings,
		Promiscuous: s.flags.promiscuous, Interrupts: !s.flags.poll, Logger: command.Logger(ctx, level)}
	a, err := vfio.ParseAddress(address)
	if err != nil {
		return openPort{}, err
	}
	if slices.Contains(ethernet.Schemes(), a.Scheme) {
		if s.program != nil {
			return openPort{}, noProcessor(address)
		}
		p, err := ethernet.Open(ctx, address, c)
		return openPort{Port: p}, err
	}
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return openPort{}, err
	}
	id, err := vfio.ReadConfig(dev)
	if err != nil {
		return openPort{}, errors.Join(err, dev.Close())
	}
	if id.Vendor == datasheet.PCIVendorID && id.Device == datasheet.PCIDeviceID {
		return s.openNIC(ctx, dev, c)
	}
	if s.program != nil {
		return openPort{}, errors.Join(noProcessor(address), dev.Close())
	}
	p, err := ethernet.New(ctx, dev, c)
	return openPort{Port: p}, err
}

func noProcessor(address string) error {
	return option.Errorf("--image: %s is a NIC without a processor for control programs", address)
}

// openNIC opens a Trapeze NIC, and puts the program into it that was chosen.
func (s *session) openNIC(ctx context.Context, dev vfio.Device, c ethernet.Options) (openPort, error) {
	if s.program != nil && !fwcmd.Trusting(dev.Info().Backend) {
		return openPort{}, errors.Join(option.Errorf("--image is for emulated NICs: 'trapeze load' puts signed programs into others, where they stay"), dev.Close())
	}
	// The NIC owns the device from here on, also if New fails.
	nic, err := driver.New(ctx, dev, driver.Options{Logger: c.Logger})
	if err != nil {
		return openPort{}, err
	}
	if err := s.program.Load(ctx, nic); err != nil {
		return openPort{}, errors.Join(err, nic.Close())
	}
	p, err := rawport.New(ctx, nic, c)
	return openPort{p, nic}, err
}

// close closes all, and adds errors to *err if there is none yet.
func (s *session) close(err *error) {
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, p.Close())
	}
	errs = append(errs, s.pool.Close())
	if *err == nil {
		*err = errors.Join(errs...)
	}
}
