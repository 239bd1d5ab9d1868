package memif_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// FuzzConversation makes a client send packets as the fuzzer likes: a byte that
// says what comes with each, and up to 128 bytes. What the server makes of it
// is its business; the program goes on, and so does the server.
func FuzzConversation(f *testing.F) {
	socket := abstractSocket(f)
	server := newPort(f, memif.Options{Socket: socket, Role: memif.Server, MaxMemory: 1 << 22})
	script := func(messages ...protocol.Body) (b []byte) {
		for _, m := range messages {
			with := byte(0)
			switch m.(type) {
			case protocol.AddRegion:
				with = 1
			case protocol.AddRing:
				with = 2
			}
			b = append(append(b, with), protocol.Encode(m)[:]...)
		}
		return b
	}
	layout := ring.Layout{C2S: 1, S2C: 1, Log2: 4, Capacity: 64}
	hello := protocol.Init{Version: protocol.Version}
	region := protocol.AddRegion{Size: layout.Size()}
	toServer := protocol.AddRing{Flags: 1, Offset: layout.Offset(true, 0), Log2: 4}
	toClient := protocol.AddRing{Offset: layout.Offset(false, 0), Log2: 4}
	f.Add(script(hello, region, toServer, toClient, protocol.Connect{Interface: "fuzz"}))
	f.Add(script(hello, region, toServer, toClient, protocol.Connect{}, protocol.Ack{}))
	f.Add(script(hello, toServer, toServer))
	f.Add(script(hello, protocol.Connect{}))
	f.Add(script(protocol.Hello{}))
	f.Add([]byte{0, 3, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		r := dialRaw(t, socket)
		r.layout = layout
		r.formatted(len(script) & unix.MFD_ALLOW_SEALING)
		event := eventfd(t)
		want[protocol.Hello](r)
		ended := false
		for len(script) > 0 && !ended {
			with := script[0]
			packet := script[1:min(len(script), 1+protocol.MessageSize)]
			script = script[1+len(packet):]
			var rights []byte
			switch with % 4 {
			case 1:
				rights = unix.UnixRights(r.file)
			case 2:
				rights = unix.UnixRights(event)
			case 3:
				rights = unix.UnixRights(event, r.file)
			}
			if len(packet) == 0 || unix.Sendmsg(r.conn.FD(), packet, rights, nil, 0) != nil {
				break
			}
			// The server answers, or closes the connection: it never waits and sends nothing.
			body, err := r.next()
			_, bye := body.(protocol.Disconnect)
			ended = err != nil || bye
			if _, connected := body.(protocol.Connected); connected {
				waittest.Until(t, "the link comes up", func() bool { return server.LinkUp() || server.Stats().Connections > 0 })
				r.sends = r.layout.Sender(r.memory, ring.Scratch(), 0)
				r.sends.Reserve(20)
				r.sends.Commit()
				r.sends.Flush()
			}
			use(server)
		}
		r.close()
		waittest.Until(t, "the server is free again", func() bool {
			use(server)
			return !server.LinkUp()
		})
		var e *wire.Error
		if err := server.Stats().Err; err != nil && !errors.As(err, &e) {
			t.Errorf("error %v", err)
		}
	})
}
