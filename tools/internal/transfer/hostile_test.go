package transfer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
)

// TestHostileSender plays a sender that breaks the rules in one way each.
func TestHostileSender(t *testing.T) {
	const offer, stream = `{"name":"f","size":4,"mode":0}` + "\n", `{"name":"f","size":-1,"mode":0}` + "\n"
	named := func(name string) []string { return []string{`{"name":"` + name + `","size":4,"mode":0}` + "\n"} }
	for name, c := range map[string]struct {
		script []string
		want   error
		opened bool
	}{
		"no JSON":              {[]string{"GET / HTTP/1.1\r\n"}, transfer.ErrProtocol, false},
		"a line too long":      {[]string{strings.Repeat(" ", 5000)}, transfer.ErrProtocol, false},
		"a size too large":     {[]string{`{"name":"f","size":1152921504606846977}` + "\n"}, transfer.ErrProtocol, false},
		"a size below 0":       {[]string{`{"name":"f","size":-2}` + "\n"}, transfer.ErrProtocol, false},
		"a size of 65 bits":    {[]string{`{"name":"f","size":18446744073709551616}` + "\n"}, transfer.ErrProtocol, false},
		"setuid":               {[]string{`{"name":"f","size":4,"mode":2541}` + "\n"}, transfer.ErrProtocol, false},
		"a directory's mode":   {[]string{`{"name":"f","size":4,"mode":2147483648}` + "\n"}, transfer.ErrProtocol, false},
		"no name":              {named(""), transfer.ErrProtocol, false},
		"a path":               {named("../../etc/passwd"), transfer.ErrProtocol, false},
		"an absolute path":     {named("/etc/passwd"), transfer.ErrProtocol, false},
		"an escaped slash":     {named(`a\u002fb`), transfer.ErrProtocol, false},
		"this directory":       {named("."), transfer.ErrProtocol, false},
		"its parent":           {named(".."), transfer.ErrProtocol, false},
		"a NUL":                {named(`a\u0000b`), transfer.ErrProtocol, false},
		"an escape":            {named(`a\u001b[2Jb`), transfer.ErrProtocol, false},
		"right to left":        {named(`a\u202eb`), transfer.ErrProtocol, false},
		"a long name":          {named(strings.Repeat("n", transfer.MaxName+1)), transfer.ErrProtocol, false},
		"a huge chunk":         {[]string{stream, "\xff\xff\xff\xff", strings.Repeat("x", 1000)}, transfer.ErrPeerLost, true},
		"more than offered":    {[]string{offer, chunk("abc"), chunk("de")}, transfer.ErrSize, true},
		"less than offered":    {[]string{offer, chunk("abc"), final(digest(3, "abc"))}, transfer.ErrSize, true},
		"end lies about size":  {[]string{stream, chunk("abc"), final(digest(4, "abc"))}, transfer.ErrProtocol, true},
		"another digest":       {[]string{offer, chunk("abcd"), final(digest(4, "abce"))}, transfer.ErrDigest, true},
		"a short digest":       {[]string{offer, chunk("abcd"), final(`{"bytes":4,"sha256":"00"}`)}, transfer.ErrProtocol, true},
		"no digest":            {[]string{offer, chunk("abcd"), final(`{"bytes":4,"sha256":"` + strings.Repeat("x", 64) + `"}`)}, transfer.ErrProtocol, true},
		"an endless end":       {[]string{offer, chunk("abcd"), final(strings.Repeat(" ", 5000))}, transfer.ErrProtocol, true},
		"it gives up":          {[]string{offer, chunk("ab"), final(`{"reason":"the file's length is not the one offered"}`)}, transfer.ErrSize, true},
		"a reason that steers": {[]string{offer, final(`{"reason":"\u001b[2J"}`)}, transfer.ErrProtocol, true},
		"a long reason":        {[]string{offer, final(`{"reason":"` + strings.Repeat("n", transfer.MaxText+1) + `"}`)}, transfer.ErrProtocol, true},
		"a text that steers":   {[]string{offer, final(`{"reason":"interrupted","text":"\u001b[2J"}`)}, transfer.ErrProtocol, true},
		"a long text":          {[]string{offer, final(`{"reason":"interrupted","text":"` + strings.Repeat("n", transfer.MaxText+1) + `"}`)}, transfer.ErrProtocol, true},
		"it disconnects":       {[]string{offer, chunk("ab")}, transfer.ErrPeerLost, true},
		"in the middle":        {[]string{offer, chunk("abcd")[:6]}, transfer.ErrPeerLost, true},
		"in a length":          {[]string{offer, "\x01\x00"}, transfer.ErrPeerLost, true},
		"in the offer":         {[]string{offer[:5]}, transfer.ErrPeerLost, false},
		"it never speaks":      {nil, transfer.ErrPeerLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPipe(t)
			sink, opened := &memory{}, false
			done := make(chan error)
			go func() {
				_, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) {
					opened = true
					return sink, nil
				}, nil)
				done <- err
			}()
			say(t, a, c.script...)
			if errors.Is(c.want, transfer.ErrPeerLost) {
				_ = a.Close()
			}
			should.Fail(t, <-done, c.want)
			if opened != c.opened || sink.committed || sink.discarded != c.opened {
				t.Errorf("opened %v, committed %v, discarded %v", opened, sink.committed, sink.discarded)
			}
		})
	}
}

// TestHostileReceiver does the same for the other side.
func TestHostileReceiver(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   error
	}{
		"no JSON":               {"yes\n", transfer.ErrProtocol},
		"a line too long":       {strings.Repeat(" ", 5000), transfer.ErrProtocol},
		"receipt, other size":   {digest(3, "abcd") + "\n", transfer.ErrProtocol},
		"receipt, other digest": {digest(4, "abce") + "\n", transfer.ErrProtocol},
		"it gives up":           {`{"reason":"the SHA-256 of what arrived differs"}` + "\n", transfer.ErrDigest},
		"it disconnects":        {"", transfer.ErrPeerLost},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPipe(t)
			done := make(chan error)
			go func() {
				_, err := transfer.Send(context.Background(), a, source([]byte("abcd")), nil)
				done <- err
			}()
			hear(t, b)
			say(t, b, c.script)
			_ = b.CloseWrite()
			should.Fail(t, <-done, c.want)
		})
	}
}

// TestReasonBeforeDisconnect checks that the error says the reason, if one arrived before the
// connection broke.
func TestReasonBeforeDisconnect(t *testing.T) {
	a, b := newPipe(t)
	say(t, b, `{"reason":"it cannot write the file","text":"no space left on device"}`+"\n")
	_ = b.Close()
	_, err := transfer.Send(context.Background(), a, source([]byte("abcd")), nil)
	var remote *transfer.RemoteError
	should.Hold(t, errors.As(err, &remote) && errors.Is(err, transfer.ErrSink) && remote.Text == "no space left on device", "got %v", err)
}

// TestReceiptCannotBeDelivered checks that a stored file counts.
func TestReceiptCannotBeDelivered(t *testing.T) {
	a, b := newPipe(t)
	sink := &memory{}
	say(t, a, `{"name":"f","size":4,"mode":0}`+"\n", chunk("abcd"), final(digest(4, "abcd")))
	res, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) {
		return disconnectOnCommit{sink, a}, nil
	}, nil)
	should.Hold(t, err == nil && res.Unconfirmed && sink.committed && !sink.discarded, "%+v, %v, committed %v", res, err, sink.committed)
}

type disconnectOnCommit struct {
	*memory
	peer net.Conn
}

func (h disconnectOnCommit) Commit() error {
	_ = h.peer.Close()
	return h.memory.Commit()
}

// FuzzReceive checks that no sender gets anything but a whole file stored, or a typed error.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"name":"f","size":4,"mode":420}` + "\n" + chunk("abcd") + final(digest(4, "abcd"))))
	f.Add([]byte(`{"name":"größe","size":-1}` + "\n" + chunk("ab") + final(`{"reason":"interrupted"}`)))
	f.Add([]byte(`{"name":"../x","size":0}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 { // what a socket holds
			return
		}
		from, to := newPipe(t)
		say(t, from, string(b))
		_ = from.CloseWrite()
		sink := &memory{}
		_, err := transfer.Receive(context.Background(), to, func(o transfer.Offer) (transfer.Sink, error) {
			should.OK(t, transfer.CheckName(o.Name))
			return sink, nil
		}, nil)
		var remote *transfer.RemoteError
		typed := errors.As(err, &remote)
		for _, is := range []error{transfer.ErrProtocol, transfer.ErrPeerLost, transfer.ErrSize, transfer.ErrDigest} {
			typed = typed || errors.Is(err, is)
		}
		if err != nil && !typed || sink.committed != (err == nil) {
			t.Errorf("committed %v, %v", sink.committed, err)
		}
	})
}
