// Package node says which NICs this node can give to pods, and how they are.
package node

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Kind is a way in which a pod gets a NIC.
type Kind string

const (
	// WholeNIC is a PCI function that VFIO hands to one pod.
	WholeNIC Kind = "vfio"
	// AgentShare is a NIC of the agent of this node, which many pods share.
	AgentShare Kind = "agent"
	// Emulated is a NIC that runs in the pod, with UDP as its wire.
	Emulated Kind = "emulated"
)

// Device is one NIC that can be given away.
type Device struct {
	// Name is a DNS label, and the same after a restart of the node.
	Name string
	Kind Kind
	// Address opens it in the pod, such as "eth:pci:0000:03:00.0". That of an emulated NIC lacks
	// the ports, and that of a share lacks its size.
	Address string
	// Function and Uses are those of a whole NIC.
	Function hostpci.Function
	Uses     []hostpci.Use
	// Agent is that of a share.
	Agent  Agent
	Health Health
}

// Agent is a NIC of the agent, with what it can give to all pods together.
type Agent struct {
	// Name in the file of the agent.
	Name string
	// Socket of the agent on this node.
	Socket string
	// VIs; Memory in bytes; Bandwidth in bytes a second. Zero is for not limited.
	VIs, Memory, Bandwidth int64
}

// DefaultRoute says that a default route of the node leads over the function.
func (d Device) DefaultRoute() bool {
	return slices.ContainsFunc(d.Uses, func(u hostpci.Use) bool { return u.Kind == hostpci.UseDefaultRoute })
}

// Safe says that giving the device away takes nothing from the node or from other pods.
func (d Device) Safe() bool {
	return d.Kind != WholeNIC || d.Function.Alone() && len(d.Uses) == 0 && d.Function.SRIOV.VFs == 0 && d.Function.Fits != ""
}

// Options say what a node offers besides its PCI functions.
type Options struct {
	// Root is where sys, proc and dev are found.
	Root hostpci.Root
	// Drivers of ours, as hostpci.Fit takes them. Own is the one for a NIC with our data sheet.
	Drivers []hostpci.Driver
	Own     string
	// NoWholeNICs leaves PCI functions out.
	NoWholeNICs bool
	Agents      []Agent
	// Emulated counts the emulated NICs, 0 to MostEmulated.
	Emulated int
	// Now is the clock by which health is judged; nil is time.Now.
	Now func() time.Time
}

// MostEmulated bounds the emulated NICs of a node.
const MostEmulated = 1024

// Node reads the devices of this node. Its methods are for one goroutine at a time.
type Node struct {
	options Options
	health  map[string]*history
}

// New fails if the options make no sense. It reads nothing.
func New(o Options) (*Node, error) {
	if o.Emulated < 0 || o.Emulated > MostEmulated {
		return nil, fmt.Errorf("%d emulated NICs: use 0 to %d", o.Emulated, MostEmulated)
	}
	for i, a := range o.Agents {
		if err := a.check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(o.Agents[:i], func(b Agent) bool { return a.Name == b.Name }) {
			return nil, fmt.Errorf("the agent's NIC %q is named twice", a.Name)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Node{options: o, health: map[string]*history{}}, nil
}

// Now is the time by which health is judged.
func (n *Node) Now() time.Time { return n.options.Now() }

func (a Agent) check() error {
	switch {
	case !label(a.Name):
		return fmt.Errorf("the agent's NIC %q: use at most 40 lower-case letters, digits and hyphens", a.Name)
	case !filepath.IsAbs(a.Socket) || filepath.Clean(a.Socket) != a.Socket:
		return fmt.Errorf("the socket %q of the agent: use an absolute path", a.Socket)
	case a.VIs < 0 || a.Memory < 0 || a.Bandwidth < 0:
		return fmt.Errorf("the agent's NIC %q: sizes are not less than zero", a.Name)
	}
	return nil
}

// label says that a name can be the part of a device's name.
func label(s string) bool {
	return s != "" && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && s[0] != '-' && s[len(s)-1] != '-'
}

// Devices reads what there is now, sorted by kind and name. With an error come the devices that
// could be read.
func (n *Node) Devices() (list []Device, err error) {
	if !n.options.NoWholeNICs {
		list, err = n.functions()
	}
	for _, a := range n.options.Agents {
		list = append(list, Device{Name: "agent-" + a.Name, Kind: AgentShare, Address: "agent:" + a.Name, Agent: a, Health: n.agentHealth(a)})
	}
	for i := range n.options.Emulated {
		list = append(list, Device{Name: fmt.Sprintf("emulated-%d", i), Kind: Emulated, Address: "emu:"})
	}
	return list, err
}

// functions are the network controllers that a driver of ours fits.
func (n *Node) functions() (list []Device, err error) {
	functions, err := hostpci.Functions(n.options.Root)
	hostpci.Fit(functions, n.options.Drivers)
	for _, f := range functions {
		if f.Fits == "" {
			continue
		}
		uses, e := hostpci.Uses(n.options.Root, f)
		if e != nil {
			// What cannot be read may be in use.
			err, uses = cmp.Or(err, e), append(uses, hostpci.Use{Kind: hostpci.UseHidden, Detail: e.Error()})
		}
		d := Device{Name: "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(f.Address), Kind: WholeNIC,
			Address: "eth:pci:" + f.Address, Function: f, Uses: uses, Health: n.functionHealth(f)}
		if f.Fits == n.options.Own {
			d.Address = "pci:" + f.Address
		}
		list = append(list, d)
	}
	return list, err
}
