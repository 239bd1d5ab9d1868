package transfer_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
)

// expect takes the next message and checks its kind.
func (p *pipe) expect(t testing.TB, want transfer.Kind) transfer.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b, err := p.Receive(ctx)
	if err != nil {
		t.Fatalf("waiting for %v: %v", want, err)
	}
	defer p.Release()
	m, err := transfer.Parse(b)
	if err != nil || m.Kind != want {
		t.Fatalf("got %+v, %v; want %v", m, err, want)
	}
	return m
}

func chunk(offset uint64, data string) transfer.Message {
	return transfer.Message{Kind: transfer.KindChunk, Offset: offset, Data: []byte(data)}
}

func end(data string) transfer.Message {
	return transfer.Message{Kind: transfer.KindEnd, Size: uint64(len(data)), Digest: sha256.Sum256([]byte(data))}
}

// TestHostileSender plays a sender that breaks the rules in one way each.
func TestHostileSender(t *testing.T) {
	offer := transfer.Message{Kind: transfer.KindOffer, Size: 4, Name: "f"}
	stream := transfer.Message{Kind: transfer.KindOffer, Size: transfer.UnknownSize, Name: "f"}
	accept := transfer.Message{Kind: transfer.KindAccept}
	for name, c := range map[string]struct {
		script []transfer.Message
		want   error
		opened bool
	}{
		"no offer":            {[]transfer.Message{chunk(0, "abcd")}, transfer.ErrProtocol, false},
		"end first":           {[]transfer.Message{end("")}, transfer.ErrProtocol, false},
		"accept as offer":     {[]transfer.Message{accept}, transfer.ErrProtocol, false},
		"two offers":          {[]transfer.Message{offer, offer}, transfer.ErrProtocol, true},
		"an accept":           {[]transfer.Message{offer, accept}, transfer.ErrProtocol, true},
		"a receipt":           {[]transfer.Message{offer, {Kind: transfer.KindReceipt}}, transfer.ErrProtocol, true},
		"a gap":               {[]transfer.Message{offer, chunk(0, "a"), chunk(2, "c")}, transfer.ErrProtocol, true},
		"a repetition":        {[]transfer.Message{offer, chunk(0, "ab"), chunk(0, "ab")}, transfer.ErrProtocol, true},
		"more than offered":   {[]transfer.Message{offer, chunk(0, "abc"), chunk(3, "de")}, transfer.ErrSize, true},
		"less than offered":   {[]transfer.Message{offer, chunk(0, "abc"), end("abc")}, transfer.ErrSize, true},
		"end lies about size": {[]transfer.Message{stream, chunk(0, "abc"), end("abcd")}, transfer.ErrProtocol, true},
		"another digest":      {[]transfer.Message{offer, chunk(0, "abcd"), end("abce")}, transfer.ErrDigest, true},
		"it gives up":         {[]transfer.Message{offer, chunk(0, "ab"), {Kind: transfer.KindAbort, Reason: transfer.ReasonSize}}, transfer.ErrSize, true},
		"it disconnects":      {[]transfer.Message{offer, chunk(0, "ab")}, transfer.ErrPeerLost, true},
		"it never speaks":     {nil, transfer.ErrPeerLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPipe(small)
			sink, opened := &memory{}, false
			done := make(chan error)
			go func() {
				_, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) {
					opened = true
					return sink, nil
				}, nil)
				done <- err
			}()
			for _, m := range c.script {
				a.say(encode(t, m))
			}
			if errors.Is(c.want, transfer.ErrPeerLost) {
				a.disconnect()
			}
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if opened != c.opened || sink.committed || sink.discarded != c.opened {
				t.Errorf("opened %v, committed %v, discarded %v", opened, sink.committed, sink.discarded)
			}
		})
	}
}

// TestHostileReceiver does the same for the other side.
func TestHostileReceiver(t *testing.T) {
	accept := transfer.Message{Kind: transfer.KindAccept}
	good := end("abcd")
	receipt := func(m transfer.Message) transfer.Message { m.Kind = transfer.KindReceipt; return m }
	for name, c := range map[string]struct {
		script []transfer.Message
		want   error
	}{
		"receipt before accept": {[]transfer.Message{receipt(good)}, transfer.ErrProtocol},
		"an offer":              {[]transfer.Message{{Kind: transfer.KindOffer, Name: "f"}}, transfer.ErrProtocol},
		"two accepts":           {[]transfer.Message{accept, accept}, transfer.ErrProtocol},
		"receipt, other size":   {[]transfer.Message{accept, {Kind: transfer.KindReceipt, Size: 3, Digest: good.Digest}}, transfer.ErrProtocol},
		"receipt, other digest": {[]transfer.Message{accept, receipt(end("abce"))}, transfer.ErrProtocol},
		"it gives up":           {[]transfer.Message{accept, {Kind: transfer.KindAbort, Reason: transfer.ReasonDigest}}, transfer.ErrDigest},
		"it disconnects":        {[]transfer.Message{accept}, transfer.ErrPeerLost},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPipe(small)
			done := make(chan error)
			go func() {
				_, err := transfer.Send(context.Background(), a, source([]byte("abcd")), nil)
				done <- err
			}()
			for _, m := range c.script {
				b.say(encode(t, m))
			}
			if errors.Is(c.want, transfer.ErrPeerLost) {
				b.disconnect()
			}
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestAbortBeforeDisconnect checks that an abort that arrived before the link broke
// is what the error says.
func TestAbortBeforeDisconnect(t *testing.T) {
	a, b := newPipe(small)
	b.say(encode(t, transfer.Message{Kind: transfer.KindAbort, Reason: transfer.ReasonWrite, Text: "no space left on device"}))
	b.disconnect()
	_, err := transfer.Send(context.Background(), a, source([]byte("abcd")), nil)
	var remote *transfer.RemoteError
	if !errors.As(err, &remote) || remote.Reason != transfer.ReasonWrite {
		t.Errorf("got %v", err)
	}
}

// TestReceiptCannotBeDelivered checks that a stored file counts.
func TestReceiptCannotBeDelivered(t *testing.T) {
	a, b := newPipe(small)
	sink := &memory{}
	a.say(encode(t, transfer.Message{Kind: transfer.KindOffer, Size: 4, Name: "f"}))
	a.say(encode(t, chunk(0, "abcd")))
	a.say(encode(t, end("abcd")))
	res, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) {
		return disconnectOnCommit{sink, a}, nil
	}, nil)
	if err != nil || !res.Unconfirmed || !sink.committed || sink.discarded {
		t.Errorf("%+v, %v, committed %v", res, err, sink.committed)
	}
}

type disconnectOnCommit struct {
	*memory
	peer *pipe
}

func (h disconnectOnCommit) Commit() error {
	h.peer.disconnect()
	return h.memory.Commit()
}
