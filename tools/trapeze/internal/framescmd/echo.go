package framescmd

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/responder"
)

// echoReport is the JSON output of echo.
type echoReport struct {
	totals
	Answers echoAnswers `json:"answers"`
	Invalid uint64      `json:"invalid" help:"for us, with a wrong checksum, length or address"`
	Other   uint64      `json:"other" help:"nothing that echo answers"`
	Dropped uint64      `json:"dropped" help:"answers for which the send ring had no room"`
}

type echoAnswers struct {
	ARP  uint64 `json:"arp"`
	Echo uint64 `json:"echo"`
}

type echoFlags struct {
	portFlags
	pollFlag
	IPs   []string `flag:"ip" split:"comma" required:"an IPv4 address of one host, as in --ip 10.0.0.2" help:"IPv4 address to answer for; may be repeated"`
	Count uint64   `flag:"count" help:"end after so many answers (default when interrupted)"`
}

// addresses reads --ip.
func (f *echoFlags) addresses() (list []netip.Addr, err error) {
	for _, s := range f.IPs {
		a, err := netip.ParseAddr(s)
		if err != nil || !a.Is4() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
			return nil, &option.Error{Option: "--ip", Value: s, Allowed: "an IPv4 address of one host, as in --ip 10.0.0.2"}
		}
		list = append(list, a)
	}
	return list, nil
}

func (x *commands) runEcho(ctx context.Context, f *echoFlags, _ []string) (err error) {
	if err := f.check(1); err != nil {
		return err
	}
	addresses, err := f.addresses()
	if err != nil {
		return err
	}
	f.poll = f.Poll
	s, err := x.open(ctx, &f.portFlags)
	if err != nil {
		return err
	}
	defer s.close(&err)
	port := s.ports[0]
	e := &echo{responder: responder.New(port.MAC(), addresses), pool: s.pool, count: f.Count}
	x.Note("answering for %s at %v", strings.Join(f.IPs, ", "), port.MAC())
	var workers []func(context.Context) error
	for i := range port.Info().Options.Queues {
		workers = append(workers, func(ctx context.Context) error { return e.work(ctx, port.Queue(i)) })
	}
	if err := s.run(ctx, workers, 1); err != nil {
		return err
	}
	r := echoReport{Invalid: e.verdicts[responder.Invalid].Load(), Other: e.verdicts[responder.Other].Load(), Dropped: e.dropped.Load(),
		Answers: echoAnswers{ARP: e.verdicts[responder.ARP].Load(), Echo: e.verdicts[responder.Echo].Load()}}
	if r.totals, err = s.totals(); err != nil {
		return err
	}
	return x.Report(r)
}

// echo answers what comes into the queues of a port.
type echo struct {
	responder *responder.Responder
	pool      *ethernet.Pool
	count     uint64 // answers to end after; 0 for no end
	answered  atomic.Uint64
	verdicts  [responder.Verdicts]atomic.Uint64
	dropped   atomic.Uint64
}

// work answers what comes into a queue until ctx ends or there were count answers.
func (e *echo) work(ctx context.Context, q ethernet.Queue) error {
	frames := make([]ethernet.Frame, burst)
	for ctx.Err() == nil {
		n, err := e.round(ctx, q, frames)
		if err != nil || e.count > 0 && e.answered.Load() >= e.count {
			return err
		}
		if n == 0 {
			if err := q.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// round answers a burst, and returns how many frames there were.
func (e *echo) round(ctx context.Context, q ethernet.Queue, frames []ethernet.Frame) (int, error) {
	n, err := q.Receive(frames)
	if n == 0 || err != nil {
		if err == nil {
			_, err = q.Unsent() // their buffers come back
		}
		return n, err
	}
	var verdicts [responder.Verdicts]uint64
	answers := frames[:0]
	for i := range n {
		f := frames[i]
		restoreTag(e.pool, &f)
		length, v := e.responder.Answer(e.pool.Bytes(f))
		verdicts[v]++
		if length == 0 {
			q.Cache().Give(f.Buffer)
			continue
		}
		f.Length = uint16(length)
		answers = append(answers, f)
	}
	for v, n := range verdicts {
		if n > 0 {
			e.verdicts[v].Add(n)
		}
	}
	dropped, err := send(ctx, q, answers)
	e.dropped.Add(uint64(dropped))
	e.answered.Add(uint64(len(answers) - dropped))
	return n, err
}
