package protocol

// RegionIOFDs is both the request and the reply of DEVICE_GET_REGION_IO_FDS. In
// the request only Argsz and Index count. The reply's file descriptors are
// eventfds: a write to a part of a region need not be a message, it can be a
// write to its eventfd.
type RegionIOFDs struct {
	// Argsz in the reply is the room that all of it needs: if that is more than
	// the request's, there are no entries.
	Argsz uint32
	Index uint32
	// Count is the number of entries that there are, sent or not.
	Count   uint32
	Entries []IOEventfd
}

// IOEventfd is a part of a region that has an eventfd.
type IOEventfd struct {
	Offset, Size uint64
	// FD is the eventfd's place among the file descriptors of the reply.
	FD uint32
	// Match says that only writes of the value Value are meant.
	Match bool
	Value uint64
}

const (
	regionIOFDsSize = 16
	ioEventfdSize   = 40
	// Type and flag of an entry (linux/kvm.h has the flag).
	ioTypeEventfd   = 0
	ioFlagDataMatch = 1
)

// ReplySize is the size in bytes of the whole payload.
func (m RegionIOFDs) ReplySize() uint32 { return regionIOFDsSize + ioEventfdSize*m.Count }

// Append appends the payload to b. If not all entries fit room bytes of payload
// they are left out.
func (m RegionIOFDs) Append(b []byte, room uint32) []byte {
	b = appendWords(b, m.Argsz, 0, m.Index, m.Count)
	if m.ReplySize() > room {
		return b
	}
	for _, e := range m.Entries {
		b = order.AppendUint64(b, e.Offset)
		b = order.AppendUint64(b, e.Size)
		flags := uint32(0)
		if e.Match {
			flags = ioFlagDataMatch
		}
		b = appendWords(b, e.FD, ioTypeEventfd, flags, 0)
		b = order.AppendUint64(b, e.Value)
	}
	return b
}

// DecodeRegionIOFDs reads a request.
func DecodeRegionIOFDs(p []byte) (RegionIOFDs, error) {
	const c = CommandRegionIOFDs
	if err := checkArgsz(c, p, regionIOFDsSize); err != nil {
		return RegionIOFDs{}, err
	}
	m := RegionIOFDs{Argsz: order.Uint32(p), Index: order.Uint32(p[8:]), Count: order.Uint32(p[12:])}
	if flags := order.Uint32(p[4:]); flags != 0 {
		return m, Invalid(c, "flags", flags, "want 0")
	}
	if m.Count != 0 {
		return m, Invalid(c, "count", m.Count, "want 0 in a request")
	}
	return m, nil
}

// DecodeRegionIOFDsReply reads a reply that came with fds file descriptors.
// Entries of another type than eventfds are left out; libvfio-user's longer
// entries are not understood.
func DecodeRegionIOFDsReply(p []byte, fds int) (RegionIOFDs, error) {
	const c = CommandRegionIOFDs
	if len(p) < regionIOFDsSize {
		return RegionIOFDs{}, Invalid(c, "size", HeaderSize+len(p), "want at least %#x", HeaderSize+regionIOFDsSize)
	}
	m := RegionIOFDs{Argsz: order.Uint32(p), Index: order.Uint32(p[8:]), Count: order.Uint32(p[12:])}
	p = p[regionIOFDsSize:]
	if len(p) == 0 {
		return m, nil
	}
	if uint64(len(p)) != uint64(m.Count)*ioEventfdSize {
		return m, Invalid(c, "count", m.Count, "the entries have %#x bytes", len(p))
	}
	for ; len(p) > 0; p = p[ioEventfdSize:] {
		e := IOEventfd{Offset: order.Uint64(p), Size: order.Uint64(p[8:]), FD: order.Uint32(p[16:]),
			Match: order.Uint32(p[24:])&ioFlagDataMatch != 0, Value: order.Uint64(p[32:])}
		if order.Uint32(p[20:]) != ioTypeEventfd {
			continue
		}
		if uint64(e.FD) >= uint64(fds) {
			return m, Invalid(c, "fd_index", e.FD, "the message has %d file descriptors", fds)
		}
		if err := checkRange(c, "offset", e.Offset, e.Size); err != nil {
			return m, err
		}
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}
