package afxdp

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
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
	x := p.(*port)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.quiesce(number)
}
