package channel_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/via"
)

// enough is device memory for the control pages of as many channels as there are numbers.
const enough = "&sram=33554432"

// TestAllChannels: a NIC opens as many channels as its numbers allow, channel 0 among them, and
// no more; the first, the last and some between carry messages, and their own only. Outside the
// soak pages are the largest, of which there are the fewest.
func TestAllChannels(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of connections")
	}
	for _, size := range []int{4096, 8192, 16384} {
		if !soak.Wanted() && size < 16384 {
			continue
		}
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			a, b := openBoth(t, enough)
			all := map[int]int{4096: 4096, 8192: 2048, 16384: 1024}[size]
			send := must.Get(channel.NewPages(contextFor(t), a, size, via.MemoryAttributes{}))(t)
			o := channel.Options{PageSize: size, Send: send}
			clients, servers := openPairs(t, a, b, all-1, o, channel.Options{})
			k := must.Get(channel.OpenKernel(contextFor(t), a, size))(t)
			l, err := a.ChannelLevels()
			if err != nil || l.Open != all {
				t.Errorf("%d channels, want %d, %v", l.Open, all, err)
			}
			should.Refuse(channel.Dial(contextFor(t), a, via.Address{}.String(), o))(t, via.ErrResource, "one more")
			some := []int{0, 1, all / 3, all / 2, all - 3, all - 2}
			for i, n := range some {
				message := random(2000+8*i, uint64(n))
				must.OK(t, clients[n].Send(channel.High, 0, send.Put(0, message)))
				m, err := servers[n].Wait(contextFor(t))
				got := make([]byte, len(message))
				if err != nil || m.Err != nil || servers[n].Read(m, got) != len(message) || !bytes.Equal(got, message) {
					t.Errorf("channel %d: %+v, %v", n, m, err)
				}
			}
			for i, c := range servers {
				if _, err := c.Poll(); !errors.Is(err, via.ErrNotDone) {
					t.Fatalf("channel %d: %v", i, err)
				}
			}
			should.OK(t, k.Close())
			for i := range clients {
				must.OK(t, errors.Join(clients[i].Close(), servers[i].Close()))
			}
			should.OK(t, send.Close(contextFor(t)))
			for _, n := range []*via.NIC{a, b} {
				free, size, err := n.FreeSRAM()
				if l, lerr := n.ChannelLevels(); err != nil || lerr != nil || free != size || l.Open != 0 {
					t.Errorf("%d of %d bytes are free, %+v, %v, %v", free, size, l, err, lerr)
				}
			}
		})
	}
}
