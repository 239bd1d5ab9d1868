package driver_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestKernelChannel: channel 0 sends on a channel whose number stands in the message, however
// the device learns of doorbells; there is one, it receives nothing and connects with nobody.
func TestKernelChannel(t *testing.T) {
	for name, options := range map[string]emulator.PairOptions{
		"inline": {}, "mapped": emulator.PairOptions{Doorbells: emulator.DoorbellsMapped},
		"trapped": emulator.PairOptions{Doorbells: emulator.DoorbellsTrapped, Threads: true},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			_, _, a, b := newPair(t, options)
			x, y := connectedChannels(t, a, b, datasheet.MinChannelPageLog2)
			m, err := a.Alloc(contextFor(t), 3*8192, driver.MemoryAttributes{})
			if err != nil {
				t.Fatal(err)
			}
			skip := -int(m.Address()) & 4095
			attributes := driver.ChannelAttributes{Kernel: true, Send: datasheet.DataSegment{Address: m.Address() + uint64(skip), Handle: m.Handle()}}
			k, err := a.CreateChannel(contextFor(t), attributes)
			if err != nil {
				t.Fatal(err)
			}
			if k.Number() != 0 || x.Number() == 0 {
				t.Errorf("channel 0 has the number %d, another one %d", k.Number(), x.Number())
			}
			if _, err := a.CreateChannel(contextFor(t), attributes); !errors.Is(err, descriptors.ErrResource) {
				t.Errorf("a second channel 0: %v", err)
			}
			if err := k.Allow(0, 5); !errors.Is(err, descriptors.ErrInvalidParameter) {
				t.Errorf("Allow: %v", err)
			}
			if _, err := k.ConnectRequest(contextFor(t), driver.Address{MAC: b.Identity().MAC, Discriminator: "channel"}, ""); err == nil {
				t.Error("channel 0 connects")
			}
			words := m.Bytes()[skip:]
			binary.LittleEndian.PutUint64(words, uint64(x.Number()))
			binary.LittleEndian.PutUint64(words[8:], 0x1122334455667788)
			if err := errors.Join(y.Allow(0, 1000), k.Send(datasheet.PriorityHigh, 0, 2)); err != nil {
				t.Fatal(err)
			}
			if _, err := y.Wait(contextFor(t), 0); err != nil {
				t.Fatal(err)
			}
			end, err := y.End(0)
			if got := binary.LittleEndian.Uint64(y.recv); err != nil || !end.Whole() || end.Length() != 8 || got != 0x1122334455667788 {
				t.Errorf("%#x, end %08x, %v", got, end, err)
			}
			binary.LittleEndian.PutUint64(words, 4000)
			if err := k.Send(datasheet.PriorityHigh, 0, 2); err != nil {
				t.Fatal(err)
			}
			for issued, ended := uint32(2), uint32(0); issued != ended; {
				if issued, ended, err = k.Sent(datasheet.PriorityHigh); err != nil {
					t.Fatal(err)
				}
			}
			if st, err := k.SendStatus(); err != nil || st.Result[datasheet.PriorityHigh] != datasheet.ChannelNotConnected {
				t.Errorf("on a channel that is not there: %+v, %v", st, err)
			}
			if err := k.Close(contextFor(t)); err != nil {
				t.Error(err)
			}
			if err := k.Send(datasheet.PriorityHigh, 0, 2); !errors.Is(err, descriptors.ErrClosed) {
				t.Errorf("after Destroy: %v", err)
			}
			if k, err = a.CreateChannel(contextFor(t), attributes); err != nil || k.Number() != 0 {
				t.Errorf("another channel 0: %v", err)
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}
