package vfiouser_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// rawClient is a second client, which shares no code with the first. It sends
// what it is told to, byte by byte.
type rawClient struct {
	t testing.TB
	c *net.UnixConn
	// piece is how many bytes are sent at a time, 0: all.
	piece int
}

// Commands and flags, as in the specification.
const (
	cmdVersion = 1 + iota
	cmdDMAMap
	cmdDMAUnmap
	cmdGetInfo
	cmdGetRegionInfo
	cmdGetRegionIOFDs
	cmdGetIRQInfo
	cmdSetIRQs
	cmdRegionRead
	cmdRegionWrite
	cmdDMARead
	cmdDMAWrite
	cmdReset

	flagReply   = 0x1
	flagNoReply = 0x10
	flagError   = 0x20
)

// versionText is what QEMU sends.
const versionText = `{"capabilities": {"max_msg_fds": 16, "max_data_xfer_size": 1048576, "pgsizes": 4096, ` +
	`"max_dma_maps": 65535, "write_multiple": true, "migration": {"pgsize": 4096, "max_bitmap_size": 268435456}}}` + "\x00"

// connect connects to the server, and agrees on a version if greet is set.
func connect(t testing.TB, r *running, greet bool) *rawClient {
	t.Helper()
	c := must.Get(net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"}))(t)
	t.Cleanup(func() { _ = c.Close() })
	x := &rawClient{t: t, c: c}
	if greet {
		x.ok(cmdVersion, pack(uint16(0), uint16(0), versionText))
	}
	return x
}

// pack puts numbers and text after each other, little-endian.
func pack(values ...any) []byte {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b = append(b, v...)
		case []byte:
			b = append(b, v...)
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		default:
			var err error
			if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	return b
}

func header(id uint16, command int, size, flags uint32) []byte {
	return pack(id, uint16(command), size, flags, uint32(0))
}

// write sends bytes, the first of them with descriptors.
func (x *rawClient) write(b []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for len(b) > 0 {
		n := len(b)
		if x.piece > 0 {
			n = min(n, x.piece)
		}
		n, _, err := x.c.WriteMsgUnix(b[:n], rights, nil)
		if err != nil {
			return err
		}
		b, rights = b[n:], nil
	}
	return nil
}

// send sends a message.
func (x *rawClient) send(id uint16, command int, flags uint32, payload []byte, fds ...int) {
	x.t.Helper()
	must.OK(x.t, x.write(append(header(id, command, uint32(16+len(payload)), flags), payload...), fds...))
}

// answer is a reply as it came.
type answer struct {
	id, command        uint16
	size, flags, errno uint32
	payload            []byte
	fds                []int
}

func (a answer) String() string {
	return fmt.Sprintf("id %#x, command %d, %d bytes, flags %#x, errno %v", a.id, a.command, a.size, a.flags, unix.Errno(a.errno))
}

// receive reads one message. Its first 16 bytes must come at once: QEMU expects
// that.
func (x *rawClient) receive() (answer, error) {
	var a answer
	if err := x.c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return a, err
	}
	h, oob := make([]byte, 16), make([]byte, 256)
	n, oobn, flags, _, err := x.c.ReadMsgUnix(h, oob)
	switch {
	case err != nil:
		return a, err
	case n != 16:
		return a, fmt.Errorf("%d bytes of header", n)
	case flags&unix.MSG_CTRUNC != 0:
		return a, fmt.Errorf("too many descriptors")
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) == 1 {
		if a.fds, err = unix.ParseUnixRights(&messages[0]); err != nil {
			return a, err
		}
		for _, fd := range a.fds {
			x.t.Cleanup(func() { _ = unix.Close(fd) })
		}
	}
	a.id, a.command = binary.LittleEndian.Uint16(h), binary.LittleEndian.Uint16(h[2:])
	a.size, a.flags, a.errno = binary.LittleEndian.Uint32(h[4:]), binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint32(h[12:])
	if a.size < 16 {
		return a, fmt.Errorf("size %d", a.size)
	}
	a.payload = make([]byte, a.size-16)
	_, err = io.ReadFull(x.c, a.payload)
	return a, err
}

// ask sends a command and returns the reply.
func (x *rawClient) ask(command int, payload []byte, fds ...int) answer {
	x.t.Helper()
	x.send(0x1234, command, 0, payload, fds...)
	a, err := x.receive()
	must.Hold(x.t, err == nil, "command %d: %v", command, err)
	if a.id != 0x1234 || int(a.command) != command || a.flags&^flagError != flagReply || a.flags&flagError != 0 && a.size != 16 {
		x.t.Fatalf("command %d: %v", command, a)
	}
	return a
}

// ok is ask for a command that succeeds.
func (x *rawClient) ok(command int, payload []byte, fds ...int) answer {
	x.t.Helper()
	a := x.ask(command, payload, fds...)
	must.Be(x.t, a.flags, flagReply, "command %d: %v", command, a)
	return a
}

// refuses is ask for a command that fails.
func (x *rawClient) refuses(want unix.Errno, command int, payload []byte, fds ...int) {
	x.t.Helper()
	should.Be(x.t, unix.Errno(x.ask(command, payload, fds...).errno), want, "command %d", command)
}

// region asks about a region and has room for so many bytes. want is the reply, files come with it.
func (x *rawClient) region(index, room int, want []byte, files int) {
	x.t.Helper()
	a := x.ok(cmdGetRegionInfo, pack(room, 0, index, 0, uint64(0), uint64(0)))
	should.Same(x.t, a.payload, want, "region %d", index)
	should.Be(x.t, len(a.fds), files, "files of region %d", index)
}

// alive checks that the server still answers, and that nothing else is on its
// way.
func (x *rawClient) alive() {
	x.t.Helper()
	must.Same(x.t, x.ok(cmdRegionRead, pack(uint64(regID), 0, 4)).payload, pack(uint64(regID), 0, 4, copierID), "the device")
}

// dmaMap and dmaUnmap are payloads.
func dmaMap(flags int, offset, address, size uint64) []byte {
	return pack(32, flags, offset, address, size)
}

func dmaUnmap(flags int, address, size uint64) []byte { return pack(24, flags, address, size) }

// memfd makes a file in memory; flags are those of memfd_create.
func memfd(t testing.TB, size int64, flags int) int {
	t.Helper()
	fd := must.Get(unix.MemfdCreate("trapeze-client", unix.MFD_CLOEXEC|flags))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must.OK(t, unix.Ftruncate(fd, size))
	return fd
}

func eventfd(t testing.TB, value uint, flags int) int {
	t.Helper()
	fd := must.Get(unix.Eventfd(value, unix.EFD_CLOEXEC|flags))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}
