// Package transfer sends one file over a reliable, ordered message link, as a
// reliable VI is one.
//
// The sender offers name, size and permissions; the receiver accepts. Chunks
// follow in order, then an end message with the SHA-256 of all that was sent.
// The receiver compares, makes the file durable, and only then returns a
// receipt, which the sender waits for. Either side may end the transfer at any
// time with an abort message that says why.
//
//	sender    offer          chunk … chunk  end
//	receiver         accept                      receipt
//
// There is no flow control here: the link has it. What the other side sends is
// not trusted; each field is checked and an odd one ends the transfer with
// ErrProtocol.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Link carries messages, whole, in order and without loss, in both directions.
// It is used by one goroutine at a time. When the other side is gone, methods
// fail with an error for which PeerLost holds; messages that arrived before can
// still be received. It is a reliable via.Conn, and a pipe in tests.
type Link interface {
	// MaxMessage is the size in bytes of the largest message, at least
	// MinMessage.
	MaxMessage() int
	// Acquire waits for a free send buffer of MaxMessage bytes.
	Acquire(ctx context.Context) ([]byte, error)
	// Post sends the first n bytes of the buffer that Acquire returned last.
	Post(n int) error
	// Flush waits until all that was posted has arrived.
	Flush(ctx context.Context) error
	// Receive waits for the next message. It is valid until Release.
	Receive(ctx context.Context) ([]byte, error)
	// TryReceive is Receive without the waiting: it returns nil if no message
	// is there.
	TryReceive() ([]byte, error)
	// Release gives back the message that was received last.
	Release() error
}

// abortTimeout bounds how long a side that ends a transfer tries to tell why.
const abortTimeout = 500 * time.Millisecond

// checkLink refuses links that cannot carry the longest control message.
func checkLink(l Link) error {
	if l.MaxMessage() < MinMessage {
		return fmt.Errorf("link carries messages of %d bytes, at least %d are needed", l.MaxMessage(), MinMessage)
	}
	return nil
}

// post sends one control message.
func post(ctx context.Context, l Link, m *Message) error {
	buf, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	b, err := m.Append(buf[:0])
	if err != nil {
		return err
	}
	return l.Post(len(b))
}

// receive waits for a control message and checks that it is the one expected.
// An abort becomes a RemoteError.
func receive(ctx context.Context, l Link, want Kind) (Message, error) {
	b, err := l.Receive(ctx)
	if err != nil {
		return Message{}, err
	}
	m, err := Parse(b)
	if rerr := l.Release(); err == nil {
		err = rerr
	}
	if err != nil {
		return Message{}, err
	}
	return m, m.expect(want)
}

func (m *Message) expect(want ...Kind) error {
	if m.Kind == KindAbort {
		return &RemoteError{Reason: m.Reason, Text: m.Text}
	}
	for _, k := range want {
		if m.Kind == k {
			return nil
		}
	}
	return malformed("%v message where %v should come", m.Kind, want)
}

// explain tells the other side why the transfer ends with err, as far as that
// is possible in a short time and makes sense. It works although ctx is done.
func explain(ctx context.Context, l Link, err error) {
	var remote *RemoteError
	if PeerLost(err) || errors.As(err, &remote) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	m := Message{Kind: KindAbort, Reason: reasonOf(err)}
	// Paths of this machine do not go to the peer; what the system said
	// about them is useful.
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		m.Text = plain(path.Err.Error())
	case m.Reason == ReasonProtocol:
		m.Text = plain(err.Error())
	}
	if post(ctx, l, &m) == nil {
		// Whether it arrived cannot be helped: the link is closed next.
		_ = l.Flush(ctx)
	}
}

// plain makes s fit an abort message.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if !printable(string(r)) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > MaxText {
		s = strings.ToValidUTF8(s[:MaxText], "")
	}
	return s
}

// remoteWord looks for an abort that explains why the link broke with err.
func remoteWord(ctx context.Context, l Link, err error) error {
	if err = Lost(err); !errors.Is(err, ErrPeerLost) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	for {
		b, rerr := l.Receive(ctx)
		if rerr != nil {
			return err
		}
		m, perr := Parse(b)
		if l.Release() != nil || perr != nil {
			return err
		}
		if m.Kind == KindAbort {
			return m.expect()
		}
	}
}
