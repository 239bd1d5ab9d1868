package driver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Placement says where the delivery policy of a NIC runs: what decides how many
// bytes of a frame that is still arriving an idle outgoing engine may move on
// (SPEC.md 2.9, package pipeline).
type Placement int

const (
	// AtNIC: a policy that the device has built in decides. It costs the host
	// nothing.
	AtNIC Placement = iota
	// AtHost: a policy of package pipeline decides in this process. The driver
	// watches progress counters that the device writes to host memory and answers
	// through registers, one access for each transfer: while a call polls or
	// waits on the NIC as part of that, else on a goroutine of its own.
	AtHost
)

func (p Placement) String() string {
	switch p {
	case AtNIC:
		return "nic"
	case AtHost:
		return "host"
	}
	return fmt.Sprintf("placement %d", int(p))
}

// Policy is a delivery policy for both directions of a NIC. The zero value stands for
// what the device was configured with.
type Policy struct {
	// Name is one of NICPolicies or, at the host, HostPolicies. Empty is the one that the
	// device was configured with at the NIC, and "amp" at the host.
	Name string
	At   Placement
	// MinPulseSend and MinPulseReceive are the sizes of policies that have one, in
	// bytes, 1 to datasheet.MaxMinPulse: the pulse of static and cut-through, the
	// threshold of the eager ones. Zero is the policy's default.
	MinPulseSend, MinPulseReceive int
	// Plan, if not nil, is used at the host instead of a policy that has a name.
	// Its functions and what they return must not block: a frame waits for them.
	Plan *pipeline.Plan
	// Deadline limits the device's wait for the host's part in moving one
	// frame before it goes on by its own policy: 1 us to 4294 s, in whole
	// microseconds; zero leaves it as it is, 10 ms after a reset.
	Deadline time.Duration
}

// DefaultHostPolicy runs at the host if no policy is named.
const DefaultHostPolicy = "amp"

// maxDeadline is the longest that the register can express.
const maxDeadline = (1<<32 - 1) * time.Microsecond

// sized are the policies that MinPulseSend and MinPulseReceive belong to.
var sized = map[string]int{
	"static": pipeline.DefaultPulse, "cut-through": pipeline.DefaultPulse,
	"eager": pipeline.DefaultMinPulse, "pure-cut-through": pipeline.DefaultMinPulse, "amp": pipeline.DefaultMinPulse,
}

// NICPolicies returns the names of the policies that a device can have built in.
func NICPolicies() []string {
	var names []string
	for p := datasheet.DMAPolicyStoreAndForward; p <= datasheet.DMAPolicyAuto; p++ {
		names = append(names, p.String())
	}
	return names
}

// builtIn returns the number of a policy of NICPolicies.
func builtIn(name string) (datasheet.DMAPolicy, bool) {
	i := slices.Index(NICPolicies(), name)
	return datasheet.DMAPolicyStoreAndForward + datasheet.DMAPolicy(i), i >= 0
}

// offLine is the policy of package pipeline that cannot do without schedules
// for one platform and one payload.
const offLine = "optimal"

// HostPolicies returns the names of the policies that can run at the host.
func HostPolicies() []string {
	return slices.DeleteFunc(pipeline.PolicyNames(), func(n string) bool { return n == offLine })
}

// Check reports whether the policy can be asked of a device, as far as that is
// known without one. Errors wrap ErrInvalidParameter and say what is possible.
func (p Policy) Check() error {
	_, err := p.plan()
	return err
}

// plan checks p and returns what the pump is to run, which is empty at the NIC.
func (p Policy) plan() (none pipeline.Plan, _ error) {
	bad := func(format string, args ...any) (pipeline.Plan, error) {
		return none, fmt.Errorf("%w: %w", descriptors.ErrInvalidParameter, fmt.Errorf(format, args...))
	}
	_, sizes := sized[p.Name]
	_, inside := builtIn(p.Name)
	names := strings.Join(HostPolicies(), ", ")
	switch hasSize := p.MinPulseSend != 0 || p.MinPulseReceive != 0; {
	case p.At != AtNIC && p.At != AtHost:
		return bad("placement %d", int(p.At))
	case p.Deadline < 0 || p.Deadline > maxDeadline || p.Deadline%time.Microsecond != 0:
		return bad("a deadline of %v is not 1us to %v in whole microseconds", p.Deadline, maxDeadline)
	case p.Plan != nil && p.At != AtHost:
		return bad("a plan runs at the host, not at the NIC")
	case p.Plan != nil && (p.Name != "" || hasSize):
		return bad("a plan has neither a name nor sizes beside it")
	case p.Plan != nil && (p.Plan.Send == nil || p.Plan.Receive == nil):
		return bad("a plan decides both directions")
	case p.Plan != nil:
		return *p.Plan, nil
	case p.Name != "" && !slices.Contains(pipeline.PolicyNames(), p.Name):
		return bad("%w %q; there are %s", pipeline.ErrUnknownPolicy, p.Name, names)
	case p.Name == offLine:
		return bad("policy %s needs schedules that were computed for one platform and one payload, which a live device is not; there are %s", p.Name, names)
	case p.Name != "" && p.At == AtNIC && !inside:
		return bad("policy %s runs at the host only; a NIC has %s", p.Name, strings.Join(NICPolicies(), ", "))
	case min(p.MinPulseSend, p.MinPulseReceive) < 0 || max(p.MinPulseSend, p.MinPulseReceive) > datasheet.MaxMinPulse:
		return bad("minimum pulses of %d bytes to send and %d to receive, they are 1 to %d", p.MinPulseSend, p.MinPulseReceive, datasheet.MaxMinPulse)
	case hasSize && p.Name == "" && p.At == AtNIC:
		return bad("a minimum pulse and no policy that it belongs to")
	case hasSize && p.Name != "" && !sizes:
		return bad("policy %s has no minimum pulse", p.Name)
	case p.At == AtNIC:
		return none, nil
	}
	plan, err := pipeline.ByName(cmp.Or(p.Name, DefaultHostPolicy), pipeline.Parameters{MinPulseSend: p.MinPulseSend, MinPulseReceive: p.MinPulseReceive})
	if err != nil {
		return bad("%w", err)
	}
	return plan, nil
}

// sizes returns the minimum pulses, zero where there is none.
func (p Policy) sizes() (send, receive int) {
	name := p.Name
	if name == "" && p.At == AtHost && p.Plan == nil {
		name = DefaultHostPolicy
	}
	return cmp.Or(p.MinPulseSend, sized[name]), cmp.Or(p.MinPulseReceive, sized[name])
}
