package kernel

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// put copies a structure over the start of an argument.
func put[T any](arg []byte, s T) { copy(arg, bytesOf(&s)) }

func (k *fake) status(h *handle, arg []byte) (int, error) {
	s, ok := load[groupStatus](arg)
	if !ok || s.argsz < sizeOf(&s) {
		return 0, unix.EINVAL
	}
	if k.viable[h.group] {
		s.flags |= groupViable
	}
	if h.attached != nil {
		s.flags |= groupContainerSet
	}
	put(arg, s)
	return 0, nil
}

func (k *fake) setContainer(h *handle, arg []byte) (int, error) {
	c := k.fds[int(int32(binary.NativeEndian.Uint32(arg)))]
	if c == nil || c.kind != "container" || h.attached != nil {
		return 0, unix.EINVAL
	}
	if !k.viable[h.group] {
		return 0, unix.EPERM
	}
	h.attached = c
	c.groups++
	return 0, nil
}

func (k *fake) getDevice(h *handle, arg []byte) (int, error) {
	if h.attached == nil || !h.attached.iommuSet {
		return 0, unix.EINVAL
	}
	name, _, _ := strings.Cut(string(bytes.TrimRight(arg, "\x00")), " vf_token=")
	f := k.functions[name]
	if f == nil {
		return 0, unix.ENODEV
	}
	if f.token != "" && !strings.HasSuffix(string(arg), " vf_token="+f.token+"\x00") {
		return 0, unix.EACCES
	}
	return k.add(&handle{kind: "device", function: f}), nil
}

// withCaps writes head and the capabilities behind it, if there is room, and how
// much room they take.
func withCaps(arg, head []byte, caps [][]byte, capOffset int) {
	full := slices.Clone(head)
	for i, c := range caps {
		c = slices.Clone(c)
		if i+1 < len(caps) {
			binary.NativeEndian.PutUint32(c[4:], uint32(len(full)+len(c)))
		}
		full = append(full, c...)
	}
	binary.NativeEndian.PutUint32(full, uint32(len(full)))
	if len(caps) > 0 && len(full) <= len(arg) {
		binary.NativeEndian.PutUint32(full[capOffset:], uint32(len(head)))
		copy(arg, full)
		return
	}
	copy(arg, full[:len(head)])
}

// rangesCapability is a capability with a list of pairs.
func rangesCapability(id uint16, pairs ...[2]uint64) []byte {
	b := binary.NativeEndian.AppendUint16(nil, id)
	b = binary.NativeEndian.AppendUint16(b, 1)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(pairs)))
	b = binary.NativeEndian.AppendUint32(b, 0)
	for _, p := range pairs {
		b = binary.NativeEndian.AppendUint64(b, p[0])
		b = binary.NativeEndian.AppendUint64(b, p[1])
	}
	return b
}

func (k *fake) getInfo(h *handle, arg []byte) (int, error) {
	if !h.iommuSet {
		return 0, unix.EINVAL
	}
	info, _ := load[iommuInfo](arg)
	info.flags, info.pageSizes = iommuInfoPageSizes, k.iommu.pages
	var caps [][]byte
	if !k.iommu.old {
		info.flags |= iommuInfoCaps
		var pairs [][2]uint64
		for _, r := range k.iommu.ranges {
			pairs = append(pairs, [2]uint64{r.start, r.last})
		}
		caps = append(caps, rangesCapability(iommuCapIOVARange, pairs...))
		if k.iommu.limit > 0 {
			c := []byte{iommuCapDMAAvailable, 0, 1, 0, 0, 0, 0, 0}
			caps = append(caps, binary.NativeEndian.AppendUint32(c, uint32(k.iommu.limit-len(h.space.maps))))
		}
	}
	withCaps(arg, bytesOf(&info), caps, 16)
	return 0, nil
}

// put adds a mapping, as the IOMMU would.
func (k *fake) insert(s *fakeSpace, iova, size uint64) error {
	if s == nil || size == 0 || iova%4096 != 0 || size%4096 != 0 || iova+size < iova {
		return unix.EINVAL
	}
	for at, n := range s.maps {
		if iova < at+n && at < iova+size {
			return unix.EEXIST
		}
	}
	if k.iommu.limit > 0 && len(s.maps) >= k.iommu.limit {
		return unix.ENOSPC
	}
	for _, r := range k.iommu.ranges {
		if iova >= r.start && iova+size-1 <= r.last {
			s.maps[iova] = size
			return nil
		}
	}
	return unix.EINVAL
}

func (k *fake) mapDMA(h *handle, arg []byte) (int, error) {
	m, ok := load[dmaMap](arg)
	if !ok || m.flags&^3 != 0 || m.flags == 0 || m.vaddr == 0 {
		return 0, unix.EINVAL
	}
	return 0, k.insert(h.space, m.iova, m.size)
}

// unmapDMA keeps the rule that flags mean other things than when mapping.
func (k *fake) unmapDMA(h *handle, arg []byte) (int, error) {
	u, ok := load[dmaUnmap](arg)
	if !ok || u.flags != 0 || h.space == nil {
		return 0, unix.EINVAL
	}
	if h.space.maps[u.iova] != u.size {
		u.size = 0
	}
	delete(h.space.maps, u.iova)
	put(arg, u)
	return 0, nil
}

func (k *fake) ioasAlloc(h *handle, arg []byte) (int, error) {
	a, ok := load[ioasAlloc](arg)
	if !ok || a.size != sizeOf(&a) || a.flags != 0 {
		return 0, unix.EINVAL
	}
	if h.spaces == nil {
		h.spaces = map[uint32]*fakeSpace{}
	}
	k.next++
	a.ioas = uint32(k.next)
	h.spaces[a.ioas] = &fakeSpace{maps: map[uint64]uint64{}}
	put(arg, a)
	return 0, nil
}

// destroy refuses to while a device is attached.
func (k *fake) destroy(h *handle, arg []byte) (int, error) {
	d, ok := load[destroy](arg)
	if !ok || d.size != sizeOf(&d) || h.spaces[d.id] == nil {
		return 0, unix.ENOENT
	}
	for _, other := range k.fds {
		if other.bound == h && other.attachTo == d.id {
			return 0, unix.EBUSY
		}
	}
	delete(h.spaces, d.id)
	return 0, nil
}

func (k *fake) ioasMap(h *handle, arg []byte) (int, error) {
	m, ok := load[ioasMap](arg)
	if !ok || m.size != sizeOf(&m) || m.flags&ioasMapFixedIOVA == 0 {
		return 0, unix.EINVAL
	}
	return 0, k.insert(h.spaces[m.ioas], m.iova, m.length)
}

func (k *fake) ioasUnmap(h *handle, arg []byte) (int, error) {
	u, ok := load[ioasUnmap](arg)
	if !ok || u.size != sizeOf(&u) || h.spaces[u.ioas] == nil {
		return 0, unix.EINVAL
	}
	if h.spaces[u.ioas].maps[u.iova] != u.length {
		return 0, unix.ENOENT
	}
	delete(h.spaces[u.ioas].maps, u.iova)
	return 0, nil
}

func (k *fake) attach(h *handle, arg []byte) (int, error) {
	a, ok := load[attachPT](arg)
	if !ok || h.bound == nil || a.flags != 0 || h.bound.spaces[a.pageT] == nil {
		return 0, unix.EINVAL
	}
	h.attachTo = a.pageT
	return 0, nil
}
