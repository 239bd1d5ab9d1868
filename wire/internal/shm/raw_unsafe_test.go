package shm_test

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// A second implementation of the protocol, which shares no code with the first
// and does whatever it is told to.

// Messages, as the package's documentation numbers them.
const (
	msgHello = 1 + iota
	msgWelcome
	msgReady
	msgRefuse
	msgLink
	msgLinkSeen
	msgExport
	msgExported
	msgUnexport
	msgUnexported
	msgGoodbye
	msgTable

	magic = 'T' | 'Z'<<8 | 'S'<<16 | 'M'<<24
	// Flags of a greeting.
	flagShare   = 1 << 32
	flagBarrier = 2 << 32
	flagWrite   = 4 << 32
	// asleepOffset is where a receiver asks to be woken, in the part in which it
	// receives.
	asleepOffset = 128
	version      = 3
)

// raw is a peer.
type raw struct {
	t testing.TB
	c *net.UnixConn
	// mem is both parts of the memory; ours is the part that this side sends in.
	mem          []byte
	ours, theirs []byte
	ring         int
	path         string // of the socket
	bells        []int  // its own, and the port's
}

func pack(kind, id uint32, a, b, c uint64) []byte {
	p := binary.LittleEndian.AppendUint32(nil, kind)
	p = binary.LittleEndian.AppendUint32(p, id)
	for _, v := range []uint64{a, b, c} {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	return p
}

func dialRaw(t testing.TB, path string) *raw {
	t.Helper()
	c := must.Get(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
	r := &raw{t: t, c: c}
	t.Cleanup(r.close)
	return r
}

func (r *raw) close() {
	_ = r.c.Close()
	for _, fd := range r.bells {
		_ = unix.Close(fd)
	}
	r.bells = nil
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
		r.mem = nil
	}
}

// write sends bytes. That the peer has gone is for others to notice.
func (r *raw) write(p []byte, fds ...int) {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_ = r.c.SetWriteDeadline(time.Now().Add(timeout))
	_, _, _ = r.c.WriteMsgUnix(p, rights, nil)
}

func (r *raw) send(kind, id uint32, a, b, c uint64, fds ...int) {
	r.write(pack(kind, id, a, b, c), fds...)
}

// read waits for a message; kind 0: the peer has closed.
func (r *raw) read() (kind, id uint32, a, b, c uint64, fd int) {
	r.t.Helper()
	var p, oob [128]byte
	_ = r.c.SetReadDeadline(time.Now().Add(timeout))
	n, oobn, _, _, err := r.c.ReadMsgUnix(p[:], oob[:])
	if err != nil || n == 0 {
		if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
			r.t.Fatal("the peer says nothing")
		}
		return 0, 0, 0, 0, 0, -1
	}
	must.Be(r.t, n, 32, "a message bytes")
	fd = -1
	if oobn > 0 {
		m := must.Get(unix.ParseSocketControlMessage(oob[:oobn]))(r.t)
		fds, err := unix.ParseUnixRights(&m[0])
		must.Hold(r.t, err == nil && len(fds) <= 2, "descriptors %v, %v", fds, err)
		fd, r.bells = fds[0], append(r.bells, fds[1:]...)
	}
	le := binary.LittleEndian
	return le.Uint32(p[0:]), le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:]), le.Uint64(p[24:]), fd
}

// joinRaw connects and greets a listener as it should be done. One that has a
// peer still is asked again.
func joinRaw(t testing.TB, path string, flags uint64) *raw {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		r := dialRaw(t, path)
		r.bells = []int{newTimer(t)}
		r.send(msgHello, magic, version|flags, uint64(shm.DefaultMTU), 0, r.bells[0])
		kind, id, a, _, ring, fd := r.read()
		if kind == msgRefuse && a == 1 && time.Now().Before(end) {
			r.close()
			continue
		}
		if kind != msgWelcome || id != magic || uint32(a) != version || len(r.bells) != 2 {
			t.Fatalf("answer to hello: kind %d, id %#x, numbers %#x, descriptor %d", kind, id, a, fd)
		}
		defer unix.Close(fd)
		r.layOut(fd, int(ring), false)
		r.send(msgReady, 0, 0, 0, 0)
		return r
	}
}

// withRaw makes a port that listens, and a peer of it.
func withRaw(t testing.TB, o shm.Options, flags uint64) (*shm.Port, *raw) {
	t.Helper()
	o.Path, o.Role = socket(t), shm.RoleListen
	p := open(t, o)
	r := joinRaw(t, o.Path, flags)
	r.path = o.Path
	up(t, p)
	return p, r
}

// layOut maps the memory.
func (r *raw) layOut(fd, ring int, listener bool) {
	r.t.Helper()
	r.ring = ring
	part := r.framesAt() + ring
	mem := must.Get(unix.Mmap(fd, 0, 2*part+2*4096*16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(r.t)
	r.mem = mem
	r.ours, r.theirs = mem[part:], mem[:part]
	if listener {
		r.ours, r.theirs = r.theirs, r.ours
	}
}

// word is the word of frame i of a part.
func (r *raw) word(part []byte, i int) *uint64 {
	return (*uint64)(unsafe.Pointer(&part[4096+i%(r.ring/256)*128]))
}

// framesAt is where the frames start in a part.
func (r *raw) framesAt() int { return 4096 + r.ring/2 }

// slot is what follows the word of frame i of a part in its slot: a header of 8 bytes, and 112 more.
func (r *raw) slot(part []byte, i int) []byte { return part[4096+i%(r.ring/256)*128+8:][:120] }

// header is that of short frame i of this side.
func (r *raw) header(i int) *uint64 { return (*uint64)(unsafe.Pointer(&r.slot(r.ours, i)[0])) }

// putShort writes a short frame in its slot, and the word, in which length may be wrong.
func (r *raw) putShort(i int, header uint64, payload []byte, length, tag, flags uint64) {
	s := r.slot(r.ours, i)
	binary.LittleEndian.PutUint64(s, header)
	copy(s[8:], payload)
	r.put(i, length, tag, flags)
}

// put writes the word of frame i that this side sends.
func (r *raw) put(i int, length, arrived, flags uint64) {
	r.putWord(i, length|arrived<<16|flags<<32|uint64(i+1)&0xffffff<<40)
}

func (r *raw) putWord(i int, w uint64) { atomic.StoreUint64(r.word(r.ours, i), w) }

// creditWord is a credit word of the direction in which this side receives, of an endpoint:
// what it gives, or at which credit the peer asks for more.
func (r *raw) creditWord(sends bool, endpoint, which int) *uint64 {
	at := 2*(r.framesAt()+r.ring) + endpoint*16 + which*8
	if sends { // in the second part, since the port listens
		at += 4096 * 16
	}
	return (*uint64)(unsafe.Pointer(&r.mem[at]))
}

// freed is how far this side says that it has read.
func (r *raw) freed() *uint32 { return (*uint32)(unsafe.Pointer(&r.theirs[0])) }

// freedFrames is how many frames this side says that it has read.
func (r *raw) freedFrames() *uint32 { return (*uint32)(unsafe.Pointer(&r.theirs[4])) }

// freedWord is what the peer says that it has read: bytes, or frames.
func (r *raw) freedWord(which int) *uint32 { return (*uint32)(unsafe.Pointer(&r.ours[4*which])) }

// frames is the ring in which this side sends.
func (r *raw) frames() []byte { return r.ours[r.framesAt():][:r.ring] }

// poke writes a word anywhere into the memory, as a hostile peer would.
func (r *raw) poke(at int, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.mem[at%len(r.mem)&^7])), v)
}
