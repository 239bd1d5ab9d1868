package ethernet

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/vfio"
)

// PoolOptions are choices of NewPool. The zero value is good for an MTU of 1500.
type PoolOptions struct {
	// Buffers is their number, 1 to 2^20; 0 for 4096.
	Buffers int
	// Headroom is the free room before a received frame, in bytes: a multiple of
	// 2, up to 1024; 0 for 64. Drivers may write there what the device wants before a
	// frame, so what is in it does not outlast Send. The frame's first byte is Headroom
	// bytes behind a multiple of 64: 64 aligns the frame, 50 what follows its Ethernet
	// header.
	Headroom int
	// Size is the longest frame that a buffer takes besides the headroom, 256 to 65535
	// less the headroom; 0 for 2048. Devices may fill only whole KiB of it: 9216 is
	// enough for an MTU of 9000 everywhere, with a headroom of 64.
	Size int
	// Memory to lay the buffers in; nil to allocate some with MemoryOptions. It stays
	// the caller's and must be there until the pool is closed.
	Memory        *vfio.Memory
	MemoryOptions vfio.MemoryOptions
}

// bufferAlign is the alignment of each buffer's start, in bytes: a cache line
// of amd64 and arm64.
const bufferAlign = 64

// check fills in defaults. It fails with a *ConfigError.
func (c PoolOptions) check() (PoolOptions, error) {
	c.Buffers = cmp.Or(c.Buffers, 4096)
	c.Headroom = cmp.Or(c.Headroom, 64)
	c.Size = cmp.Or(c.Size, 2048)
	switch {
	case c.Buffers < 1 || c.Buffers > 1<<20:
		return c, &ConfigError{"PoolOptions.Buffers", c.Buffers, "1 to 1048576"}
	case c.Headroom < 0 || c.Headroom > 1024 || c.Headroom%2 != 0:
		return c, &ConfigError{"PoolOptions.Headroom", c.Headroom, "an even number up to 1024"}
	case c.Size < 256 || c.Headroom+c.Size > math.MaxUint16:
		return c, &ConfigError{"PoolOptions.Size", c.Size, fmt.Sprintf("256 to %d", math.MaxUint16-c.Headroom)}
	}
	return c, nil
}

// Stride returns how far apart the buffers are, in bytes: a multiple of 64.
func (c PoolOptions) stride() int {
	return (c.Headroom + c.Size + bufferAlign - 1) / bufferAlign * bufferAlign
}

// Pool is buffers for frames, in one piece of DMA memory. Methods may be called from
// several goroutines.
type Pool struct {
	options PoolOptions
	memory  *vfio.Memory
	own     bool // Close closes the memory
	bytes   []byte
	stride  uint32

	lock hotlock.Mutex
	free []uint32 // guarded by lock; capacity for each buffer

	mu     sync.Mutex
	users  int // ports that have mapped the memory; guarded by mu
	closed atomic.Bool
}

// NewPool makes a pool. It fails with a *ConfigError, and with the errors of
// vfio.AllocMemory.
func NewPool(c PoolOptions) (*Pool, error) {
	const op = "make a pool"
	c, err := c.check()
	if err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	p := &Pool{options: c, memory: c.Memory, stride: uint32(c.stride()), free: make([]uint32, c.Buffers)}
	size := uint64(p.stride) * uint64(c.Buffers)
	if p.memory == nil {
		if p.memory, err = vfio.AllocMemory(size, c.MemoryOptions); err != nil {
			return nil, &Error{Op: op, Err: err}
		}
		p.own = true
	}
	p.bytes = p.memory.Bytes()
	if uint64(len(p.bytes)) < size {
		return nil, &Error{Op: op, Err: &ConfigError{"PoolOptions.Memory", fmt.Sprintf("%d bytes", len(p.bytes)), fmt.Sprintf("%d bytes", size)}}
	}
	p.bytes = p.bytes[:size:size]
	for i := range p.free { // the first buffers are given out first
		p.free[i] = uint32(c.Buffers - 1 - i)
	}
	return p, nil
}

// Options returns the configuration with the defaults filled in.
func (p *Pool) Options() PoolOptions { return p.options }

// Memory returns the memory of the buffers: buffer i begins at i times Stride.
func (p *Pool) Memory() *vfio.Memory { return p.memory }

// Stride returns how far apart the buffers are, in bytes: a multiple of 64.
func (p *Pool) Stride() int { return int(p.stride) }

// Bytes returns the bytes of a frame, with room to append up to the end of its buffer;
// nil if the frame is not in its buffer, or the pool is closed.
func (p *Pool) Bytes(f Frame) []byte {
	b := p.Buffer(f.Buffer)
	end := int(f.Offset) + int(f.Length)
	if end > len(b) {
		return nil
	}
	return b[f.Offset:end]
}

// Buffer returns a whole buffer, headroom included; nil if there is none with that
// number, or the pool is closed.
func (p *Pool) Buffer(i uint32) []byte {
	if int(i) >= p.options.Buffers || p.closed.Load() {
		return nil
	}
	at := uint64(i) * uint64(p.stride)
	return p.bytes[at:][:p.stride:p.stride]
}

// Contains reports whether a frame lies in its buffer.
func (p *Pool) Contains(f *Frame) bool {
	return f.Buffer < uint32(p.options.Buffers) && uint32(f.Offset)+uint32(f.Length) <= p.stride
}

// Free returns how many buffers are free, those in caches not counted.
func (p *Pool) Free() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return len(p.free)
}

// Hold is for drivers: it says that a device can reach the memory. It fails with
// ErrClosed. Release undoes it.
func (p *Pool) Hold() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return &Error{Op: "use a pool", Err: ErrClosed}
	}
	p.users++
	return nil
}

// Release undoes one Hold: the device cannot reach the memory any more.
func (p *Pool) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
}

// Close gives the memory back. It fails with ErrInUse while a port has it. Closing again
// does nothing. Slices of it must not be used any more.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed.Load():
		return nil
	case p.users > 0:
		return &Error{Op: "close a pool", Err: fmt.Errorf("%w by %d ports", ErrInUse, p.users), Hint: "close the ports first"}
	}
	p.closed.Store(true)
	if !p.own {
		return nil
	}
	return p.memory.Close()
}
