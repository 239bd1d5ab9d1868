package channel

import (
	"context"
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Word is the size in bytes of a word, the unit of offsets.
const Word = datasheet.ChannelWord

// Pages is a double page of registered memory. Several channels may send from one: see
// Multicast.
type Pages struct {
	memory *via.Memory
	offset int // of the first page
	size   int // of a page, in bytes
	copied atomic.Uint64
}

// NewPages allocates a double page with pages of 4096, 8192 or 16384 bytes, aligned to their size.
// It fails with via.ErrInvalidParameter for other sizes, and as via.NIC.Alloc does.
func NewPages(ctx context.Context, nic *via.NIC, pageSize int, a via.MemoryAttributes) (*Pages, error) {
	if err := nic.Check("allocate pages"); err != nil {
		return nil, err
	}
	if !isPage(pageSize) {
		return nil, refuse(nic, "allocate pages", via.ErrInvalidParameter, "pages of %d bytes: they have 4096, 8192 or 16384", pageSize)
	}
	// Memory is aligned to pages of the host, which may be smaller.
	m, err := nic.Alloc(ctx, 3*pageSize, a)
	if err != nil {
		return nil, err
	}
	return &Pages{memory: m, offset: -int(m.Address()) & (pageSize - 1), size: pageSize}, nil
}

// isPage reports whether pages may have a size.
func isPage(size int) bool { return pageOf(size).Valid() && bits.OnesCount(uint(size)) == 1 }

// pageOf returns the exponent of two of a size.
func pageOf(size int) datasheet.ChannelPage {
	return datasheet.ChannelPage(bits.Len(uint(max(size, 1))) - 1)
}

// Bytes returns both pages, or nil once they are closed.
func (p *Pages) Bytes() []byte {
	b := p.memory.Bytes()
	if b == nil {
		return nil
	}
	return b[p.offset:][: 2*p.size : 2*p.size]
}

// Page returns page 0 or 1, aligned to its size, or nil once they are closed.
func (p *Pages) Page(i int) []byte {
	b := p.Bytes()
	if b == nil || i < 0 || i > 1 {
		return nil
	}
	return b[i*p.size:][:p.size:p.size]
}

// PageSize returns the size of one page in bytes.
func (p *Pages) PageSize() int { return p.size }

// Words returns the number of words of 8 bytes in both pages.
func (p *Pages) Words() int { return 2 * p.size / Word }

// Put copies data to the word start and on, and fills up the last word with zeros. It wraps at
// the end of the double page. It returns the word behind the data. If there is no word start,
// the data are not a word shorter than both pages, or these are closed, it copies nothing and
// returns start; Send refuses an empty message.
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

// get copies words from start on to dst. It wraps at the end of the double page.
func (p *Pages) get(dst []byte, start int) {
	b := p.Bytes()
	if len(dst) == 0 || b == nil {
		return
	}
	n := copy(dst, b[start*Word:])
	copy(dst[n:], b)
}

// stamp returns the CRC and the clock in the two words before end.
func (p *Pages) stamp(end int) (crc uint32, clock time.Duration) {
	var b [2 * Word]byte
	p.get(b[:], (end+p.Words()-2)%p.Words())
	ticks := binary.LittleEndian.Uint64(b[Word:])
	return binary.LittleEndian.Uint32(b[:]), time.Duration(ticks) * datasheet.ClockResolution
}

// PagesStats are counters of a double page since it was allocated.
type PagesStats struct {
	Copied uint64 `json:"copied" help:"Bytes that Put and SendPlaced have copied into the pages, and Read out of them." unit:"bytes"`
}

// Stats returns the counters.
func (p *Pages) Stats() PagesStats { return PagesStats{Copied: p.copied.Load()} }

// Close gives the memory back. While a channel uses it, Close fails as via.Memory.Close does.
// Slices of the pages must not be used afterwards.
func (p *Pages) Close(ctx context.Context) error { return p.memory.Close(ctx) }

func (p *Pages) segment() datasheet.DataSegment {
	return datasheet.DataSegment{Address: p.memory.Address() + uint64(p.offset), Handle: p.memory.Handle(), Length: uint32(2 * p.size)}
}
