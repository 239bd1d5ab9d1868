package afxdp

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// caution logs which frames the port will not get, or not whole, and what helps. The kernel
// and its driver say nothing of it.
func (d *device) caution(a *netlink.LinkAttrs) {
	driver := d.host.driver(d.name)
	peer := d.host.peer(a, driver)
	for _, q := range d.queues {
		if why := d.deaf(q.number(), driver, peer); why != "" {
			d.port.Log().Warn(fmt.Sprintf("queue %d receives nothing: %s", q.number(), why))
		}
	}
	receive, _ := d.host.channels(d.name)
	if n := receive - len(d.queues); n > 0 && d.config.Promiscuous {
		d.port.Log().Warn(fmt.Sprintf("frames that arrive by %d other queues of the interface stay with Linux: open %d queues from queue 0 on, or have one with ethtool -L %s",
			n, receive, d.name))
	}
	// Who takes frames for all stations passes Linux's on, or looks at them.
	if how := d.partial(driver, peer); how != "" && d.config.Promiscuous {
		d.port.Log().Warn("frames that arrive here lack TCP and UDP checksums, as Linux leaves them to the NIC, and their receivers drop them: " + how)
	}
}

// peer returns the name of the other end of a veth pair, empty if that is not here.
func (h *host) peer(a *netlink.LinkAttrs, driver string) string {
	if driver != veth || a.NetNsID >= 0 {
		return ""
	}
	other, err := h.look(a.ParentIndex)
	if err != nil {
		return ""
	}
	return other.Name
}

// veth is the driver whose frames come straight from the send queues of its peer.
const veth = "veth"

// deaf says why a queue of a veth gets no frames, empty if it gets some. The number of the
// peer's send queue is that of the receive queue; where the program runs behind the driver
// it is taken for one that is counted from 1 on (Linux, skb_get_rx_queue).
func (d *device) deaf(number int, driver, peer string) string {
	if driver != veth {
		return ""
	}
	send, _ := d.host.channels(d.name) // those of a peer elsewhere are likely as many
	if peer != "" {
		_, send = d.host.channels(peer)
	}
	switch {
	case send == 0 || number == 0:
	case d.program.native && number >= send:
		return fmt.Sprintf("its peer sends by %d; ethtool -L %s tx %d", send, peer, number+1)
	case !d.program.native && number+1 >= send && d.program.why != nil:
		return fmt.Sprintf("the last queue of veth does so in generic mode; mode=native was not possible: %v", d.program.why)
	case !d.program.native && number+1 >= send:
		return "the last queue of veth does so in generic mode; use mode=native"
	}
	return ""
}

// partial says what helps against frames without checksums, empty if there are none. XDP
// does not tell which frames are so. virtio_net has the device compute them once a program
// is in the driver.
func (d *device) partial(driver, peer string) string {
	switch {
	case driver == veth && peer == "":
		return fmt.Sprintf("ethtool -K PEER tx off, where PEER is the peer of %s, in its network namespace; it cannot be seen from here whether that was done", d.name)
	case driver == veth && d.host.computes(peer):
		return fmt.Sprintf("ethtool -K %s tx off", peer)
	case driver == "virtio_net" && !d.program.native:
		return "use mode=native, or ethtool -K INTERFACE tx off where they are sent"
	}
	return ""
}
