package dra

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

const (
	// DriverName is the driver of the devices, and the domain of their attributes.
	DriverName = "nic.trapeze-nic.github.io"
	// perSlice bounds the devices of a slice that have taints
	// (ResourceSliceMaxDevicesWithAdvancedFeatures in k8s.io/api/resource/v1).
	perSlice = 64
)

// Taints keep pods from a device, by the condition that it is in.
const taintKey = DriverName + "/condition"

// Names of what a share has, in its capacity.
const (
	capacityVIs       = "vis"
	capacityMemory    = "memory"
	capacityBandwidth = "bandwidth"
)

// Resources makes one pool of a node's devices, with the node's name. tainted says since when a
// device has been in its condition.
func Resources(pool string, devices []node.Device, tainted func(node.Device) metav1.Time) resourceslice.DriverResources {
	slices := []resourceslice.Slice{{}}
	for _, d := range devices {
		last := &slices[len(slices)-1]
		if len(last.Devices) == perSlice {
			slices = append(slices, resourceslice.Slice{})
			last = &slices[len(slices)-1]
		}
		last.Devices = append(last.Devices, device(d, tainted))
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {Slices: slices}}}
}

type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

func (a attributes) text(name, value string) {
	if value != "" {
		a[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}
func (a attributes) flag(name string, value bool) {
	a[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{BoolValue: &value}
}
func (a attributes) number(name string, value int) {
	a[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(value))}
}

func device(d node.Device, tainted func(node.Device) metav1.Time) resourceapi.Device {
	a := attributes{}
	a.text("kind", string(d.Kind))
	a.flag("safe", d.Safe())
	r := resourceapi.Device{Name: d.Name, Attributes: a}
	switch d.Kind {
	case node.WholeNIC:
		wholeNIC(a, d)
	case node.AgentShare:
		a.text("agent", d.Agent.Name)
		r.AllowMultipleAllocations = ptr.To(true)
		r.Capacity = capacity(d.Agent)
	}
	if c := d.Health.Condition; c != "" {
		effect := resourceapi.DeviceTaintEffectNoSchedule
		if d.Health.Ends() {
			effect = resourceapi.DeviceTaintEffectNoExecute
		}
		t := resourceapi.DeviceTaint{Key: taintKey, Value: string(c), Effect: effect}
		if since := tainted(d); !since.IsZero() {
			t.TimeAdded = &since
		}
		r.Taints = []resourceapi.DeviceTaint{t}
	}
	return r
}

func wholeNIC(a attributes, d node.Device) {
	f := d.Function
	a.text("fits", f.Fits)
	a.flag("tested", !f.Untested)
	a.text("kernelDriver", f.Driver)
	a.text("vendor", fmt.Sprintf("%04x", f.Vendor))
	a.text("device", fmt.Sprintf("%04x", f.Device))
	a.text("product", short(f.DeviceName))
	a.flag("aloneInGroup", d.Function.Alone())
	a.flag("defaultRoute", d.DefaultRoute())
	a.flag("inUse", len(d.Uses) > 0)
	a.flag("virtualFunction", f.SRIOV.Physical != "")
	a.number("iommuGroup", f.IOMMUGroup)
	a.number("numaNode", f.NUMANode)
	a.number("pcieLanes", f.Link.Width)
	// Names that drivers share (k8s.io/dynamic-resource-allocation/deviceattribute).
	a.text("resource.kubernetes.io/pciBusID", f.Address)
	if len(f.Bridges) > 0 {
		a.text("rootPort", f.Bridges[0])
	}
}

// short cuts a text to what an attribute may have (DeviceAttributeMaxValueLength), at a character.
func short(s string) string {
	for len(s) > resourceapi.DeviceAttributeMaxValueLength {
		r := []rune(s)
		s = string(r[:len(r)-1])
	}
	return s
}

// capacity has the sizes that all shares of a NIC have together. A claim that asks for none gets
// the default.
func capacity(a node.Agent) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	c := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	add := func(name string, total, usual, step int64, format resource.Format) {
		if total == 0 {
			return
		}
		q := func(v int64) *resource.Quantity { return resource.NewQuantity(v, format) }
		step = min(step, total)
		most := total - total%step
		c[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: *q(total), RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    q(max(step, min(usual, most)/step*step)),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: q(step), Max: q(most), Step: q(step)},
		}}
	}
	add(capacityVIs, a.VIs, 16, 1, resource.DecimalSI)
	add(capacityMemory, a.Memory, 64<<20, 1<<20, resource.BinarySI)
	add(capacityBandwidth, a.Bandwidth, 100e6, 1e6, resource.DecimalSI)
	return c
}

// resources are the devices of the last look, as slices.
func (d *Driver) resources() resourceslice.DriverResources {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Resources(d.options.NodeName, d.devices, func(v node.Device) metav1.Time { return d.since[v.Name].since })
}
