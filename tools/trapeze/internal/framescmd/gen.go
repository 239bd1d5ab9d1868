package framescmd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/numbered"
)

// genReport is the JSON output of gen.
type genReport struct {
	totals
	Generated uint64 `json:"generated"`
	Closing   uint64 `json:"closing" help:"frames that end the streams, beside the generated ones"`
	Dropped   uint64 `json:"dropped" help:"for lack of room in the send ring"`
	Unsent    int    `json:"unsent" help:"still in the ring at the end"`
}

type genFlags struct {
	portFlags
	To    string   `flag:"to" default:"ff:ff:ff:ff:ff:ff" help:"MAC address to send to"`
	UDP   []string `flag:"udp" split:"comma" help:"send UDP over IPv4: FROM:PORT,TO:PORT; the queues have FROM's port and those after it"`
	Size  string   `flag:"size" default:"60" help:"bytes of a frame: a number, a range such as 60-1514, or imix"`
	Rate  string   `flag:"rate" help:"frames a second for all queues together, such as 5000, 100k or 1.5M (default as fast as possible)"`
	Count uint64   `flag:"count" help:"how many frames, of each queue (default until interrupted)"`
	VLAN  uint16   `flag:"vlan" range:"1..4094" help:"VLAN tag to put in, 1 to 4094"`

	// what they mean
	destination    ethernet.MAC
	udpFrom, udpTo netip.AddrPort
	sizes          numbered.Sizes
	perSecond      float64 // 0 for no limit
}

// parse reads the flags that have a form of their own.
func (f *genFlags) parse() (err error) {
	hw, err := net.ParseMAC(f.To)
	if err != nil || len(hw) != len(f.destination) {
		return &option.Error{Option: "--to", Value: f.To, Allowed: "a MAC address such as 02:00:00:00:00:01"}
	}
	f.destination = ethernet.MAC(hw)
	if len(f.UDP) > 0 {
		bad := len(f.UDP) != 2
		for i, to := range []*netip.AddrPort{&f.udpFrom, &f.udpTo} {
			if !bad {
				*to, err = netip.ParseAddrPort(f.UDP[i])
				bad = err != nil || !to.Addr().Is4()
			}
		}
		if bad || int(f.udpFrom.Port())+f.Queues > 1<<16 {
			return &option.Error{Option: "--udp", Value: strings.Join(f.UDP, ","), Allowed: "two IPv4 addresses with ports, as in 10.0.0.1:5000,10.0.0.2:9"}
		}
	}
	if f.sizes, err = numbered.ParseSizes(f.Size); err != nil {
		return &option.Error{Option: "--size", Value: f.Size, Allowed: "a number, a range such as 60-1514, or imix"}
	}
	f.perSecond, err = parseRate(f.Rate)
	return err
}

// parseRate reads frames a second, with k or M behind it for thousands and millions.
func parseRate(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	digits, factor := s, 1.0
	switch {
	case strings.HasSuffix(s, "k"):
		digits, factor = s[:len(s)-1], 1e3
	case strings.HasSuffix(s, "M"):
		digits, factor = s[:len(s)-1], 1e6
	}
	v, err := strconv.ParseFloat(digits, 64)
	if v *= factor; err != nil || !(v >= 0.001 && v <= 1e9) {
		return 0, &option.Error{Option: "--rate", Value: s, Allowed: "frames a second, 0.001 to 1000M, such as 5000, 100k or 1.5M"}
	}
	return v, nil
}

func (x *commands) runGen(ctx context.Context, f *genFlags, _ []string) (err error) {
	if err := errors.Join(f.check(1), f.parse()); err != nil {
		return err
	}
	s, err := x.open(ctx, &f.portFlags)
	if err != nil {
		return err
	}
	defer s.close(&err)
	port := s.ports[0]
	g := &gen{flags: f, pool: s.pool, room: port.Info().Options.MaxFrame()}
	var workers []func(context.Context) error
	for i := range port.Info().Options.Queues {
		generator, err := f.generator(port.MAC(), i, g.room)
		if err != nil {
			return err
		}
		workers = append(workers, func(ctx context.Context) error { return g.work(ctx, port.Queue(i), generator) })
	}
	if link, err := port.Link(); err == nil && !link.Up {
		x.Note("waiting for the link of %s", port.Info().Device)
	}
	if _, err := ethernet.WaitLink(ctx, port); err != nil {
		return err
	}
	x.Note("sending from %v", port.MAC())
	if err := s.run(ctx, workers, len(workers)); err != nil {
		return err
	}
	r := genReport{Generated: g.generated.Load(), Closing: g.closing.Load(), Dropped: g.dropped.Load(), Unsent: int(g.unsent.Load())}
	if r.totals, err = s.totals(); err != nil {
		return err
	}
	return x.Report(r)
}

// generator makes the generator of a queue's stream; room is the longest frame.
func (f *genFlags) generator(mac ethernet.MAC, queue, room int) (*numbered.Generator, error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	o := numbered.Options{Source: mac, Destination: f.destination, VLAN: f.VLAN, Sizes: f.sizes, Stream: binary.BigEndian.Uint32(id[:])}
	if f.udpTo.IsValid() {
		o.From, o.To = netip.AddrPortFrom(f.udpFrom.Addr(), f.udpFrom.Port()+uint16(queue)), f.udpTo
	}
	g, err := numbered.NewGenerator(o)
	if err == nil && f.sizes.Most() > room {
		err = fmt.Errorf("%w: %d bytes, this port sends %d at most (--mtu)", numbered.ErrSize, f.sizes.Most(), room)
	}
	if err != nil {
		return nil, option.Errorf("--size %s: %w", f.Size, err)
	}
	return g, nil
}

// gen sends frames.
type gen struct {
	flags     *genFlags
	pool      *ethernet.Pool
	room      int           // bytes of the longest frame
	generated atomic.Uint64 // without closing
	closing   atomic.Uint64 // frames that end streams
	dropped   atomic.Uint64
	unsent    atomic.Int64
}

// pacer says how many frames are due.
type pacer struct {
	start     time.Time
	perSecond float64
	sent      float64
}

// due waits until a frame is due, and returns how many are, up to most; 0 if ctx ended.
func (p *pacer) due(ctx context.Context, most int) int {
	if p.perSecond == 0 {
		return most
	}
	for {
		late := time.Since(p.start).Seconds()*p.perSecond - p.sent
		if late >= 1 {
			n := min(int(late), most)
			p.sent += float64(n)
			return n
		}
		if pause.For(ctx, time.Duration((1-late)/p.perSecond*float64(time.Second))) != nil {
			return 0
		}
	}
}

// ends is the number of frames that say the end of a stream, endGap the time between them: some
// may be lost, as behind a burst that was too much for the receiver.
const (
	ends   = 5
	endGap = 20 * time.Millisecond
)

// work sends a stream until ctx ends or there were count frames, and then its end.
func (g *gen) work(ctx context.Context, q ethernet.Queue, stream *numbered.Generator) error {
	frames := make([]ethernet.Frame, burst)
	pace := pacer{start: time.Now(), perSecond: g.flags.perSecond / float64(g.flags.Queues)}
	left := uint64(math.MaxUint64)
	if g.flags.Count > 0 {
		left = g.flags.Count
	}
	next, end := stream.Next, stream.End
	for ctx.Err() == nil && left > 0 {
		n := pace.due(ctx, int(min(burst, left)))
		if err := g.burst(ctx, q, frames[:n], next, &g.generated); err != nil {
			return err
		}
		left -= uint64(n)
	}
	// The end is told although ctx may have ended: it takes no longer than settling does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	for range ends {
		if _, err := g.settle(ctx, q); err != nil {
			return err
		}
		_ = pause.For(ctx, endGap)
		if err := g.burst(ctx, q, frames[:1], end, &g.closing); err != nil {
			return err
		}
	}
	n, err := g.settle(ctx, q)
	g.unsent.Add(int64(n))
	return err
}

// burst fills frames, counts and sends them: those for which there are buffers.
func (g *gen) burst(ctx context.Context, q ethernet.Queue, frames []ethernet.Frame, fill func([]byte) int, count *atomic.Uint64) error {
	for len(frames) > 0 && ctx.Err() == nil {
		n := q.Cache().Alloc(frames)
		if n == 0 {
			if _, err := q.Unsent(); err != nil || pause.For(ctx, sendNap) != nil {
				return err
			}
		}
		for i := range frames[:n] {
			f := &frames[i]
			f.Length = uint16(g.room)
			f.Length = uint16(fill(g.pool.Bytes(*f)))
		}
		count.Add(uint64(n))
		if err := g.sendAll(ctx, q, frames[:n]); err != nil {
			return err
		}
		frames = frames[n:]
	}
	return nil
}

// sendAll sends frames, and waits for room as long as ctx lets it.
func (g *gen) sendAll(ctx context.Context, q ethernet.Queue, frames []ethernet.Frame) error {
	for len(frames) > 0 {
		n, err := q.Send(frames)
		frames = frames[n:]
		switch {
		case err != nil:
			q.Cache().Free(frames)
			return err
		case n == 0 && pause.For(ctx, sendNap) != nil:
			g.dropped.Add(uint64(len(frames)))
			q.Cache().Free(frames)
			return nil
		}
	}
	return nil
}

// sendNap is the sleep of gen while the send ring is full.
const sendNap = 20 * time.Microsecond

// settleTimeout is the time that frames in the send ring may take at the end.
const settleTimeout = 2 * time.Second

// settle waits until all frames have left the ring, and returns how many have not when ctx
// ended.
func (g *gen) settle(ctx context.Context, q ethernet.Queue) (int, error) {
	for {
		n, err := q.Unsent()
		if err != nil || n == 0 || pause.For(ctx, sendNap) != nil {
			return n, err
		}
	}
}
