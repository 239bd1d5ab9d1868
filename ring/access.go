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
	// Measured is what is faster on this NIC, which is measured once.
	Measured Access = iota
	// SRAM is the NIC's memory itself, where it is mapped.
	SRAM
	// Shadow is host memory, from and to which messages are copied whole.
	Shadow
)

func (a Access) String() string {
	switch a {
	case Measured:
		return "measured"
	case SRAM:
		return "SRAM"
	case Shadow:
		return "shadow"
	}
	return "unknown access"
}

// chooseAccess reports whether messages go through a shadow.
func (r *Ring) chooseAccess() (shadow bool, err error) {
	switch {
	case r.options.Access == Shadow:
		return true, nil
	case r.d.Mapped() && r.options.Access == SRAM:
		return false, nil
	case r.d.Mapped():
		return costs.shadowed(r.nic, r.d.SendMessage(0)), nil
	case r.options.Access == SRAM:
		return false, r.refuse("create ring", via.ErrNotSupported, "use Measured or Shadow", "the NIC's memory is not mapped")
	}
	return true, nil
}

// measured is what has been found out, by NIC.
type measured struct {
	mu sync.Mutex
	m  map[weak.Pointer[via.NIC]]bool
}

var costs = measured{m: map[weak.Pointer[via.NIC]]bool{}}

// shadowed measures once for a NIC whether messages are better copied, with a message of
// device memory that nobody uses yet.
func (c *measured) shadowed(nic *via.NIC, message []byte) bool {
	key := weak.Make(nic)
	c.mu.Lock()
	defer c.mu.Unlock()
	shadow, known := c.m[key]
	if !known {
		shadow = dearer(message)
		c.m[key] = shadow
		runtime.AddCleanup(nic, func(key weak.Pointer[via.NIC]) {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.m, key)
		}, key)
	}
	return shadow
}

// touched is where sums go that nobody needs.
var touched atomic.Uint32

// touches is how often a program is taken to touch each byte of a message: when it builds
// or parses it, and when it looks at it again.
const touches = 2

// rounds are how often dearer measures: the fastest counts, as nothing makes one faster than
// it is.
const rounds = 16

// dearer reports whether reading a message in device memory costs more than copying it out
// and reading the copy. Writing is never dearer in comparison: stores are posted.
func dearer(message []byte) bool {
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
	// A copy costs something in any case: device memory that is as fast as the host's is
	// not to lose by the noise of a clock.
	touched.Store(uint32(sum))
	return direct > 2*copied
}

// touch reads b as a program does that has one access a byte, and sums it up so that no
// compiler leaves that out.
func touch(b []byte) (sum byte) {
	for range touches {
		for _, v := range b {
			sum += v
		}
	}
	return sum
}
