package coherence

import "github.com/trapeze-nic/trapeze/lab/internal/profile"

// Sizes of this project's device: descriptors/SPEC.md 4.1 and 5.
const (
	tokenInMemory = 16 // bytes of a token, which the NIC reads from host memory
	statusBytes   = 8  // of a store that sets or clears a block's status bit
)

// tlpBytes of header and framing go with each packet over PCIe: PCI Express Base
// Specification, three or four double words of header, sequence number, LCRC and framing.
// The profiles' rates are those of 256 bytes with them; for shorter ones they count here.
const tlpBytes = 24

// link is one transfer over PCIe. The host's stores are posted: they take the time that
// their bytes need and arrive in order, the profile's write overhead later. A read by
// either side waits for the answer. The host's own bus is not modelled: the root complex
// keeps DMA coherent, and a program's store costs what the platform says.
type link struct {
	*Options
	*profile.Profile
	now    Time
	posted Time // when the host's posted stores have left
	Result
}

// overPCIe computes a transfer between machines with a NIC behind PCIe.
func overPCIe(o *Options) *Result {
	l := &link{Options: o, Profile: o.System.PCIe}
	l.register()
	l.build()
	l.SendUser = l.User
	l.fetch()
	frames := Time(o.System.NIC.Frames(o.Bytes))
	send := l.Profile.NIC.Packet + l.Profile.NIC.Decision + l.Link.Pulse.Overhead
	if o.Until == Wire {
		l.spend(&l.Transport, send)
		l.SendTransport = l.Transport
		return &l.Result
	}
	l.SendTransport = frames * send
	l.spend(&l.Transport, frames*(send+l.Profile.NIC.Packet))
	l.receive()
	return &l.Result
}

// register initialises the blocks of an eager region: the NIC clears their status in its own memory, or reads all of them.
func (l *link) register() {
	if l.Mechanism == EDT && l.Initialising == NICReads {
		size := l.System.NIC.Block
		l.Initialised = ceil(l.Bytes, size)
		l.Registration = Time(l.Initialised) * (l.Sender.Read.Overhead + l.Sender.Read.Bytes(size))
	}
}

func (l *link) spend(part *Time, span Time) {
	*part += span
	l.now += span
}

// store posts a store of the host into NIC memory.
func (l *link) store(t Time, k Kind, r Region, block, bytes int) {
	begin := max(t, l.posted)
	l.posted = begin + l.Sender.Write.Bytes(bytes+tlpBytes)
	l.Transactions = append(l.Transactions, Transaction{Sender, Host, k, r, block, bytes, begin, l.posted})
}

// build is the program's part: message, descriptor, doorbell. With EDT blocks are pushed
// while the program writes, with PIO when it has written.
func (l *link) build() {
	p, size := l.System.Processor, l.System.NIC.Block
	word := Time(p.Work+1) * p.Cycle
	perBlock := size / p.Word
	t := l.now + l.Host/2
	pushed := make([]bool, ceil(l.Bytes, size))
	in := -1
	leave := func() {
		if in >= 0 && l.Mechanism == EDT {
			l.store(t, Push, Payload, in, size)
			l.store(t, Store, Tags, in, statusBytes)
			pushed[in] = true
		}
	}
	for _, w := range l.Words {
		if b := w / perBlock; b != in {
			leave()
			if in = b; pushed[b] {
				// The block is taken back before it is written again.
				l.store(t, Store, Tags, b, statusBytes)
				pushed[b] = false
			}
		}
		t += word
	}
	leave()
	t += word * Time(ceil(descriptorBytes, p.Word))
	l.copyOut(t)
	l.store(t, Store, Token, 0, tokenBytes)
	l.spend(&l.User, max(t, l.posted)-l.now)
	l.spend(&l.Transfer, l.Sender.Write.Overhead)
}

// copyOut stores what the NIC shall not fetch: descriptor and token, and with PIO the message.
func (l *link) copyOut(t Time) {
	word, size := l.System.Processor.Word, l.System.NIC.Block
	out := func(k Kind, r Region, bytes, piece int) {
		for i := range ceil(bytes, piece) {
			l.store(t, k, r, i*piece/size, piece)
		}
	}
	switch l.Mechanism {
	case PIO:
		out(Store, Payload, l.Bytes, word)
		out(Store, Descriptor, descriptorBytes, word)
	case PIOWC:
		out(Push, Payload, l.Bytes, size)
		out(Push, Descriptor, descriptorBytes, size)
	case EDT:
		out(Push, Descriptor, descriptorBytes, size)
	}
}

// fetch returns what the sending NIC reads from host memory, each read after the one before. Of
// the payload that is the first frame if no more is asked for.
func (l *link) fetch() {
	n := l.Bytes
	if l.Until == Wire {
		n = min(n, l.System.NIC.MTU)
	}
	switch l.Mechanism {
	case DMA:
		l.read(Token, tokenInMemory)
		l.read(Descriptor, descriptorBytes)
		l.read(Payload, n)
	case Inline:
		l.read(Token, tokenInMemory)
		l.read(Descriptor, controlBytes+n)
	}
}

// start is the firmware's decision to start a transfer.
func (l *link) start() {
	l.spend(&l.Transfer, l.Profile.NIC.Decision)
	l.Initiation += l.Profile.NIC.Decision
}

// move is a transfer whose end is waited for.
func (l *link) move(s Side, a Agent, k Kind, r Region, block, bytes int, span Time) {
	begin := l.now
	l.spend(&l.Transfer, span)
	l.Transactions = append(l.Transactions, Transaction{s, a, k, r, block, bytes, begin, l.now})
}

// read is one read by the NIC: the firmware starts it and takes note of its end.
func (l *link) read(r Region, bytes int) {
	l.start()
	l.move(Sender, NIC, DMARead, r, 0, bytes, l.Sender.Read.Overhead+max(l.Sender.Read.Bytes(bytes), profile.NewCost(0, l.DMARate).Bytes(bytes)))
	l.spend(&l.Transfer, l.Profile.NIC.Completion)
	l.Interrupt += l.Profile.NIC.Completion
}

// receive brings the message from the receiving NIC to the program: the program loads it word by word, or the NIC
// writes it and the status to host memory. With EDT it writes block by block, or the program loads the blocks once
// it has seen the status.
func (l *link) receive() {
	if l.Mechanism == PIO {
		l.load(l.System.Processor.Word)
	} else {
		l.start()
		size, piece := l.System.NIC.Block, l.Bytes
		if l.Mechanism == EDT {
			piece = size
		}
		for at := 0; at < l.Bytes && l.Receiving == WriteBack; at += piece {
			l.write(Payload, at/size, min(piece, l.Bytes-at))
		}
		l.write(Descriptor, 0, statusBytes)
		l.spend(&l.Transfer, l.Receiver.Write.Overhead)
		if l.Receiving == Coherent {
			l.load(size)
		}
	}
	l.spend(&l.User, l.Host-l.Host/2)
}

// load is the program's reading of the message in the NIC, piece by piece.
func (l *link) load(bytes int) {
	for i := range ceil(l.Bytes, bytes) {
		l.move(Receiver, Host, Load, Payload, i*bytes/l.System.NIC.Block, bytes, l.Receiver.Read.Transfer(bytes))
	}
}

// write is one posted write of host memory by the receiving NIC.
func (l *link) write(r Region, block, bytes int) {
	l.move(Receiver, NIC, DMAWrite, r, block, bytes, max(l.Receiver.Write.Bytes(bytes), profile.NewCost(0, l.DMARate).Bytes(bytes)))
}
