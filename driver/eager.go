package driver

import (
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// Eager writes to memory of which the device has a copy of its own, in blocks (SPEC.md 9.1):
// every store goes to the memory, and a block goes to the device, whole, when the writer
// leaves it, at Flush, and before a descriptor that names it is posted. What is left to do at
// the doorbell is as little as the message is long. Over memory that is not eager it only
// stores.
//
// Where messages land in the device's copy, ReadAt reads them from there.
//
// Memory that has a writer is written through it, or pushed with Push after it was written
// in another way and before it is sent. Methods may be called from several goroutines, which
// take turns.
type Eager struct {
	datasheet.Eager
	n      *NIC
	mode   EagerMode
	holds  bool                        // the device may have what memory does not
	bytes  []byte                      // the memory
	first  uint64                      // application address of the first byte
	blocks []byte                      // the device's
	status []byte                      // the device's: one byte for each block
	words  datasheet.EagerStatus       // status, four to a word
	whole  struct{ first, end uint64 } // the blocks of which all is memory

	mu     hotlock.Mutex
	closed bool
	open   int64    // the block that is being written, which the device does not have; or noBlock
	valid  []uint64 // a bit for each block: the device was told that it has it
	edge   [1 << datasheet.EagerWideLog2]byte
	stats  EagerStats
}

const (
	noBlock = -1
	opWrite = "write eager memory"
)

// EagerStats count what has become of eager memory.
type EagerStats struct {
	// Pushed are the blocks that were written to the device.
	Pushed uint64 `json:"blocks_pushed"`
	// Again are the blocks that were taken back, since a writer wrote to them after they
	// had been pushed.
	Again uint64 `json:"blocks_pushed_again"`
	// FellBack are the registrations that found no room on the device and are ordinary.
	FellBack uint64 `json:"registrations_fell_back"`
	// Taken blocks came from the NIC's memory, Read ones from host memory, which they had to
	// since the NIC did not have them: both of eager memory only.
	Taken uint64 `json:"blocks_taken"`
	Read  uint64 `json:"blocks_read"`
	// Landed are the blocks in which messages have landed on the NIC, WrittenBack those of them, and the parts of
	// others, that it has written to memory. Fetched are those that were read or brought from the NIC.
	Landed      uint64 `json:"blocks_landed"`
	WrittenBack uint64 `json:"blocks_written_back"`
	Fetched     uint64 `json:"blocks_fetched"`
	// Refused registrations found no room, whatever became of them then.
	Refused uint64 `json:"registrations_refused"`
	// FreeSRAM is the number of free bytes of the NIC's memory.
	FreeSRAM uint32 `json:"sram_free_bytes"`
}

func (s *EagerStats) add(o EagerStats) {
	s.Pushed, s.Again, s.FellBack, s.Fetched = s.Pushed+o.Pushed, s.Again+o.Again, s.FellBack+o.FellBack, s.Fetched+o.Fetched
}

// newEager is a writer of bytes, at application address first, which has no device memory.
func (n *NIC) newEager(bytes []byte, first uint64) *Eager {
	return &Eager{n: n, bytes: bytes, first: first, open: noBlock}
}

// WriteAt stores p at an offset. It fails with ErrInvalidParameter, having written nothing, if not
// all of p lies inside. With io.NewOffsetWriter it makes an io.Writer.
func (e *Eager) WriteAt(p []byte, offset int64) (int, error) {
	e.mu.Lock()
	err := e.store(offset, p)
	e.mu.Unlock()
	if err != nil {
		return 0, e.n.error(opWrite, err)
	}
	return len(p), nil
}

// ReadAt reads what memory holds at an offset, and the NIC's copy where a message has landed there and memory does not have it. At
// the end of the memory it fails with io.EOF, as an io.ReaderAt.
func (e *Eager) ReadAt(p []byte, offset int64) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n = len(p); offset >= 0 && offset <= int64(len(e.bytes)) {
		n = min(n, len(e.bytes)-int(offset))
	}
	if err := e.check(offset, n); err != nil {
		return 0, e.n.error("read eager memory", err)
	}
	if copy(p, e.bytes[offset:]); e.holds && n > 0 {
		for b, end := e.Span(uint64(offset), uint64(n)); b < end; b++ {
			if !e.held(b) {
				continue
			}
			from, start := e.blocks[b<<e.Log2:(b+1)<<e.Log2], int(b<<e.Log2-e.Lead)-int(offset)
			copy(p[max(start, 0):n], from[max(-start, 0):])
			e.stats.Fetched++
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// held reports whether the device has a block that memory does not have. It says so of whole blocks only.
func (e *Eager) held(b uint64) bool {
	return b >= e.whole.first && b < e.whole.end && mmio.Read8(&e.status[b]) == datasheet.EagerHeld
}

// bring has memory have the blocks from first to end that the device holds. mu is held.
func (e *Eager) bring(first, end uint64) {
	for b := first; e.holds && b < end; b++ {
		if e.held(b) {
			copy(e.bytes[b<<e.Log2-e.Lead:], e.blocks[b<<e.Log2:(b+1)<<e.Log2])
			mmio.Write8(&e.status[b], 0)
			e.stats.Fetched++
		}
	}
}

// Flush has the device have all that was written.
func (e *Eager) Flush() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.n.error(opWrite, descriptors.ErrClosed)
	}
	e.leave()
	return nil
}

// Push has the device have n bytes from offset on as they are in memory now, and with them
// the rest of their blocks.
func (e *Eager) Push(offset, n int) error {
	e.mu.Lock()
	if e.closed || n <= 0 || uint(offset) >= uint(len(e.bytes)) || uint(n) > uint(len(e.bytes))-uint(offset) {
		err := e.check(int64(offset), n)
		e.mu.Unlock()
		return e.n.error(opWrite, err)
	}
	if e.blocks != nil {
		first, end := e.Span(uint64(offset), uint64(n))
		e.bring(first, end)
		e.pushBlocks(first, end)
	}
	e.mu.Unlock()
	return nil
}

// check says what is wrong with n bytes at offset. mu is held.
func (e *Eager) check(offset int64, n int) error {
	switch {
	case e.closed:
		return descriptors.ErrClosed
	case offset < 0 || n < 0 || offset > int64(len(e.bytes)) || int64(n) > int64(len(e.bytes))-offset:
		return fmt.Errorf("%w: %d bytes at offset %d, it has %d", descriptors.ErrInvalidParameter, n, offset, len(e.bytes))
	}
	return nil
}

// store writes p at offset, and pushes the blocks that it leaves. A block that the device
// has is taken back first: what the device reads is as it was before, or as it is after.
// mu is held.
func (e *Eager) store(offset int64, p []byte) error {
	if err := e.check(offset, len(p)); err != nil {
		return err
	}
	if e.blocks == nil || len(p) == 0 {
		copy(e.bytes[offset:], p)
		return nil
	}
	first, end := e.Span(uint64(offset), uint64(len(p)))
	if int64(first) != e.open {
		e.leave()
	}
	e.bring(first, end)
	e.stats.Again += e.takeBack(first, end)
	copy(e.bytes[offset:], p)
	if end-first > 1 {
		e.pushBlocks(first, end-1)
	}
	e.open = int64(end - 1)
	return nil
}

// leave pushes the block that is being written, if there is one. mu is held.
func (e *Eager) leave() {
	if e.open >= 0 {
		b := uint64(e.open)
		e.pushBlocks(b, b+1)
	}
}

// pushBlocks copies the blocks from first to end to the device, and then says that they are
// good. A doorbell flushes once more. mu is held.
func (e *Eager) pushBlocks(first, end uint64) {
	if end-first == 1 && first >= e.whole.first && end <= e.whole.end && e.Log2 == datasheet.EagerLog2 {
		// Most messages are short: all of it in one call.
		mmio.PushBlock((*[unit]byte)(e.blocks[first*unit:]), (*[unit]byte)(e.bytes[first*unit-e.Lead:]), &e.status[first], datasheet.EagerValid)
		e.note(first, end)
		e.valid[first/64] |= 1 << (first % 64)
		return
	}
	e.copyBlocks(first, end)
	mmio.FlushWriteCombining()
	e.mark(first, end)
}

// note counts what is pushed; a block that is being written is pushed with it.
func (e *Eager) note(first, end uint64) {
	e.stats.Pushed += end - first
	if uint64(e.open)-first < end-first {
		e.open = noBlock
	}
}

// unit is the unit of writing to a block, in bytes.
const unit = 1 << datasheet.EagerLog2

// copyBlocks is the only function that writes to blocks: those from first to end, of which
// there is at least one. mu is held.
func (e *Eager) copyBlocks(first, end uint64) {
	if first < e.whole.first {
		e.copyEdge(first)
		first++
	}
	last := min(end, e.whole.end)
	if first < last {
		to, from := e.blocks[first<<e.Log2:last<<e.Log2], e.bytes[first<<e.Log2-e.Lead:last<<e.Log2-e.Lead]
		mmio.WriteBlocks((*[unit]byte)(to), (*[unit]byte)(from), int(last-first)<<(e.Log2-datasheet.EagerLog2))
		first = last
	}
	if first < end {
		e.copyEdge(first)
	}
}

// copyEdge writes the first or the last block, of which only a part is memory: the rest is
// zero there.
func (e *Eager) copyEdge(b uint64) {
	size := uint64(1) << e.Log2
	from := e.edge[:size]
	clear(from)
	start, skip := b<<e.Log2-e.Lead, uint64(0)
	if b == 0 {
		start, skip = 0, e.Lead
	}
	copy(from[skip:], e.bytes[start:min((b+1)<<e.Log2-e.Lead, uint64(len(e.bytes)))])
	mmio.WriteBlocks((*[unit]byte)(e.blocks[b<<e.Log2:]), (*[unit]byte)(from), 1<<(e.Log2-datasheet.EagerLog2))
}

// mark says that the blocks from first to end are good, behind the barrier that follows
// copyBlocks. mu is held.
func (e *Eager) mark(first, end uint64) {
	e.note(first, end)
	for b := first; b < end; {
		if b%4 == 0 && end-b >= 4 {
			mmio.Write32(&e.words[b/4], datasheet.EagerFourValid)
			e.valid[b/64] |= 0xf << (b % 64)
			b += 4
			continue
		}
		mmio.Write8(&e.status[b], datasheet.EagerValid)
		e.valid[b/64] |= 1 << (b % 64)
		b++
	}
}

// has reports whether the device was told that it has a block. It may have voided it since.
func (e *Eager) has(b uint64) bool { return e.valid[b/64]>>(b%64)&1 != 0 }

// takeBack makes the device read the blocks from first to end from memory, and returns how many
// of them it had. mu is held.
func (e *Eager) takeBack(first, end uint64) (had uint64) {
	for b := first; b < end; b++ {
		if e.has(b) {
			mmio.Write8(&e.status[b], 0)
			e.valid[b/64] &^= 1 << (b % 64)
			had++
		}
	}
	if had > 0 {
		mmio.FlushWriteCombining()
	}
	return had
}

// close ends all writing, before the memory or the device's goes, and returns what has been
// counted. reopen undoes it. e may be nil, as in counted.
func (e *Eager) close() EagerStats {
	if e == nil {
		return EagerStats{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	e.closed, e.stats = true, EagerStats{}
	return s
}

func (e *Eager) reopen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = false
}

// counted returns the counts since the writer was made or reopened.
func (e *Eager) counted() EagerStats {
	if e == nil {
		return EagerStats{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// lay gives a writer device memory: blocks of 2^log2 bytes, and their status, at offsets in
// BAR4. It returns false if that is not memory of the device.
func (e *Eager) lay(log2 uint8, blocks, status uint64) bool {
	e.Eager = datasheet.EagerLayout(e.first, uint64(len(e.bytes)), log2)
	e.whole.first, e.whole.end = (e.Lead+1<<log2-1)>>log2, (e.Lead+uint64(len(e.bytes)))>>log2
	window := func(at uint64, size uint64) []byte {
		if size > uint64(e.n.identity.SRAM) {
			return nil
		}
		return e.n.bar4.mapped.Window(at, int(size))
	}
	e.blocks, e.status = window(blocks, e.BlockBytes()), window(status, e.StatusBytes())
	e.words = datasheet.EagerStatusAt(e.status)
	e.valid = make([]uint64, (e.Count+63)/64)
	return e.blocks != nil && e.words != nil
}
