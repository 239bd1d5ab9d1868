package afxdp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

// device is an open interface. It implements port.NIC.
type device struct {
	port     *port.Port
	config   *ethernet.Options
	name     string
	options  options
	geometry geometry
	memory   []byte // of the pool's buffers; nil before the pool is held
	host     *host  // nil until there is one
	queues   []*queue
	index    int          // of the interface
	own      ethernet.MAC // the interface's
	program  *program
	members  *os.File // the socket with the memberships of receive
	// unstopped: a device may still write to buffers.
	unstopped bool
}

func (d *device) Setup(ctx context.Context, p *port.Port, info *ethernet.Info) (err error) {
	d.port, d.config = p, p.Options()
	pool := d.config.Pool
	if err := pool.Hold(); err != nil {
		return err
	}
	d.memory = pool.Memory().Bytes()[:pool.Stride()*pool.Options().Buffers]
	if d.host, err = openHost(); err != nil {
		return err
	}
	for range d.config.Queues {
		d.queues = append(d.queues, newQueue(d))
	}
	return d.host.do(func() error { return d.setUp(ctx, info) })
}

func (d *device) Hint(err error) string {
	var config *ethernet.ConfigError
	switch {
	case errors.As(err, &config), errors.Is(err, ethernet.ErrClosed), errors.Is(err, errNone):
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return capabilities()
	case errors.Is(err, unix.EAFNOSUPPORT):
		return "this kernel is built without CONFIG_XDP_SOCKETS"
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Sprintf("the kernel may lock too little memory: raise ulimit -l (LimitMEMLOCK= of a systemd unit) by %d KiB for each queue, or have CAP_IPC_LOCK", len(d.memory)>>10)
	case errors.Is(err, errDown):
		return "ip link set dev " + d.name + " up"
	case errors.Is(err, errShort):
		return fmt.Sprintf("ip link set dev %s mtu %d", d.name, d.config.MTU)
	case errors.Is(err, errQueues):
		return "ethtool -L " + d.name + " changes how many there are"
	case errors.Is(err, errLarge):
		return fmt.Sprintf("ip link set dev %s mtu %d, and the same at the other end; mode=generic takes any", d.name, d.config.MTU)
	case errors.Is(err, errFew):
		return "ethtool -L " + d.name + " rx N, where N is the peer's number of send queues; or use mode=generic"
	case errors.Is(err, ethernet.ErrInUse):
		return "who has it: ip link show dev " + d.name + ", and ss --xdp"
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

// patiently calls f until it fails with something else than that another socket has what it
// wants, or that this user has locked all the memory that he may, for Options.Timeout at most: the
// kernel takes sockets, programs and buffers from a process that has ended, or from this one, a
// moment later.
func (d *device) patiently(ctx context.Context, f func() error) error {
	end := time.Now().Add(d.config.Timeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := f()
		if !errBusy(err) && !errors.Is(err, unix.ENOBUFS) || time.Now().After(end) {
			return err
		}
		if pause.For(ctx, wait) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

func (d *device) Link(context.Context) (ethernet.Link, error) {
	a, err := d.host.look(d.index)
	if err != nil {
		return ethernet.Link{}, err
	}
	return d.host.link(a), nil
}

// Look implements port.NIC. Errors of netlink pass, but for an interface that is gone.
func (d *device) Look(ctx context.Context) (up bool, err error) {
	link, err := d.Link(ctx)
	if !errors.Is(err, ethernet.ErrDeviceGone) {
		err = nil
	}
	return link.Up, err
}

// Count implements port.NIC: the interface's counters, and the drops of its sockets.
func (d *device) Count() (*ethernet.DeviceStats, error) {
	a, err := d.host.look(d.index)
	if err != nil || a.Statistics == nil {
		return nil, err
	}
	s := a.Statistics
	c := &ethernet.DeviceStats{ReceivedFrames: s.RxPackets, ReceivedBytes: s.RxBytes, SentFrames: s.TxPackets,
		SentBytes: s.TxBytes, Missed: s.RxMissedErrors, ReceiveErrors: s.RxErrors}
	for _, q := range d.queues {
		q.lock.Lock()
		if q.socket != nil {
			q.socket.statistics(c)
		}
		q.lock.Unlock()
	}
	return c, nil
}

// Restart implements port.NIC: it makes the sockets anew, also on an interface that was deleted and
// made again.
func (d *device) Restart(ctx context.Context) error {
	err := d.tearDown()
	if err == nil {
		err = d.host.do(func() error { return d.setUp(ctx, nil) })
	}
	if err != nil {
		err = errors.Join(err, d.tearDown())
	}
	return err
}

// Release implements port.NIC. A pool that a device may still write to stays in use.
func (d *device) Release() error {
	if d.memory == nil {
		return nil
	}
	err := d.tearDown()
	for _, q := range d.queues {
		q.Cache().Close()
	}
	if d.host != nil {
		d.host.close()
	}
	if !d.unstopped {
		d.config.Pool.Release()
	}
	return err
}
