// Package channeltest holds the checks of channels that every NIC must pass that has them,
// whatever stands behind it and whatever wire it is on. They run as those of viatest do: Run
// in tests, Checks in 'trapeze conform'.
//
// Channels are best effort. What a wire loses is missing, and what it damages says so; a
// check that meets that sends again, but only after the counters of both NICs have shown that
// frames were lost. Over a wire that loses nothing, the first message that is missing or
// damaged fails the check.
package channeltest

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// Section is the name of the suite's section.
const Section = "channels"

var suite = []viatest.Check{
	check("one cell", testOneCell),
	check("messages", testMessages),
	check("around the double page", testWraps),
	check("spaced", testSpaced),
	check("room", testRoom),
	check("stamps", testStamps),
	check("messages before one look", testManyBeforeALook),
	check("order", testOrder),
	check("urgent beside bulk", testUrgent),
	check("several senders", testSenders),
	check("bad offsets", testBadOffsets),
	check("placement", testPlacement),
	check("multicast", testMulticast),
	check("barrier", testBarrier),
	check("bounce", testBounce),
	check("reports", testReports),
	check("drops", testDrops),
	check("memory out of reach", testOutOfReach),
	check("memory in use", testMemoryInUse),
	check("pages of others", testForeign),
	check("connection", testConnection),
	check("waits", testWaits),
	check("use after close", testClosed),
	check("closed under way", testUnderWay),
	check("peer gone", testPeerGone),
	check("device memory", testDeviceMemory),
}

// check makes a check. On a NIC without channels it is one that the NIC says so.
func check(name string, f func(*world)) viatest.Check {
	return viatest.NewCheck(Section, name, func(t viatest.T, p *viatest.Pair) {
		for _, nic := range []*via.NIC{p.A, p.B} {
			if nic.Driver().Identity().Features&descriptors.FeatureChannel == 0 {
				_, err := channel.Dial(viatest.Context(t), nic, via.Address{MAC: nic.Query().Address}, nil)
				viatest.WantError(t, "a NIC without channels", err, via.ErrNotSupported)
				t.Skip("the NIC has no channels:", err)
			}
		}
		f(newWorld(t, p))
	})
}

// Checks returns the whole suite.
func Checks() []viatest.Check { return suite }

// Run runs the suite as a subtest of t, see viatest.Run.
func Run(t *testing.T, name string, open func(t *testing.T) (a, b *via.NIC), only ...string) {
	viatest.RunChecks(t, name, suite, open, only...)
}

// Connect opens n pairs of channels between A and B, which are closed at the end; options may
// be nil.
func Connect(t viatest.T, p *viatest.Pair, n int, dial, listen *channel.Options) (clients, servers []*channel.Channel) {
	t.Helper()
	ctx := viatest.Context(t)
	l := viatest.Must(channel.Listen(p.B, "channels", listen))(t)
	t.Cleanup(func() {
		for _, c := range append(clients, servers...) {
			if err := c.Close(); err != nil && !errors.Is(err, channel.ErrClosed) {
				t.Error(err)
			}
		}
	})
	for range n {
		clients = append(clients, viatest.Must(channel.Dial(ctx, p.A, l.Address(), dial))(t))
		servers = append(servers, viatest.Must(l.Accept(ctx))(t))
	}
	viatest.OK(t, l.Close())
	return clients, servers
}
