package coherence

import (
	"context"
	"fmt"
)

// Sizes that VIA gives.
const (
	descriptorBytes = 64 // control segment and two data segments
	controlBytes    = 32 // control segment
	tokenBytes      = 8  // that the doorbell takes: an uncached store
)

// transfer is one message on its way over two machines. now is where it is; each step
// adds its time to one of the parts.
type transfer struct {
	*Options
	tx, rx *machine
	now    Time
	Result
}

// onBus computes a transfer between machines with memory buses.
func onBus(ctx context.Context, o *Options) (*Result, error) {
	f := &transfer{Options: o, tx: newMachine(o, Sender), rx: newMachine(o, Receiver)}
	f.send()
	f.SendUser = f.User
	frames := Time(o.System.NIC.Frames(o.Bytes))
	if o.Until == Wire {
		frames = 1
	}
	f.SendTransport = frames * o.System.NIC.Frame
	f.spend(&f.Transport, f.now+f.SendTransport)
	if o.Until != Wire {
		f.spend(&f.Transport, f.now+frames*o.System.NIC.Frame)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.receive()
	}
	for _, m := range []*machine{f.tx, f.rx} {
		if m.err != nil {
			return nil, fmt.Errorf("%s: %w", o.Mechanism, m.err)
		}
	}
	f.Transactions = append(f.tx.log, f.rx.log...)
	return &f.Result, f.register()
}

// register initialises the blocks of an eager region on a machine of its own: it is long past when the message is made.
func (f *transfer) register() error {
	if f.Mechanism != EDT {
		return nil
	}
	m := newMachine(f.Options, Sender)
	m.place(Payload, f.Bytes, modified, false)
	switch f.Initialising {
	case Flush:
		f.Registration = m.flush(0, Payload)
	case NICReads:
		for i := range m.sizes[Payload] {
			b := m.starts[Payload] + i
			f.Registration = m.bus.run(f.Registration, func() phases {
				p := m.fetch(b, m.full())
				m.blocks[b].nic = shared
				return p
			})
		}
	}
	f.Initialised = len(m.log)
	return m.err
}

// startDMA returns when a DMA transfer moves its first block. The one fitted figure for its start has initiation
// and interrupt in it. That each is half of it is an assumption.
func (f *transfer) startDMA() Time {
	start := f.System.NIC.Start
	f.Initiation += start - start/2
	f.Interrupt += start / 2
	return f.now + start
}

// spend moves on to a time, which counts for a part.
func (f *transfer) spend(part *Time, to Time) {
	*part += to - f.now
	f.now = to
}
