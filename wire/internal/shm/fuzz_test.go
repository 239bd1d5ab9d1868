package shm_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// What a byte of FuzzRings has somebody do, and how many bytes follow it.
const (
	opPoke    = iota // 12: anywhere in the memory, anything
	opPut            // 7: the word of the next frame, or of one near it
	opFreed          // 4
	opReceive        // 0
	opArrived        // 0
	opRelease        // 0
	opSend           // 2: a frame of that size
	opPublish        // 2: as much of one
	opCredit         // 10: an endpoint, a key and credit
	opShort          // 3: a short frame as it should be
	opCount
)

// FuzzRings makes a peer write anything into the memory while a port is used. What
// the port gives out must lie where it may, and the next peer must find it well.
func FuzzRings(f *testing.F) {
	path := socket(f)
	p := open(f, shm.Options{Path: path, Role: shm.RoleListen, Ring: 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t, p, path, data)
	})
}

// play makes a peer do what data says.
func play(t *testing.T, p *shm.Port, path string, data []byte) {
	r := joinRaw(t, path, 0)
	up(t, p)
	number, held, whole, short := 0, []byte(nil), make([]byte, shm.DefaultMTU), false
	take := func(n int) []byte {
		b := make([]byte, 12)
		n = copy(b, data[:min(n, len(data))])
		data = data[n:]
		return b
	}
	le := binary.LittleEndian
	for len(data) > 0 {
		switch take(1)[0] % opCount {
		case opPoke:
			b := take(12)
			r.poke(int(le.Uint32(b)), le.Uint64(b[4:]))
		case opPut:
			b := take(7)
			i := number + int(int8(b[0]))
			if i < 0 {
				i += 1 << 24
			}
			r.put(i, uint64(le.Uint16(b[1:])), uint64(le.Uint16(b[3:])), uint64(b[5]))
		case opFreed:
			atomic.StoreUint32(r.freed(), le.Uint32(take(4)))
		case opReceive:
			f, _, beside, found := p.Next()
			if short = found == engine.FoundShort; short {
				checkShort(t, f, beside)
			} else if f = p.Receive(); len(f) > shm.DefaultMTU {
				t.Fatalf("a frame of %d bytes", len(f))
			}
			if held = f; f == nil {
				number = int(atomic.LoadUint32(r.freedWord(1))) // some were skipped
			}
		case opArrived:
			n, _ := p.Arrived()
			if n < 0 || held != nil && n > len(held) {
				t.Fatalf("%d of %d bytes have arrived", n, len(held))
			}
		case opRelease:
			if held != nil {
				copy(whole, held) // all of it can be read
				number++
			}
			if short {
				p.Pass(number&1 != 0)
			} else {
				p.Release()
			}
			held, short = nil, false
		case opSend:
			n := int(le.Uint16(take(2)))
			beside := shortTag
			if n <= 96 {
				beside |= datasheet.ShortLent
			}
			if n&4 != 0 {
				beside = beside.WithImmediate(uint32(n))
			}
			if n&1 != 0 {
				p.Put(shortHeader, beside, make([]byte, n%(shm.DefaultMTU+1)), n&2 != 0)
				p.Flush()
			} else if b := p.Reserve(n % (shm.DefaultMTU + 1)); b != nil {
				clear(b)
				p.Commit()
				p.Flush()
			}
		case opPublish:
			n := int(le.Uint16(take(2)))
			if b := p.Reserve(shm.DefaultMTU); b != nil {
				p.Publish(n)
				p.Publish(2 * n)
			}
		case opShort:
			b := take(3)
			n, flags := []uint64{0, 1, 16, 111, 112, 113, 4000, shm.DefaultMTU - 64}[b[0]%8], []uint64{5, 5, 7, 13, 21}[b[1]%5]
			if n > 104 {
				flags &^= 8
			}
			r.putShort(number, uint64(b[2]), nil, n, uint64(b[2]), flags)
		case opCredit:
			b := take(10)
			endpoint, key, known := uint32(le.Uint16(b)), le.Uint32(b[2:]), le.Uint32(b[6:])
			p.GiveCredit(endpoint, key, known)
			if got := p.TakeCredit(endpoint, key, known); int32(got-known) < 0 {
				t.Fatalf("credit %d, %d was known", got, known)
			}
		}
	}
	p.Pass(true)
	p.Release()
	p.Abort()
	r.close()
	healthy(t, p, path)
}

// healthy checks that a peer can come, and that frames pass.
func healthy(t *testing.T, p *shm.Port, path string) {
	t.Helper()
	waittest.Until(t, "the peer is gone", func() bool { p.Receive(); p.Release(); return !p.LinkUp() })
	r := joinRaw(t, path, 0)
	up(t, p)
	for i := range 3 {
		copy(r.frames()[64*i:], "well")
		r.put(i, 4, 4, 1)
		must.Be(t, string(receiveFrom(t, p)), "well", "received")
	}
	r.close()
	waittest.Until(t, "the peer is gone", func() bool { return !p.LinkUp() })
	p.Reserve(0)
	p.Receive()
}

// FuzzMessages makes a peer say anything at the socket, before and after it has
// been greeted. Each message starts with a byte: its lowest bit says that a file
// comes with it, the others how long it is.
func FuzzMessages(f *testing.F) {
	path := socket(f)
	p := open(f, shm.Options{Path: path, Role: shm.RoleListen, Ring: 1, Share: true})
	file := must.Get(unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(f)
	f.Cleanup(func() { unix.Close(file) })
	must.OK(f, unix.Ftruncate(file, 64<<10))
	must.Get(unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(f)
	f.Fuzz(func(t *testing.T, joined bool, data []byte) {
		var r *raw
		if joined {
			r = joinRaw(t, path, flagShare|flagBarrier)
		} else {
			r = dialRaw(t, path)
		}
		for len(data) > 0 {
			n := min(int(data[0]>>1), len(data)-1)
			var fds []int
			if data[0]&1 != 0 {
				fds = []int{file}
			}
			r.write(data[1:1+n], fds...)
			data = data[1+n:]
		}
		for id := range uint32(3) {
			p.Borrow(id, 0, 100)
		}
		r.close()
		healthy(t, p, path)
	})
}
