package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioasRanges writes ranges to where the request points.
func (k *fake) ioasRanges(h *handle, arg []byte) (int, error) {
	r, ok := load[ioasIOVARanges](arg)
	if !ok || r.size != sizeOf(&r) || h.spaces[r.ioas] == nil {
		return 0, unix.EINVAL
	}
	into := unsafe.Slice((*iovaRange)(r.ranges), r.num)
	room := int(r.num)
	r.num, r.alignment = uint32(len(k.iommu.ranges)), 4096
	put(arg, r)
	copy(into, k.iommu.ranges)
	if len(k.iommu.ranges) > room {
		return 0, unix.EMSGSIZE
	}
	return 0, nil
}

// bind gives a device to an iommufd.
func (k *fake) bind(h *handle, arg []byte) (int, error) {
	b := bindIOMMUFD{}
	copy(bytesOf(&b), arg)
	iommufd := k.fds[int(b.iommufd)]
	switch {
	case len(arg) != int(b.argsz) || h.bound != nil || iommufd == nil || iommufd.kind != "iommufd":
		return 0, unix.EINVAL
	case b.flags != 0 && h.function.noTokens:
		return 0, unix.EINVAL
	case h.function.token != "" && (b.flags != bindFlagToken || *(*[16]byte)(b.token) != *token(h.function.token).bytes()):
		return 0, unix.EACCES
	}
	h.bound = iommufd
	b.devID = 1
	copy(arg, bytesOf(&b))
	return 0, nil
}
