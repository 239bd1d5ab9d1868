package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/vfio"
)

// busFirst is the lowest bus address that is told to back ends. Regions are busGap apart,
// so that what leaves one does not get into the next.
const (
	busFirst = 1 << 32
	busGap   = 1 << 21
)

// maxQueues bounds the pairs of queues: a message has 8 bits for the index of a queue.
const maxQueues = 128

// frontEnd are features that are not the back end's: those that have a control queue or a
// configuration, which front ends make for their guests, and those of addresses, which
// would be translated by messages.
const frontEnd = featureProtocol | transport.FeatureAccessPlatform | transport.FeatureControl | transport.FeatureControlReceive |
	transport.FeatureControlVLAN | transport.FeatureControlMAC | transport.FeatureQueueReset

// region is memory that the back end has.
type region struct {
	memory *vfio.Memory
	bus    uint64
	pool   *ethernet.Pool // nil if the memory is ours
}

// Device is a network device behind a back end. It implements transport.Transport.
type Device struct {
	path    string
	timeout time.Duration
	alert   func()
	conn    atomic.Pointer[conn]
	// protocol has the protocol features that are used.
	protocol uint64
	features uint64
	pairs    int
	config   *transport.Config // what the back end has said on this connection; nil if nothing yet
	regions  []region
	told     bool // the back end knows regions
	kicks    map[int]int
	eventfds []int
}

// New returns the device behind the back end that listens at a path. Reset connects. The end of a
// connection calls alert, on any goroutine.
func New(path string, timeout time.Duration, alert func()) *Device {
	return &Device{path: path, timeout: timeout, alert: alert, kicks: map[int]int{}}
}

// Reset connects anew: a back end forgets everything with the connection.
func (d *Device) Reset(ctx context.Context) (uint64, error) {
	d.disconnect()
	l, err := dial(ctx, d.path, d.timeout, d.alert)
	if err != nil {
		return 0, err
	}
	d.conn.Store(l)
	d.told, d.protocol, d.pairs, d.config = false, 0, 1, nil
	if err := l.set(ctx, setOwner, nil); err != nil {
		return 0, err
	}
	features, err := l.get(ctx, getFeatures)
	if err != nil {
		return 0, err
	}
	if features&featureProtocol != 0 {
		if err := d.agree(ctx); err != nil {
			return 0, err
		}
	}
	d.features = features & featureProtocol
	return features &^ frontEnd, d.status(ctx, transport.StatusAcknowledge|transport.StatusDriver)
}

// agree agrees on protocol features.
func (d *Device) agree(ctx context.Context) error {
	offered, err := d.conn.Load().get(ctx, getProtocolFeatures)
	if err != nil {
		return err
	}
	d.protocol = offered & (protocolMQ | protocolAck | protocolConfig | protocolStatus)
	if err := d.conn.Load().set(ctx, setProtocolFeatures, number(d.protocol)); err != nil {
		return err
	}
	d.conn.Load().ack = d.protocol&protocolAck != 0
	if d.protocol&protocolMQ == 0 {
		return nil
	}
	pairs, err := d.conn.Load().get(ctx, getQueueNum)
	if err != nil {
		return err
	}
	if pairs == 0 {
		return fmt.Errorf("%w: the back end has no queues", ethernet.ErrProtocol)
	}
	d.pairs = int(min(pairs, maxQueues))
	return nil
}

// status writes the device status, if the back end wants to know it.
func (d *Device) status(ctx context.Context, status uint64) error {
	if d.protocol&protocolStatus == 0 {
		return nil
	}
	return d.conn.Load().set(ctx, setStatus, number(status))
}

// Accept says which features are used.
func (d *Device) Accept(ctx context.Context, features uint64) error {
	if err := d.conn.Load().set(ctx, setFeatures, number(features|d.features)); err != nil {
		return err
	}
	const status = transport.StatusAcknowledge | transport.StatusDriver | transport.StatusFeaturesOK
	if err := d.status(ctx, status); err != nil || d.protocol&protocolStatus == 0 {
		return err
	}
	v, err := d.conn.Load().get(ctx, getStatus)
	if err != nil {
		return err
	}
	if v&transport.StatusFeaturesOK == 0 {
		return fmt.Errorf("%w: the back end does not want features %#x: its status is %#x", ethernet.ErrNotSupported, features, v)
	}
	return nil
}

// configSize is the part of the configuration that is asked for: up to the duplex.
const configSize = transport.ConfigSize

// Config returns the configuration, for which it asks once a connection: a back end that
// stands still later must not lose the connection by a question about its link. Back ends of
// networks mostly have none: then only the number of queues is known, and the link is up.
func (d *Device) Config(ctx context.Context) (transport.Config, error) {
	if d.config == nil {
		c, err := d.askConfig(ctx)
		if err != nil {
			return c, err
		}
		d.config = &c
	}
	return *d.config, nil
}

func (d *Device) askConfig(ctx context.Context) (transport.Config, error) {
	c := transport.Config{Pairs: d.pairs, LinkUp: true}
	if d.protocol&protocolConfig == 0 {
		return c, nil
	}
	p, err := d.conn.Load().ask(ctx, getConfig, 0, append(words(0, configSize, 0), make([]byte, configSize)...))
	if err != nil {
		return c, err
	}
	if len(p) == 0 || len(p) == 12 {
		return c, nil // it has none
	}
	if err := checkSize(getConfig, p, 12+configSize); err != nil {
		return c, err
	}
	c = transport.ParseConfig(p[12:], d.pairs)
	c.Pairs = min(c.Pairs, d.pairs)
	return c, nil
}

// Alloc allocates memory for both sides.
func (d *Device) Alloc(size uint64) ([]byte, uint64, error) {
	m, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return nil, 0, err
	}
	bus, err := d.add(region{memory: m})
	if err != nil {
		return nil, 0, errors.Join(err, m.Close())
	}
	return m.Bytes(), bus, nil
}

// MapPool shares the buffers of a pool.
func (d *Device) MapPool(p *ethernet.Pool) (uint64, error) {
	if err := p.Hold(); err != nil {
		return 0, err
	}
	bus, err := d.add(region{memory: p.Memory(), pool: p})
	if err != nil {
		p.Release()
	}
	return bus, err
}

// add adds memory to what the back end will be told of, and returns its bus address.
func (d *Device) add(r region) (uint64, error) {
	if len(d.regions) == maxRegions {
		return 0, fmt.Errorf("%w: more than %d pieces of memory", ethernet.ErrNotSupported, maxRegions)
	}
	// No process can then seal the file so that another back end could not map it. This fails
	// if it has been done before.
	_, _ = unix.FcntlInt(uintptr(r.memory.FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
	r.bus = busFirst
	if n := len(d.regions); n > 0 {
		last := d.regions[n-1]
		r.bus = (last.bus + last.memory.Size() + 2*busGap - 1) / busGap * busGap
	}
	d.regions, d.told = append(d.regions, r), false
	return r.bus, nil
}

// Interrupts says which eventfds queues may signal.
func (d *Device) Interrupts(eventfds []int) (int, error) {
	d.eventfds = eventfds
	return len(eventfds), nil
}

// tell tells the back end of all memory.
func (d *Device) tell(ctx context.Context) error {
	if d.told {
		return nil
	}
	payload := words(uint32(len(d.regions)), 0)
	var fds []int
	for _, r := range d.regions {
		// Bus address, size, what front ends call a user address, and offset in the file.
		for _, v := range []uint64{r.bus, r.memory.Size(), r.bus, 0} {
			payload = order.AppendUint64(payload, v)
		}
		fds = append(fds, r.memory.FD())
	}
	err := d.conn.Load().set(ctx, setMemTable, payload, fds...)
	d.told = err == nil
	return err
}

// QueueSize returns the most that any queue may have: a back end does not say.
func (d *Device) QueueSize(_ context.Context, index int) (int, error) {
	if index < 0 || index >= 2*d.pairs {
		return 0, nil
	}
	return math.MaxInt16 + 1, nil
}

// packedBase is where a packed queue begins for driver and device: at descriptor 0, with
// wrap counters of 1 in bits 15 and 31.
const packedBase = 1<<31 | 1<<15

// Queue enables a queue.
func (d *Device) Queue(ctx context.Context, index int, q transport.Queue) (transport.Doorbell, error) {
	var none transport.Doorbell
	if err := d.tell(ctx); err != nil {
		return none, err
	}
	kick, ok := d.kicks[index]
	if !ok {
		var err error
		if kick, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return none, err
		}
		d.kicks[index] = kick
	}
	i, base := uint32(index), uint32(0)
	if q.Packed {
		base = packedBase
	}
	address := words(i, 0)
	for _, v := range []uint64{q.Descriptor, q.Device, q.Driver, 0} {
		address = order.AppendUint64(address, v)
	}
	call, calls := uint64(index)|noDescriptor, []int(nil)
	if q.Interrupt >= 0 {
		call, calls = uint64(index), []int{d.eventfds[q.Interrupt]}
	}
	for _, m := range []struct {
		r       request
		payload []byte
		fds     []int
	}{
		{setVringNum, words(i, uint32(q.Size)), nil},
		{setVringBase, words(i, base), nil},
		{setVringAddr, address, nil},
		{setVringCall, number(call), calls},
		{setVringKick, number(uint64(index)), []int{kick}},
		{setVringEnable, words(i, 1), nil},
	} {
		// Without protocol features queues are enabled from the start.
		if m.r == setVringEnable && d.features&featureProtocol == 0 {
			continue
		}
		if err := d.conn.Load().set(ctx, m.r, m.payload, m.fds...); err != nil {
			return none, err
		}
	}
	bell := transport.EventfdDoorbell(kick)
	bell.Ring() // the first kick starts the queue
	return bell, nil
}

// Ready starts the back end.
func (d *Device) Ready(ctx context.Context) error {
	return d.status(ctx, transport.StatusAcknowledge|transport.StatusDriver|transport.StatusFeaturesOK|transport.StatusDriverOK)
}

// StopQueue makes the back end leave a queue alone.
func (d *Device) StopQueue(ctx context.Context, index int) error {
	p, err := d.conn.Load().ask(ctx, getVringBase, 0, words(uint32(index), 0))
	if err == nil {
		err = checkSize(getVringBase, p, 8)
	}
	if err == nil && order.Uint32(p) != uint32(index) {
		err = fmt.Errorf("%w: reply to %v: index is %d: want %d", ethernet.ErrProtocol, getVringBase, order.Uint32(p), index)
	}
	return err
}

// Stop makes the back end leave all queues alone, and with them all memory. One with which
// there is no connection any more does, or never will. It fails if the back end does not
// answer in time.
func (d *Device) Stop(ctx context.Context) error {
	if d.conn.Load() == nil || d.Health() != nil {
		return nil
	}
	for i := range 2 * d.pairs {
		if _, used := d.kicks[i]; !used {
			continue
		}
		err := d.StopQueue(ctx, i)
		if err != nil && d.Health() != nil && !errors.Is(err, ethernet.ErrNotReady) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Health returns why the connection has ended, nil if it has not.
func (d *Device) Health() error {
	if l := d.conn.Load(); l != nil {
		return l.err()
	}
	return nil
}

// Close ends the connection and gives all memory back. That of a back end that does not
// answer stays.
func (d *Device) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	err := d.Stop(ctx)
	d.disconnect()
	if err != nil {
		return fmt.Errorf("%w: %w", ethernet.ErrNotStopped, err)
	}
	for _, r := range d.regions {
		if r.pool != nil {
			r.pool.Release()
		} else {
			err = errors.Join(err, r.memory.Close())
		}
	}
	d.regions = nil
	return err
}

func (d *Device) disconnect() {
	if l := d.conn.Load(); l != nil {
		l.close()
	}
	for _, fd := range d.kicks {
		_ = unix.Close(fd) // ours, of which nothing is lost
	}
	clear(d.kicks)
}
