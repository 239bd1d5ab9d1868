package afxdp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// port is an open interface.
type port struct {
	name     string
	options  options
	geometry geometry
	config   ethernet.Config
	pool     *ethernet.Pool
	memory   []byte // of the pool's buffers
	info     ethernet.Info
	host     *host
	queues   []*queue

	// mu is held by who talks to the kernel about the interface. The locks of queues are
	// taken inside.
	mu      sync.Mutex
	index   int          // of the interface
	own     ethernet.MAC // the interface's
	program *program
	filter  filter
	closed  bool
	// unstopped: a device may still write to buffers.
	unstopped bool

	failure  atomic.Pointer[failure]
	restarts atomic.Uint64
	watch    *watch
}

// failure is why a port does nothing any more.
type failure struct{ err error }

// open makes the port ready.
func (p *port) open(ctx context.Context) (err error) {
	if err := p.pool.Hold(); err != nil {
		return p.fail("open", err)
	}
	p.memory = p.pool.Memory().Bytes()[:p.pool.Stride()*p.pool.Config().Buffers]
	if p.host, err = openHost(); err != nil {
		p.pool.Release()
		return p.fail("open", err)
	}
	for i := range p.config.Queues {
		p.queues = append(p.queues, newQueue(p, i))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.host.do(func() error { return p.setUp(ctx) }); err != nil {
		return p.fail("open", errors.Join(err, p.release()))
	}
	p.watch.start(p)
	return nil
}

// fail makes an error of a method.
func (p *port) fail(op string, err error) error {
	return &ethernet.Error{Op: op, Device: p.info.Device, Err: err, Hint: p.hint(err)}
}

// hint says what may help against an error.
func (p *port) hint(err error) string {
	var config *ethernet.ConfigError
	switch {
	case errors.As(err, &config), errors.Is(err, ethernet.ErrClosed), errors.Is(err, errNone):
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return capabilities()
	case errors.Is(err, unix.EAFNOSUPPORT):
		return "this kernel is built without CONFIG_XDP_SOCKETS"
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Sprintf("the kernel may lock too little memory: raise ulimit -l by %d KiB for each queue, or have CAP_IPC_LOCK", len(p.memory)>>10)
	case errors.Is(err, errDown):
		return "ip link set dev " + p.name + " up"
	case errors.Is(err, errShort):
		return fmt.Sprintf("ip link set dev %s mtu %d", p.name, p.config.MTU)
	case errors.Is(err, errQueues):
		return "ethtool -L " + p.name + " changes how many there are"
	case errors.Is(err, errLarge):
		return fmt.Sprintf("ip link set dev %s mtu %d, and the same at the other end; mode=generic takes any", p.name, p.config.MTU)
	case errors.Is(err, errFew):
		return "ethtool -L " + p.name + " rx N, where N is how many send queues the peer has; or use mode=generic"
	case errors.Is(err, ethernet.ErrInUse):
		return "who has it: ip link show dev " + p.name + ", and ss --xdp"
	case errors.Is(err, errZero):
		return "copy=auto copies where the driver has to"
	case errors.Is(err, ethernet.ErrDeviceGone):
		return "Restart opens the interface again when one of that name is there"
	}
	return ""
}

// capabilities says which ones of those that are needed the process has not
// (capabilities(7)).
func capabilities() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return "be root"
	}
	var lacking []string
	for _, c := range []struct {
		name   string
		number uint
	}{{"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_BPF", unix.CAP_BPF}} {
		if have[c.number/32].Effective>>(c.number%32)&1 == 0 {
			lacking = append(lacking, c.name)
		}
	}
	if len(lacking) == 0 {
		return "the capabilities are there, but not in the first user namespace, or a security module refuses"
	}
	return "be root, or have " + strings.Join(lacking, ", ")
}

// failed returns why the port does nothing any more, nil if it does.
func (p *port) failed() error {
	if f := p.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// giveUp has the port answer with err. mu is held.
func (p *port) giveUp(err error) {
	if p.failure.CompareAndSwap(nil, &failure{p.fail("use", err)}) {
		p.config.Logger.Warn("a port has failed", "device", p.info.Device, "error", err)
	}
}

// usable locks the port, and fails if it does nothing any more.
func (p *port) usable() error {
	p.mu.Lock()
	if err := p.failed(); err != nil {
		p.mu.Unlock()
		return err
	}
	return nil
}

// patiently calls f until it fails with something else than that somebody has what it
// wants, for Config.Timeout at most: the kernel takes sockets and programs from a process
// that has ended, or from this one, a moment later.
func (p *port) patiently(ctx context.Context, f func() error) error {
	end := time.Now().Add(p.config.Timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := f()
		if !errBusy(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Info describes the port.
func (p *port) Info() ethernet.Info { return p.info }

// Queue returns a queue.
func (p *port) Queue(i int) ethernet.Queue {
	if i < 0 || i >= len(p.queues) {
		return nil
	}
	return p.queues[i]
}

// Link asks how the link is.
func (p *port) Link() (ethernet.Link, error) {
	if err := p.usable(); err != nil {
		return ethernet.Link{}, err
	}
	defer p.mu.Unlock()
	a, err := p.host.look(p.index)
	if err != nil {
		return ethernet.Link{}, p.fail("ask for the link of", err)
	}
	return p.host.link(a), nil
}

// Counters returns what was counted; the device's are the interface's, and what its
// sockets have dropped.
func (p *port) Counters() ethernet.Counters {
	c := ethernet.Counters{Restarts: p.restarts.Load()}
	for _, q := range p.queues {
		c.Queues = append(c.Queues, q.counters.read())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed() != nil {
		return c
	}
	a, err := p.host.look(p.index)
	if err != nil || a.Statistics == nil {
		return c
	}
	s := a.Statistics
	c.Device = &ethernet.DeviceCounters{ReceivedFrames: s.RxPackets, ReceivedBytes: s.RxBytes, SentFrames: s.TxPackets,
		SentBytes: s.TxBytes, Missed: s.RxMissedErrors, ReceiveErrors: s.RxErrors}
	for _, q := range p.queues {
		q.lock.Lock()
		if q.socket != nil {
			q.socket.statistics(c.Device)
		}
		q.lock.Unlock()
	}
	return c
}

// Restart makes the sockets anew, also on an interface that was deleted and made again.
func (p *port) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.fail("restart", ethernet.ErrClosed)
	}
	return p.restart(ctx)
}

// restart is Restart with mu held.
func (p *port) restart(ctx context.Context) error {
	err := p.tearDown()
	if err == nil {
		err = p.host.do(func() error { return p.setUp(ctx) })
	}
	if err != nil {
		err = errors.Join(err, p.tearDown())
		p.failure.Store(nil)
		p.giveUp(err)
		return p.fail("restart", err)
	}
	p.restarts.Add(1)
	p.failure.Store(nil)
	return nil
}

// Close gives everything back.
func (p *port) Close() error {
	p.watch.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.failure.Store(&failure{p.fail("use", ethernet.ErrClosed)})
	if err := p.release(); err != nil {
		return p.fail("close", err)
	}
	return nil
}

// release gives back what the port has, and leaves the pool. A pool that a device may still
// write to stays in use.
func (p *port) release() error {
	err := p.tearDown()
	for _, q := range p.queues {
		q.cache.Close()
	}
	p.host.close()
	if !p.unstopped {
		p.pool.Release()
	}
	return err
}
