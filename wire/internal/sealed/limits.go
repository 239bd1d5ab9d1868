package sealed

import "time"

// Limits say when keys are renewed. The zero value of a field means its default.
type Limits struct {
	// Frames is after how many datagrams under a key a new session is begun; after
	// twice as many nothing is sent until there is one. Default: DefaultFrames.
	Frames uint64
	// Age is the same in time. Default: DefaultAge.
	Age time.Duration
}

const (
	// DefaultFrames keeps below the 2^23 datagrams of up to 2^16 bytes that RFC 9001
	// (6.6 and appendix B) allows under one key of AES-GCM.
	DefaultFrames = 1 << 22
	// DefaultAge is a choice of ours.
	DefaultAge = 10 * time.Minute

	// maxNumber is more than any session gets to: a receiver takes no higher ones.
	maxNumber = 1 << 32

	// Each end chooses these times for itself. tickEvery is how often links are looked
	// at. A hello is repeated after helloFirst, then after twice the time, up to
	// helloMost; one that is not answered within helloLife is replaced by another. A
	// peer of which nothing has come for answerWait after something was sent gets a
	// hello: it may have started anew. Sessions that others have taken the place of are
	// kept for linger after the last datagram under them.
	tickEvery  = 500 * time.Millisecond
	helloFirst = 50 * time.Millisecond
	helloMost  = 1600 * time.Millisecond
	helloLife  = 5 * time.Second
	answerWait = 2 * time.Second
	linger     = 10 * time.Second

	// Bounds on what others can make us remember. Only who has the key, or repeats
	// what somebody who has it once sent, gets to them.
	maxAnswered = 64   // hellos that were replied to, and not confirmed yet
	maxLinks    = 1024 // beside those that were configured
	maxOld      = 4    // sessions of a link beside the current one

	// maxConfirms is how often the end of a handshake is repeated to a peer that says
	// nothing.
	maxConfirms = 4
)

func (l *Limits) complete() {
	if l.Frames == 0 {
		l.Frames = DefaultFrames
	}
	if l.Age <= 0 {
		l.Age = DefaultAge
	}
	l.Frames = min(l.Frames, maxNumber/4)
}

// Counts says what a tunnel refused, by cause, and what it did.
type Counts struct {
	// Plain counts datagrams that are not sealed: the peer has no key.
	Plain uint64
	// Malformed counts sealed datagrams of a wrong length or kind.
	Malformed uint64
	// BadHandshakes counts hellos and replies under another key, changed ones, and our
	// own that came back.
	BadHandshakes uint64
	// Stale counts datagrams of no session that we have, or not from its address, and
	// replies that nobody waits for.
	Stale uint64
	// Forged counts datagrams whose authentication code does not hold.
	Forged uint64
	// Replayed counts datagrams that have come before, or are too old to tell.
	Replayed uint64
	// Unsent counts frames that could not be sent as there was no session yet.
	Unsent uint64
	// Sessions counts sessions that were begun.
	Sessions uint64
}
