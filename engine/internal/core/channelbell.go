package core

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ChannelBell is one of the three kinds of doorbell that a channel has: to send at high or at
// low priority, or bellReceive.
type ChannelBell uint8

const BellReceive = ChannelBell(datasheet.ChannelPriorities)

// rungChannel says in cell.rung that one of a channel's doorbells was stored to.
const rungChannel uint32 = 1 << 31

// ChannelBells are the doorbells of a channel: for each priority ChannelDepth words, to which
// the host stores in turn, and one for receives. So stores that come faster than the engine
// looks are not lost, as they would be in a single word. A word is zero until it is stored to,
// and once it has been taken.
type ChannelBells struct {
	words   [datasheet.ChannelPriorities][datasheet.ChannelDepth]*uint32
	receive *uint32
	Next    [datasheet.ChannelPriorities]uint8 // word to look at
	// lost are trapped stores to words that had not been taken.
	lost [datasheet.ChannelPriorities]atomic.Uint32
}

// OpenChannel begins with the doorbells of a new channel on a page, which open has opened.
func (d *doorbells) OpenChannel(page uint32) *ChannelBells {
	b := &ChannelBells{}
	// Trapped stores need words of the engine's own.
	const own = datasheet.DoorbellReceive - datasheet.DoorbellHigh + 4
	var memory [own / 4]uint32
	word := func(offset uint64) *uint32 {
		p := &memory[(offset-datasheet.DoorbellHigh)/4]
		if d.Bar != nil {
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
	d.Cells[page].Channel.Store(b)
	return b
}

// FindChannel returns the channel's doorbell at an offset in BAR2, and of a priority which of
// its words. ok is false if there is none.
func (d *doorbells) FindChannel(offset uint64) (page uint32, which ChannelBell, slot uint8, ok bool) {
	at := offset % datasheet.PageSize
	if offset/datasheet.PageSize >= uint64(d.endpoints) || at%4 != 0 {
		return 0, 0, 0, false
	}
	page = uint32(offset / datasheet.PageSize)
	const size = 4 * datasheet.ChannelDepth
	switch {
	case at >= datasheet.DoorbellHigh && at < datasheet.DoorbellHigh+size:
		return page, ChannelBell(datasheet.PriorityHigh), uint8(at-datasheet.DoorbellHigh) / 4, true
	case at >= datasheet.DoorbellLow && at < datasheet.DoorbellLow+size:
		return page, ChannelBell(datasheet.PriorityLow), uint8(at-datasheet.DoorbellLow) / 4, true
	case at == datasheet.DoorbellReceive:
		return page, BellReceive, 0, true
	}
	return 0, 0, 0, false
}

// RingChannel takes a store that was trapped. It may be called from any goroutine. It returns
// false if there is no such doorbell, or if the value is none.
func (d *doorbells) RingChannel(offset uint64, value uint32) bool {
	page, which, slot, ok := d.FindChannel(offset)
	if !ok || value&datasheet.ChannelRung == 0 {
		return false
	}
	b := d.Cells[page].Channel.Load()
	switch {
	case b == nil:
		return false
	case which == BellReceive:
		atomic.StoreUint32(b.receive, value)
	case !atomic.CompareAndSwapUint32(b.words[which][slot], 0, value):
		b.lost[which].Add(1)
	}
	d.link(page, rungChannel)
	return true
}

// TakeChannel reports what is new among the doorbells of a channel, high priority first. A
// store in a word that is not the next one's turn waits until it is.
func (d *doorbells) TakeChannel(page uint32, b *ChannelBells) (any bool) {
	if b == nil {
		return false
	}
	if word := b.TakeReceive(); word != 0 {
		d.RangChannel(page, BellReceive, word)
		any = true
	}
	for p := range b.words {
		for range datasheet.ChannelDepth {
			w := b.words[p][b.Next[p]]
			if atomic.LoadUint32(w) == 0 {
				break
			}
			b.Next[p] = (b.Next[p] + 1) % datasheet.ChannelDepth
			d.RangChannel(page, ChannelBell(p), atomic.SwapUint32(w, 0))
			any = true
		}
		if b.lost[p].Load() != 0 {
			for range b.lost[p].Swap(0) {
				d.RangChannel(page, ChannelBell(p), 0)
			}
			any = true
		}
	}
	return any
}

// TakeReceive takes what was stored to the receive doorbell, zero if nothing was.
func (b *ChannelBells) TakeReceive() uint32 {
	if atomic.LoadUint32(b.receive) == 0 {
		return 0
	}
	return atomic.SwapUint32(b.receive, 0)
}
