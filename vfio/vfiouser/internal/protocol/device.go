package protocol

// Flags of DEVICE_GET_INFO (linux/vfio.h).
const (
	DeviceReset uint32 = 1
	DevicePCI   uint32 = 2
)

// DeviceInfo is both the request and the reply of DEVICE_GET_INFO. In the
// request only Argsz counts.
type DeviceInfo struct {
	Argsz, Flags, Regions, IRQs uint32
}

// DeviceInfoSize is the size of a DeviceInfo in bytes.
const DeviceInfoSize = 16

// Append appends the payload to b.
func (m DeviceInfo) Append(b []byte) []byte { return encode(b, m) }

// DecodeDeviceInfo reads a request or a reply.
func DecodeDeviceInfo(p []byte) (DeviceInfo, error) { return decode[DeviceInfo](CommandDeviceInfo, p) }

// IRQInfo is both the request and the reply of DEVICE_GET_IRQ_INFO. In the
// request only Argsz and Index count.
type IRQInfo struct {
	Argsz, Flags, Index, Count uint32
}

// IRQInfoSize is the size of an IRQInfo in bytes.
const IRQInfoSize = 16

// Append appends the payload to b.
func (m IRQInfo) Append(b []byte) []byte { return encode(b, m) }

// DecodeIRQInfo reads a request or a reply.
func DecodeIRQInfo(p []byte) (IRQInfo, error) { return decode[IRQInfo](CommandIRQInfo, p) }

// Data and action of SET_IRQS (linux/vfio.h). Flags hold one of each.
const (
	IRQDataNone    uint32 = 0x01
	IRQDataBool    uint32 = 0x02
	IRQDataEventfd uint32 = 0x04

	IRQActionMask    uint32 = 0x08
	IRQActionUnmask  uint32 = 0x10
	IRQActionTrigger uint32 = 0x20

	irqData   = IRQDataNone | IRQDataBool | IRQDataEventfd
	irqAction = IRQActionMask | IRQActionUnmask | IRQActionTrigger
)

// SetIRQs is the request of SET_IRQS, whose reply has no payload. It acts on
// vectors Start to Start+Count-1 of interrupt index Index. Eventfds come as file
// descriptors with the message.
type SetIRQs struct {
	Data, Action        uint32
	Index, Start, Count uint32
	// Bools has a byte for each vector if Data is IRQDataBool.
	Bools []byte
}

const setIRQsSize = 20

// Append appends the payload to b.
func (m SetIRQs) Append(b []byte) []byte {
	b = encode(b, []uint32{uint32(setIRQsSize + len(m.Bools)), m.Data | m.Action, m.Index, m.Start, m.Count})
	return append(b, m.Bools...)
}

// DecodeSetIRQs reads a request. Start+Count does not wrap. Count is zero only
// where that means something: no data, trigger, from vector 0 on, which
// disconnects all vectors of the index.
func DecodeSetIRQs(p []byte) (SetIRQs, error) {
	const c = CommandSetIRQs
	w, err := decode[[setIRQsSize / 4]uint32](c, p)
	if err != nil {
		return SetIRQs{}, err
	}
	flags := w[1]
	m := SetIRQs{Data: flags & irqData, Action: flags & irqAction, Index: w[2], Start: w[3], Count: w[4]}
	if flags&^(irqData|irqAction) != 0 {
		return m, Invalid(c, "flags", flags, "bits 6 to 31 are reserved")
	}
	if !oneBit(m.Data) || !oneBit(m.Action) {
		return m, Invalid(c, "flags", flags, "want one kind of data (bits 0 to 2) and one action (bits 3 to 5)")
	}
	if m.Start+m.Count < m.Start {
		return m, Invalid(c, "count", m.Count, "from vector %d on it wraps", m.Start)
	}
	if m.Count == 0 && (m.Start != 0 || m.Data != IRQDataNone || m.Action != IRQActionTrigger) {
		return m, Invalid(c, "count", m.Count, "zero is for disabling an index: no data, trigger, start 0")
	}
	rest := p[setIRQsSize:]
	if m.Data == IRQDataBool {
		m.Bools = rest
	} else if len(rest) != 0 {
		return m, Invalid(c, "size", HeaderSize+len(p), "only bools follow the structure")
	}
	if m.Data == IRQDataBool && uint64(len(rest)) != uint64(m.Count) {
		return m, Invalid(c, "count", m.Count, "the message has %d bools", len(rest))
	}
	return m, nil
}

func oneBit(v uint32) bool { return v != 0 && v&(v-1) == 0 }
