package node

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Condition names what is wrong with a device; it is empty if nothing is.
type Condition string

const (
	// NoLink: an interface of the function has no carrier. A function that VFIO has shows none.
	NoLink Condition = "no-link"
	// Resetting: the function has not answered for less than resetTime, as during a reset.
	Resetting Condition = "resetting"
	// Gone: it has not answered for longer.
	Gone Condition = "gone"
	// FatalError: Advanced Error Reporting (PCIe base specification, 6.2) has counted a fatal
	// error within errorTime.
	FatalError Condition = "fatal-error"
	// AgentGone: the agent does not take connections.
	AgentGone Condition = "agent-gone"
)

// Health is the state of a device. Its zero value is good health.
type Health struct {
	Condition Condition
	Detail    string
}

// Ends says that a pod which has the device cannot go on with it.
func (h Health) Ends() bool { return h.Condition == Gone || h.Condition == FatalError }

const (
	// resetTime is more than a function may need after a reset (PCIe base specification, 6.6.1:
	// 1 s), with the time that a driver needs.
	resetTime = 10 * time.Second
	errorTime = 10 * time.Minute
	// dialTime bounds the attempt to connect with the agent. Its socket is on this node.
	dialTime = time.Second
)

// history has what was seen of a function before.
type history struct {
	quiet time.Time // since when it does not answer; zero: it does
	known bool      // fatal is
	fatal uint64    // errors
	rose  time.Time // when there were more last
}

func (n *Node) functionHealth(f hostpci.Function) Health {
	h := n.health[f.Address]
	if h == nil {
		h = &history{}
		n.health[f.Address] = h
	}
	now := n.Now()
	if mute(n.options.Root, f) {
		if h.quiet.IsZero() {
			h.quiet = now
		}
		if now.Sub(h.quiet) < resetTime {
			return Health{Resetting, "its configuration space reads as all ones"}
		}
		return Health{Gone, "its configuration space reads as all ones since " + h.quiet.Format(time.TimeOnly)}
	}
	h.quiet = time.Time{}
	fatal := fatalErrors(hostpci.Attribute(n.options.Root, f.Address, "aer_dev_fatal"))
	if h.known && fatal > h.fatal {
		h.rose = now
	}
	h.fatal, h.known = fatal, true
	if !h.rose.IsZero() && now.Sub(h.rose) < errorTime {
		return Health{FatalError, fmt.Sprintf("%d fatal errors by AER, the last at %s", fatal, h.rose.Format(time.TimeOnly))}
	}
	for _, name := range f.Netdevs {
		if n.options.Root.Optional("sys/class/net/"+name+"/carrier") == "0" {
			return Health{NoLink, name + " has no carrier"}
		}
	}
	return Health{}
}

// mute says that a function's configuration space reads as all ones. That of a virtual function
// always begins so.
func mute(r hostpci.Root, f hostpci.Function) bool {
	c, err := hostpci.Config(r, f.Address)
	return err == nil && len(c) > 0 && !slices.ContainsFunc(c[:min(len(c), 64)], func(b byte) bool { return b != 0xff })
}

// fatalErrors reads the file aer_dev_fatal of a function
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats); 0 where there is none.
func fatalErrors(text string) uint64 {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == "TOTAL_ERR_FATAL" {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

func (n *Node) agentHealth(a Agent) Health {
	c, err := net.DialTimeout("unix", n.options.Root.Path(strings.TrimPrefix(a.Socket, "/")), dialTime)
	if err != nil {
		return Health{AgentGone, err.Error()}
	}
	if err := c.Close(); err != nil {
		return Health{AgentGone, err.Error()}
	}
	return Health{}
}
