package channel

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Channel 0 (SPEC.md 16.6) sends on the other channels: which one, the first word of a message
// says. Its messages wait among those of that channel, and what becomes of them its own control
// page tells.

// address finds out where a message of channel 0 is to go, and what is left of it then. It
// returns ChannelTaken, or why it goes nowhere.
func (w *Mover) address(ch *channel, word uint32) (to *core.Endpoint, rest uint32, why datasheet.ChannelResult) {
	start, stop := datasheet.ChannelSpan(word)
	first := (start + 1) & ch.mask
	if first == stop {
		return nil, 0, datasheet.ChannelBadOffsets
	}
	number := w.Regions.At(ch.send.handle, ch.tag, ch.send.address+uint64(start)*datasheet.ChannelWord, datasheet.ChannelWord, false)
	if len(number) < datasheet.ChannelWord {
		return nil, 0, datasheet.ChannelUnreadable
	}
	n := binary.LittleEndian.Uint64(number)
	if n >= uint64(len(w.All)) {
		return nil, 0, datasheet.ChannelNotConnected
	}
	if to = w.Endpoint(uint32(n)); channelOf(to) == nil || channelOf(to).link == nil {
		return nil, 0, datasheet.ChannelNotConnected
	}
	return to, datasheet.ChannelBell(first, stop), datasheet.ChannelTaken
}

// withdraw takes back the messages of a channel 0 that is being destroyed. Those that have been
// begun end with an aborted PDU.
func (w *Mover) withdraw(ch *channel) {
	for _, l := range w.Links {
		for p := range l.fifos {
			seen := map[*core.Endpoint]uint8{}
			l.fifos[p].resize(len(l.fifos[p].ring), func(ep *core.Endpoint) bool {
				i := seen[ep]
				seen[ep]++
				to := channelOf(ep)
				begun := i == 0 && to.cutter.Active() && to.sending == datasheet.ChannelPriority(p)
				return begun || to.posted[p].at(i).from != ch
			})
		}
		for _, ep := range l.members {
			to := channelOf(ep)
			for p := range to.posted {
				var left messages
				for i := range to.posted[p].n {
					m := to.posted[p].at(i)
					begun := i == 0 && to.cutter.Active() && to.sending == datasheet.ChannelPriority(p)
					if begun || m.from != ch {
						left.push(m.word, m.from)
					}
				}
				w.Levels.Transmit[p] -= int(to.posted[p].n - left.n)
				to.posted[p] = left
			}
		}
	}
	// What is still to be told of it nobody reads.
	ch.gone, ch.control = true, new(datasheet.ChannelControl)
}
