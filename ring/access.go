package ring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/trapeze-nic/trapeze/via"
)

// Access says where messages are built and read.
type Access uint8

const (
	// Measured takes the faster of the other two. It is measured once for each NIC.
	Measured Access = iota
	// SRAM is the NIC's own memory. It must be mapped.
	SRAM
	// Shadow is host memory. Messages are copied whole between it and the NIC's memory.
	Shadow
)

// chooseAccess reports whether messages go through a shadow.
func (r *Ring) chooseAccess() (shadow bool, err error) {
	switch {
	case r.options.Access == Shadow:
		return true, nil
	case r.d.Mapped() && r.options.Access == SRAM:
		return false, nil
	case r.d.Mapped():
		return costs.shadowed(r.nic, r.d.Send.Message(0)), nil
	case r.options.Access == SRAM:
		return false, r.refuse("create ring", via.ErrNotSupported, "use Measured or Shadow", "the NIC's memory is not mapped")
	}
	return true, nil
}

// measurements remembers for each NIC whether messages are better copied.
type measurements struct {
	mu sync.Mutex
	m  map[weak.Pointer[via.NIC]]bool
}

var costs = measurements{m: map[weak.Pointer[via.NIC]]bool{}}

// shadowed measures once for each NIC whether messages are better copied. message is device
// memory that is not in use yet.
func (c *measurements) shadowed(nic *via.NIC, message []byte) bool {
	key := weak.Make(nic)
	c.mu.Lock()
	defer c.mu.Unlock()
	shadow, known := c.m[key]
	if !known {
		shadow = cheaperCopied(message)
		c.m[key] = shadow
		runtime.AddCleanup(nic, func(key weak.Pointer[via.NIC]) {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.m, key)
		}, key)
	}
	return shadow
}

// sink keeps the compiler from removing the reads that are measured.
var sink atomic.Uint32

// reads estimates how often a program reads each byte of a message.
const reads = 2

// rounds bounds how often cheaperCopied measures. The fastest round counts, as noise only
// slows one down.
const rounds = 16

// cheaperCopied reports whether a message in device memory costs more to read than to copy
// out and read there. Writes are not measured: stores are posted.
func cheaperCopied(message []byte) bool {
	var shadow [MessageSize]byte
	var sum byte
	direct, copied := time.Duration(1<<62), time.Duration(1<<62)
	for range rounds {
		start := time.Now()
		sum += touch(message)
		direct = min(direct, time.Since(start))
		start = time.Now()
		copy(shadow[:], message)
		sum += touch(shadow[:])
		copied = min(copied, time.Since(start))
	}
	// The factor keeps noise from choosing a copy where device memory is as fast as the
	// host's.
	sink.Store(uint32(sum))
	return direct > 2*copied
}

// touch reads b byte by byte.
func touch(b []byte) (sum byte) {
	for range reads {
		for _, v := range b {
			sum += v
		}
	}
	return sum
}
