package channel

import (
	"context"
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// Word is the unit of offsets, in bytes.
const Word = descriptors.ChannelWord

// Pages is a double page of registered memory. Several channels may send from the same one:
// see Multicast.
type Pages struct {
	memory *via.Memory
	offset int // of the first page
	size   int // of a page, in bytes
	copied atomic.Uint64
}

// NewPages allocates a double page with pages of 4096, 8192 or 16384 bytes, aligned to their size.
// Other sizes are via.ErrInvalidParameter; else it fails as via.NIC.Alloc does.
func NewPages(ctx context.Context, nic *via.NIC, pageSize int, a via.MemoryAttributes) (*Pages, error) {
	if !pageOf(pageSize).Valid() || bits.OnesCount(uint(pageSize)) != 1 {
		return nil, refuse(nic, "allocate pages", via.ErrInvalidParameter, "pages of %d bytes: they have 4096, 8192 or 16384", pageSize)
	}
	// Memory is aligned to pages of the host, which may be smaller.
	m, err := nic.Alloc(ctx, 3*pageSize, a)
	if err != nil {
		return nil, err
	}
	return &Pages{memory: m, offset: -int(m.Address()) & (pageSize - 1), size: pageSize}, nil
}

// pageOf is the exponent of two of a size.
func pageOf(size int) descriptors.ChannelPage {
	return descriptors.ChannelPage(bits.Len(uint(max(size, 1))) - 1)
}

// Bytes is both pages, nil once they are freed.
func (p *Pages) Bytes() []byte {
	b := p.memory.Bytes()
	if b == nil {
		return nil
	}
	return b[p.offset:][: 2*p.size : 2*p.size]
}

// Page is page 0 or 1, aligned to its size; nil for others, and once they are freed.
func (p *Pages) Page(i int) []byte {
	b := p.Bytes()
	if b == nil || i < 0 || i > 1 {
		return nil
	}
	return b[i*p.size:][:p.size:p.size]
}

// PageSize in bytes.
func (p *Pages) PageSize() int { return p.size }

// Words is how many words of 8 bytes both pages have.
func (p *Pages) Words() int { return 2 * p.size / Word }

// Put copies data to the word start and on, over the end to the start if need be, and fills up
// the last word with zeros. It returns the word behind. If there is no such word, data are not
// shorter than both pages, or these are freed, it copies nothing and returns start: Send refuses
// a message without words.
func (p *Pages) Put(start int, data []byte) (stop int) {
	b := p.Bytes()
	if start < 0 || start >= p.Words() || len(data) > len(b)-Word {
		return start
	}
	p.copied.Add(uint64(len(data)))
	at := start * Word
	n := copy(b[at:], data)
	if n < len(data) {
		n, at = copy(b, data[n:]), 0
	}
	for at += n; at%Word != 0; at++ {
		b[at] = 0
	}
	return (start + (len(data)+Word-1)/Word) % p.Words()
}

// get copies words from start on to dst, over the end to the start if need be.
func (p *Pages) get(dst []byte, start int) {
	b := p.Bytes()
	if len(dst) == 0 || b == nil {
		return
	}
	n := copy(dst, b[start*Word:])
	copy(dst[n:], b)
}

// stamp is the CRC and the clock that stand in the two words before end.
func (p *Pages) stamp(end int) (crc uint32, clock time.Duration) {
	var b [2 * Word]byte
	p.get(b[:], (end+p.Words()-2)%p.Words())
	ticks := binary.LittleEndian.Uint64(b[Word:])
	return binary.LittleEndian.Uint32(b[:]), time.Duration(ticks) * descriptors.ClockResolution
}

// Copied returns how many bytes this package has copied into the pages (Put, and what sends by
// it, such as SendPlaced) and out of them (Channel.Read), since they were allocated. What a NIC
// stored or fetched is not in it, nor what a program does with Bytes, Page, View and Placed.
func (p *Pages) Copied() uint64 { return p.copied.Load() }

// Free gives the memory back, once no channel has it any more: before that it fails as
// via.Memory.Deregister does for memory in use. Bytes is nil then, and slices that it returned
// must not be used.
func (p *Pages) Free(ctx context.Context) error { return p.memory.Close(ctx) }

func (p *Pages) segment() descriptors.DataSegment {
	return descriptors.DataSegment{Address: p.memory.Address() + uint64(p.offset), Handle: p.memory.Handle(), Length: uint32(2 * p.size)}
}
