package memif

import (
	"errors"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Stats says what a port has done so far. Frames are counted once for each
// batch, so the figures may be some frames behind.
type Stats struct {
	FramesSent, BytesSent         uint64
	FramesReceived, BytesReceived uint64
	// Lost counts frames that were committed while there was no peer, or that
	// the peer of a connection that has ended may not have taken.
	Lost uint64
	// TooLong counts frames that were dropped: to be sent, because all buffers
	// of a ring together have not the room, and received, because they were
	// longer than 65536 bytes.
	TooLong uint64
	// InterruptsSent and Interrupts count eventfds that were signalled to and
	// by the peer; Spurious those of the latter with no frame behind them.
	InterruptsSent, Interrupts, Spurious uint64

	// Connections counts those that were made. The rest counts why attempts to
	// make one have failed, and why connections have ended: Disconnects (the
	// peer has gone, or said so), Unplugs (SetLink, Close), Violations (of
	// rings), BadMemory (the peer's was not usable, or has vanished), Malformed
	// (control messages that made no sense), Timeouts (the peer took too long
	// for a step), NotWelcome (version, mode, secret, or interface).
	Connections, Disconnects, Unplugs, Violations uint64
	BadMemory, Malformed, Timeouts, NotWelcome    uint64

	// Up is whether there is a peer, and Guarded whether its memory could be
	// cut off, so that all frames are copied.
	Up, Guarded bool
	// PeerName and PeerInterface are the last peer's own names.
	PeerName, PeerInterface string
	// Err is why the last attempt to connect has failed or the last connection
	// has ended, nil if none has. It is a *wire.Error.
	Err error
}

// counters are Stats in the making.
type counters struct {
	framesSent, bytesSent, sentTooLong             atomic.Uint64
	_                                              [apart]byte
	framesReceived, bytesReceived, receivedTooLong atomic.Uint64
	_                                              [apart]byte
	lost, interruptsSent, interrupts, spurious     atomic.Uint64
	connections, disconnects, unplugs, violations  atomic.Uint64
	badMemory, malformed, notWelcome, timeouts     atomic.Uint64
}

// apart keeps what two directions write off each other's cache lines, and off
// the neighbour that amd64 fetches along with a line.
const apart = 128

// Stats may be called from any goroutine.
func (p *Port) Stats() Stats {
	c := &p.counters
	s := Stats{
		FramesSent: c.framesSent.Load(), BytesSent: c.bytesSent.Load(),
		FramesReceived: c.framesReceived.Load(), BytesReceived: c.bytesReceived.Load(),
		Lost: c.lost.Load(), TooLong: c.sentTooLong.Load() + c.receivedTooLong.Load(),
		InterruptsSent: c.interruptsSent.Load(), Interrupts: c.interrupts.Load(), Spurious: c.spurious.Load(),
		Connections: c.connections.Load(), Disconnects: c.disconnects.Load(), Unplugs: c.unplugs.Load(),
		Violations: c.violations.Load(), BadMemory: c.badMemory.Load(), Malformed: c.malformed.Load(),
		NotWelcome: c.notWelcome.Load(), Timeouts: c.timeouts.Load(),
	}
	if now := p.current.Load(); now != nil {
		s.Up, s.Guarded = true, now.guarded
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.PeerName, s.PeerInterface = p.peerName, p.peerInterface
	if p.lastError != nil {
		s.Err = p.lastError
	}
	return s
}

// note keeps and counts why a connection was not made or has ended, in this order:
// Stats that have the count have the error too.
func (p *Port) note(err *ends.Error) {
	p.mu.Lock()
	p.lastError = err
	p.mu.Unlock()
	c := &p.counters
	for _, class := range []struct {
		err   error
		count *atomic.Uint64
	}{
		{ErrRefused, &c.disconnects}, {ends.ErrGone, &c.disconnects}, {ErrUnplugged, &c.unplugs},
		{ErrViolation, &c.violations}, {ErrMemory, &c.badMemory}, {ErrMessage, &c.malformed},
		{ErrNotWelcome, &c.notWelcome}, {ErrTimeout, &c.timeouts},
	} {
		if errors.Is(err, class.err) {
			class.count.Add(1)
			break
		}
	}
}
