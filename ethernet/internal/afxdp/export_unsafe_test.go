package afxdp

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp/internal/xskring"
)

// What Spoil writes: the words of a ring.
const (
	Producer = iota
	Consumer
	Flags
)

// Spoil writes to a word of one of the rings of a queue, 0 fill, 1 completion, 2 receive,
// 3 send, as a kernel would that has gone mad. It reports whether the queue has rings.
func Spoil(p ethernet.Port, number, ring, word int, value uint32) bool {
	q := p.Queue(number).(*queue)
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.socket == nil {
		return false
	}
	at, err := socketOption[unix.XDPMmapOffsets](q.socket.fd, unix.XDP_MMAP_OFFSETS)
	if err != nil {
		return false
	}
	o := []unix.XDPRingOffset{at.Fr, at.Cr, at.Rx, at.Tx}[ring]
	offset := []uint64{o.Producer, o.Consumer, o.Flags}[word]
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&q.socket.maps[ring][offset])), value)
	return true
}

// Quiesce waits as Close does with zero copy.
func Quiesce(p ethernet.Port, number int) error {
	d := p.Queue(0).(*queue).device
	d.port.Mu.Lock()
	defer d.port.Mu.Unlock()
	return d.quiesce(number)
}

// Part is a descriptor that Forge writes: how long what has arrived in a buffer is, and
// whether the frame goes on.
type Part struct {
	Length    uint32
	Continued bool
}

// Forge has frames arrive at a queue as a kernel would that takes buffers from the fill
// ring: each part lies 256 bytes behind the start of its buffer, whose bytes are fill's.
func Forge(p ethernet.Port, number int, parts []Part, fill func(part int, buffer []byte)) {
	q := p.Queue(number).(*queue)
	q.lock.Lock()
	defer q.lock.Unlock()
	at, err := socketOption[unix.XDPMmapOffsets](q.socket.fd, unix.XDP_MMAP_OFFSETS)
	if err != nil {
		panic(err)
	}
	word := func(ring int, offset uint64) *uint32 { return (*uint32)(unsafe.Pointer(&q.socket.maps[ring][offset])) }
	mask := uint32(q.device.config.ReceiveDescriptors - 1)
	for i, part := range parts {
		consumer, producer := atomic.LoadUint32(word(0, at.Fr.Consumer)), atomic.LoadUint32(word(2, at.Rx.Producer))
		address := *(*uint64)(unsafe.Pointer(&q.socket.maps[0][at.Fr.Desc+8*uint64(consumer&mask)]))
		fill(i, q.device.memory[address:][before:q.device.geometry.chunk])
		if q.device.geometry.unaligned {
			address |= before << 48
		} else {
			address += before
		}
		d := xskring.Desc{Address: address, Length: part.Length}
		if part.Continued {
			d.Options = unix.XDP_PKT_CONTD
		}
		*(*xskring.Desc)(unsafe.Pointer(&q.socket.maps[2][at.Rx.Desc+16*uint64(producer&mask)])) = d
		atomic.StoreUint32(word(0, at.Fr.Consumer), consumer+1)
		atomic.StoreUint32(word(2, at.Rx.Producer), producer+1)
	}
}

// Explain is what the errors of the kernel become: those of attaching a program, and of
// binding a socket for frames in several parts.
func Explain(attach, bind error) (error, error) {
	d := &device{geometry: geometry{parts: 4}}
	return explainAttach(attach), d.explainBind(bind)
}

// LeaveSums says whether checksums are left to an interface, as ethtool -K NAME tx does.
func LeaveSums(name string, leave bool) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	words := []uint32{0x17, 0} // ETHTOOL_STXCSUM
	if leave {
		words[1] = 1
	}
	return ethtool(h.socket, name, words)
}
