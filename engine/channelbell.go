package engine

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// channelBell is one of the three kinds of doorbell that a channel has: to send at high or at
// low priority, or bellReceive.
type channelBell uint8

const bellReceive = channelBell(datasheet.ChannelPriorities)

// rungChannel says in cell.rung that one of a channel's doorbells was stored to.
const rungChannel uint32 = 1 << 31

// channelBells are the doorbells of a channel: for each priority ChannelDepth words, to which
// the host stores in turn, and one for receives. So stores that come faster than the engine
// looks are not lost, as they would be in a single word. A word is zero until it is stored to,
// and once it has been taken.
type channelBells struct {
	words   [datasheet.ChannelPriorities][datasheet.ChannelDepth]*uint32
	receive *uint32
	next    [datasheet.ChannelPriorities]uint8 // word to look at
	// lost are trapped stores to words that had not been taken.
	lost [datasheet.ChannelPriorities]atomic.Uint32
}

// openChannel begins with the doorbells of a new channel on a page, which open has opened.
func (d *doorbells) openChannel(page uint32) *channelBells {
	b := &channelBells{}
	// Trapped stores need words of the engine's own.
	const own = datasheet.DoorbellReceive - datasheet.DoorbellHigh + 4
	var memory [own / 4]uint32
	word := func(offset uint64) *uint32 {
		p := &memory[(offset-datasheet.DoorbellHigh)/4]
		if d.bar != nil {
			p = d.word(uint64(page)*datasheet.PageSize + offset)
		}
		atomic.StoreUint32(p, 0)
		return p
	}
	for i := range uint64(datasheet.ChannelDepth) {
		b.words[datasheet.PriorityHigh][i] = word(datasheet.DoorbellHigh + 4*i)
		b.words[datasheet.PriorityLow][i] = word(datasheet.DoorbellLow + 4*i)
	}
	b.receive = word(datasheet.DoorbellReceive)
	d.cells[page].channel.Store(b)
	return b
}

// findChannel returns the channel's doorbell at an offset in BAR2, and of a priority which of
// its words. ok is false if there is none.
func (d *doorbells) findChannel(offset uint64) (page uint32, which channelBell, slot uint8, ok bool) {
	at := offset % datasheet.PageSize
	if offset/datasheet.PageSize >= uint64(d.endpoints) || at%4 != 0 {
		return 0, 0, 0, false
	}
	page = uint32(offset / datasheet.PageSize)
	const size = 4 * datasheet.ChannelDepth
	switch {
	case at >= datasheet.DoorbellHigh && at < datasheet.DoorbellHigh+size:
		return page, channelBell(datasheet.PriorityHigh), uint8(at-datasheet.DoorbellHigh) / 4, true
	case at >= datasheet.DoorbellLow && at < datasheet.DoorbellLow+size:
		return page, channelBell(datasheet.PriorityLow), uint8(at-datasheet.DoorbellLow) / 4, true
	case at == datasheet.DoorbellReceive:
		return page, bellReceive, 0, true
	}
	return 0, 0, 0, false
}

// ringChannel takes a store that was trapped. It may be called from any goroutine. It returns
// false if there is no such doorbell, or if the value is none.
func (d *doorbells) ringChannel(offset uint64, value uint32) bool {
	page, which, slot, ok := d.findChannel(offset)
	if !ok || value&datasheet.ChannelRung == 0 {
		return false
	}
	b := d.cells[page].channel.Load()
	switch {
	case b == nil:
		return false
	case which == bellReceive:
		atomic.StoreUint32(b.receive, value)
	case !atomic.CompareAndSwapUint32(b.words[which][slot], 0, value):
		b.lost[which].Add(1)
	}
	d.link(page, rungChannel)
	return true
}

// takeChannel reports what is new among the doorbells of a channel, high priority first. A
// store in a word that is not the next one's turn waits until it is.
func (d *doorbells) takeChannel(page uint32, b *channelBells) (any bool) {
	if b == nil {
		return false
	}
	if word := b.takeReceive(); word != 0 {
		d.rangChannel(page, bellReceive, word)
		any = true
	}
	for p := range b.words {
		for range datasheet.ChannelDepth {
			w := b.words[p][b.next[p]]
			if atomic.LoadUint32(w) == 0 {
				break
			}
			b.next[p] = (b.next[p] + 1) % datasheet.ChannelDepth
			d.rangChannel(page, channelBell(p), atomic.SwapUint32(w, 0))
			any = true
		}
		if b.lost[p].Load() != 0 {
			for range b.lost[p].Swap(0) {
				d.rangChannel(page, channelBell(p), 0)
			}
			any = true
		}
	}
	return any
}

// takeReceive takes what was stored to the receive doorbell, zero if nothing was.
func (b *channelBells) takeReceive() uint32 {
	if atomic.LoadUint32(b.receive) == 0 {
		return 0
	}
	return atomic.SwapUint32(b.receive, 0)
}
