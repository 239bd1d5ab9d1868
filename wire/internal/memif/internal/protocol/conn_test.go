package protocol_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// connect returns both ends of a connection over socket.
func connect(t *testing.T, socket string) (server, client *protocol.Conn) {
	t.Helper()
	l := must.Get(protocol.Listen(socket))(t)
	t.Cleanup(func() {
		should.OK(t, l.Close())
	})
	should.Refuse(l.Accept())(t, protocol.ErrAgain, "Accept without a client")
	client = must.Get(protocol.Dial(socket))(t)
	server = must.Get(l.Accept())(t)
	t.Cleanup(server.Close)
	t.Cleanup(client.Close)
	return server, client
}

func abstract(t *testing.T) string {
	return "@trapeze-" + strings.ReplaceAll(t.Name(), "/", "-") + strconv.Itoa(os.Getpid())
}

func TestMessagesArrive(t *testing.T) {
	for name, socket := range map[string]string{"path": filepath.Join(t.TempDir(), "s"), "abstract": abstract(t)} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			server, client := connect(t, socket)
			if _, _, err := client.Receive(); !errors.Is(err, protocol.ErrAgain) {
				t.Fatalf("Receive with nothing there: %v", err)
			}
			file := must.Get(unix.MemfdCreate("x", unix.MFD_CLOEXEC))(t)
			defer unix.Close(file)
			for _, tt := range layouts {
				kind := protocol.Encode(tt.body).Type()
				send := -1
				if kind.Rights() == 1 {
					send = file
				}
				must.OK(t, server.Send(tt.body, send))
				got, fd, err := client.Receive()
				should.Hold(t, err == nil && got == tt.body && (fd >= 0) == (send >= 0), "%v: %v with descriptor %d, error %v", kind, got, fd, err)
				if fd >= 0 {
					if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
						t.Errorf("descriptor %d has flags %#x: programs that are started would have it", fd, flags)
					}
					unix.Close(fd)
				}
			}
		})
	}
}

// TestPeerDoesNotRead: there is an end to what can be sent.
func TestPeerDoesNotRead(t *testing.T) {
	server, _ := connect(t, abstract(t))
	for range 100000 {
		if err := server.Send(protocol.Ack{}, -1); err != nil {
			should.Fail(t, err, protocol.ErrAgain, "Send")
			return
		}
	}
	t.Error("no end")
}

// TestBadPackets sends packets that are no messages.
func TestBadPackets(t *testing.T) {
	ack, ring := protocol.Encode(protocol.Ack{})[:], protocol.Encode(protocol.AddRing{})[:]
	for _, tt := range []struct {
		name   string
		packet []byte
		rights int
		says   string
	}{
		{"one byte", []byte{1}, 0, "size"},
		{"a byte short", ack[:127], 0, "size"},
		{"a byte long", append(append([]byte{}, ack...), 0), 0, "size"},
		{"far too long", make([]byte, 60000), 0, "size"},
		{"no such type", make([]byte, 128), 0, "no such message"},
		{"surplus descriptor", ack, 1, "too many"},
		{"two surplus descriptors", ack, 2, "too many"},
		{"many surplus descriptors", ack, 100, "too many"},
		{"missing descriptor", ring, 0, "missing"},
		{"two descriptors", ring, 2, "too many"},
		{"many descriptors", ring, 250, "too many"},
		{"no bytes, but descriptors", nil, 2, "size"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaktest.Check(t)
			server, client := connect(t, abstract(t))
			var rights []byte
			if tt.rights > 0 {
				fds := make([]int, tt.rights)
				rights = unix.UnixRights(fds...) // standard input, often
			}
			must.OK(t, unix.Sendmsg(client.FD(), tt.packet, rights, nil, 0))
			must.OK(t, client.Send(protocol.Ack{}, -1))
			body, fd, err := server.Receive()
			var bad *protocol.Error
			if body != nil || fd != -1 || !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v with descriptor %d, error %v, want one that says %q", body, fd, err, tt.says)
			}
			// Packets have borders: the next one is as if nothing had been.
			if body, _, err := server.Receive(); body != (protocol.Ack{}) {
				t.Errorf("the next message: %v, error %v", body, err)
			}
		})
	}
}
