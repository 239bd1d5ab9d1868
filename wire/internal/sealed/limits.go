package sealed

import (
	"cmp"
	"time"
)

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

	// Each end chooses these times for itself. Tick looks at sessions every tickEvery. A hello is
	// repeated after helloFirst, then after twice the time, up to helloMost; one that is not answered
	// within helloLife is replaced by another. A peer of which nothing has come for answerWait after
	// something was sent gets a hello: it may have started anew.
	tickEvery  = 500 * time.Millisecond
	helloFirst = 50 * time.Millisecond
	helloMost  = 1600 * time.Millisecond
	helloLife  = 5 * time.Second
	answerWait = 2 * time.Second

	// Bounds on what others can make us remember. Only a holder of the key, or a host that repeats
	// what a holder of it once sent, gets to them.
	maxUnconfirmed = 64   // sessions of hellos
	maxLinks       = 1024 // beside those that were configured
	maxSessions    = 4    // of a link
)

func (l *Limits) complete() {
	l.Frames, l.Age = min(cmp.Or(l.Frames, DefaultFrames), maxNumber/4), cmp.Or(l.Age, DefaultAge)
}

// Stats says what a tunnel refused, by cause, and what it did.
type Stats struct {
	Plain         uint64 `json:"plain" help:"Datagrams that are not sealed: the peer has no key." unit:"datagrams"`
	Malformed     uint64 `json:"malformed" help:"Sealed datagrams of a wrong length or kind." unit:"datagrams"`
	BadHandshakes uint64 `json:"bad_handshakes" help:"Hellos and replies under another key, changed ones, and our own that came back." unit:"datagrams"`
	Stale         uint64 `json:"stale" help:"Datagrams of an unknown session or another address, and late replies." unit:"datagrams"`
	Forged        uint64 `json:"forged" help:"Datagrams whose authentication code does not hold." unit:"datagrams"`
	Replayed      uint64 `json:"replayed" help:"Datagrams that have come before, or are too old to tell." unit:"datagrams"`
	Unsent        uint64 `json:"unsent" help:"Frames that could not be sent as there was no session yet." unit:"frames"`
	Sessions      uint64 `json:"sessions" help:"Sessions that were begun." unit:"sessions"`
}
