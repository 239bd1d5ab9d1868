// Package cable has Ethernet ports for tests: two of one process that are joined by a
// cable. What one sends the other receives, by a copy from pool to pool; and both can be
// told to do what a NIC does that fails.
package cable

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Scheme begins the addresses of ports. Those that are opened as "cable:NAME" are the ends
// of the cable NAME: a third one is refused.
const Scheme = "cable"

func init() { ethernet.RegisterScheme(Scheme, open) }

// depth is the number of frames that an end holds for its receiver; more are lost.
const depth = 512

// cables are those that have an end that is open, by name.
var cables = struct {
	sync.Mutex
	m map[string]*[2]*Port
}{m: map[string]*[2]*Port{}}

// Port is an end of a cable.
type Port struct {
	name   string
	number int
	ends   *[2]*Port
	info   ethernet.Info
	pool   *ethernet.Pool
	queue  queue

	// failure is returned by all calls, nil as long as the port works.
	failure atomic.Pointer[error]
	down    atomic.Bool
	// repairs is the number of calls of Restart that still fail.
	repairs  atomic.Int32
	restarts atomic.Uint64
	full     atomic.Bool
	closed   atomic.Bool
	mac      atomic.Pointer[ethernet.MAC]
}

type queue struct {
	port   *Port
	cache  *ethernet.Cache
	frames chan []byte
	came   chan struct{}

	received, receivedBytes, sent, sentBytes, missed, noBuffers, calls atomic.Uint64
}

func open(_ context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
	fail := func(err error) (ethernet.Port, error) {
		return nil, &ethernet.Error{Op: "open", Device: a.String(), Err: err}
	}
	c, err := c.Check()
	if err != nil {
		return fail(err)
	}
	if c.Offloads&(ethernet.OffloadSendSum|ethernet.OffloadTSO) != 0 { // frames arrive as they were sent
		return fail(fmt.Errorf("%w: offloads (%v)", ethernet.ErrNotSupported, c.Offloads))
	}
	cables.Lock()
	defer cables.Unlock()
	ends := cables.m[a.Path]
	if ends == nil {
		ends = &[2]*Port{}
	}
	number := 0
	if ends[0] != nil {
		number = 1
	}
	if ends[number] != nil {
		return fail(ethernet.ErrInUse)
	}
	if err := c.Pool.Hold(); err != nil {
		return fail(err)
	}
	own := ethernet.MAC{2, 'c', 'a', 'b', 'l', byte('A' + number)}
	p := &Port{name: a.Path, number: number, ends: ends, pool: c.Pool,
		info: ethernet.Info{Device: a.String(), Driver: Scheme, Model: "end", Tested: true, MAC: own, Options: c}}
	p.queue = queue{port: p, cache: c.Pool.NewCache(), frames: make(chan []byte, depth), came: make(chan struct{}, 1)}
	if c.MAC != (ethernet.MAC{}) {
		own = c.MAC
	}
	p.mac.Store(&own)
	ends[number] = p
	cables.m[a.Path] = ends
	return p, nil
}

// End returns an end of a cable, 0 or 1 in the order in which they were opened, nil if it is
// not open.
func End(name string, number int) *Port {
	cables.Lock()
	defer cables.Unlock()
	if ends := cables.m[name]; ends != nil {
		return ends[number]
	}
	return nil
}

// Fail makes the port fail with err, and the next tries to restart it.
func (p *Port) Fail(err error, tries int) {
	p.repairs.Store(int32(tries))
	p.failure.Store(&err)
}

// SetLink takes the link of this end down, or up again. What it sends is lost meanwhile,
// and so are the frames of the other end.
func (p *Port) SetLink(up bool) { p.down.Store(!up) }

// SetFull has Send take nothing, or end that.
func (p *Port) SetFull(on bool) { p.full.Store(on) }

// Sends says how often Send was called with frames.
func (p *Port) Sends() uint64 { return p.queue.calls.Load() }

func (p *Port) err(op string) error {
	if p.closed.Load() {
		return &ethernet.Error{Op: op, Device: p.info.Device, Err: ethernet.ErrClosed}
	}
	if err := p.failure.Load(); err != nil {
		return &ethernet.Error{Op: op, Device: p.info.Device, Err: *err}
	}
	return nil
}

// peer is the other end, nil if it is not open.
func (p *Port) peer() *Port {
	cables.Lock()
	defer cables.Unlock()
	return p.ends[1-p.number]
}

func (p *Port) Info() ethernet.Info { return p.info }

func (p *Port) Queue(i int) ethernet.Queue {
	if i != 0 {
		return nil
	}
	return &p.queue
}

func (p *Port) Link() (ethernet.Link, error) {
	if err := p.err("look at the link of"); err != nil {
		return ethernet.Link{}, err
	}
	other := p.peer()
	return ethernet.Link{Up: !p.down.Load() && other != nil && !other.down.Load()}, nil
}

func (p *Port) MAC() ethernet.MAC { return *p.mac.Load() }

func (p *Port) SetMAC(m ethernet.MAC) error {
	p.mac.Store(&m)
	return p.err("set the address of")
}

// SetPromiscuous does nothing, as SetMulticast and SetVLANs: everything is received.
func (p *Port) SetPromiscuous(bool) error { return p.err("set the filter of") }

func (p *Port) SetMulticast([]ethernet.MAC) error { return p.err("set the groups of") }

func (p *Port) SetVLANs([]uint16) error { return p.err("set the VLANs of") }

func (p *Port) Stats() ethernet.Stats {
	q := &p.queue
	return ethernet.Stats{Restarts: p.restarts.Load(), Queues: []ethernet.QueueStats{{
		ReceivedFrames: q.received.Load(), ReceivedBytes: q.receivedBytes.Load(), SentFrames: q.sent.Load(),
		SentBytes: q.sentBytes.Load(), NoBuffers: q.noBuffers.Load(), Lost: q.missed.Load()}}}
}

func (p *Port) Restart(context.Context) error {
	if p.closed.Load() || p.repairs.Add(-1) >= 0 {
		return p.err("restart")
	}
	p.repairs.Store(0)
	for len(p.queue.frames) > 0 {
		<-p.queue.frames
	}
	p.failure.Store(nil)
	p.restarts.Add(1)
	return nil
}

func (p *Port) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	cables.Lock()
	p.ends[p.number] = nil
	if p.ends[0] == nil && p.ends[1] == nil {
		delete(cables.m, p.name)
	}
	cables.Unlock()
	p.queue.cache.Close()
	p.pool.Release()
	return nil
}

func (q *queue) Cache() *ethernet.Cache { return q.cache }

func (q *queue) Receive(frames []ethernet.Frame) (int, error) {
	if err := q.port.err("receive"); err != nil {
		return 0, err
	}
	for i := range frames {
		if len(q.frames) == 0 {
			return i, nil
		}
		if q.cache.Alloc(frames[i:i+1]) == 0 {
			q.noBuffers.Add(1)
			return i, nil
		}
		b := <-q.frames
		frames[i].Length = uint16(copy(q.port.pool.Buffer(frames[i].Buffer)[frames[i].Offset:], b))
		q.received.Add(1)
		q.receivedBytes.Add(uint64(len(b)))
	}
	return len(frames), nil
}

func (q *queue) Send(frames []ethernet.Frame) (int, error) {
	p := q.port
	if err := p.err("send"); err != nil || len(frames) == 0 || p.full.Load() {
		return 0, err
	}
	q.calls.Add(1)
	other := p.peer()
	for i, f := range frames {
		b := p.pool.Bytes(f)
		if len(b) < ethernet.HeaderSize || len(b) > p.info.Options.MaxFrame() {
			return i, fmt.Errorf("%w: %+v", ethernet.ErrBadFrame, f)
		}
		q.sent.Add(1)
		q.sentBytes.Add(uint64(len(b)))
		if link, err := p.Link(); err == nil && link.Up && len(b) <= other.info.Options.MaxFrame() {
			other.queue.arrive(b)
		}
		q.cache.Free(frames[i : i+1])
	}
	return len(frames), nil
}

// arrive takes a frame off the cable.
func (q *queue) arrive(b []byte) {
	select {
	case q.frames <- append(make([]byte, 0, max(len(b), ethernet.MinFrame)), b...):
	default:
		q.missed.Add(1)
		return
	}
	select {
	case q.came <- struct{}{}:
	default:
	}
}

func (q *queue) Unsent() (int, error) { return 0, q.port.err("look at") }

func (q *queue) Wait(ctx context.Context) error {
	if err := q.port.err("wait for"); err != nil || len(q.frames) > 0 {
		return err
	}
	limit := time.NewTimer(ethernet.WaitLimit)
	defer limit.Stop()
	select {
	case <-q.came:
	case <-limit.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
