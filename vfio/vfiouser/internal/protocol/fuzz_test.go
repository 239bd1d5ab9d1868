package protocol_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// encode is the opposite of decode.
func encode(t *testing.T, c protocol.Command, m any) []byte {
	t.Helper()
	switch m := m.(type) {
	case protocol.Version:
		return must.Get(m.Append(nil))(t)
	case protocol.DMAMap:
		return m.Append(nil)
	case protocol.DMAUnmap:
		return m.Append(nil)
	case protocol.DeviceInfo:
		return m.Append(nil)
	case protocol.RegionInfo:
		return m.Append(nil, m.ReplySize())
	case protocol.IRQInfo:
		return m.Append(nil)
	case protocol.SetIRQs:
		return m.Append(nil)
	case protocol.RegionAccess:
		return m.Append(nil)
	case protocol.DMAAccess:
		return m.Append(nil)
	}
	t.Fatalf("%v: no encoder for %T", c, m)
	return nil
}

// checkDecode decodes a message. If it is good, what is encoded from it means
// the same.
func checkDecode(t *testing.T, command uint16, reply bool, payload []byte, fds int) {
	c := protocol.Command(command % protocol.Commands)
	before := bytes.Clone(payload)
	m, err := decode(c, reply, payload, fds)
	should.Same(t, before, payload, "decoding has changed the payload")
	if err != nil {
		var e *protocol.Error
		should.Hold(t, errors.Is(err, errNoDecoder) || errors.As(err, &e) && e.Errno != 0 && e.Error() != "", "untyped error %v", err)
		return
	}
	// Version, capabilities and sizes keep their meaning if not their form.
	again, err := decode(c, reply, encode(t, c, m), fds)
	must.Hold(t, err == nil, "%+v: %v", m, err)
	should.Be(t, cmp.Diff(m, again), "")
}

// FuzzDecodeRequest is what a server reads of a client.
func FuzzDecodeRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, command uint16, payload []byte) {
		checkDecode(t, command, false, payload, 0)
	})
}

// FuzzDecodeReply is what a client reads of a server.
func FuzzDecodeReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, command uint16, payload []byte, fds uint8) {
		checkDecode(t, command, true, payload, int(fds))
	})
}

// FuzzReceive is a stream of bytes cut in two: whatever it holds, both ends
// agree on what is a message.
func FuzzReceive(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		if len(stream) > 1<<12 {
			return // the socket would not take it at once
		}
		var outcomes []string
		for _, at := range []int{len(stream), min(int(cut), len(stream))} {
			outcomes = append(outcomes, receiveAll(t, stream[:at], stream[at:]))
		}
		should.Be(t, outcomes[0], outcomes[1], "whole: cut")
	})
}

func receiveAll(t *testing.T, parts ...[]byte) string {
	here, there := pair(t)
	for _, p := range parts {
		if len(p) > 0 {
			send(t, here, p, 0)
		}
	}
	must.OK(t, here.Close())
	c := protocol.NewConn(there, 256, 2)
	var all bytes.Buffer
	for {
		m, err := c.Receive()
		var bad *protocol.Error
		if err != nil && !errors.As(err, &bad) {
			return all.String()
		}
		must.Hold(t, err != nil || len(m.Payload) == int(m.Header.Size)-protocol.HeaderSize,
			"%+v with %d bytes", m.Header, len(m.Payload))
		all.Write(m.Header.Append(nil))
		all.Write(m.Payload)
		if err != nil {
			all.WriteString(err.Error())
		}
	}
}
