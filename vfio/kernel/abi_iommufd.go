package kernel

import "structs"

// Structures of linux/iommufd.h, see also abi_unsafe.go.

type destroy struct {
	_        structs.HostLayout
	size, id uint32
}

type ioasAlloc struct {
	_                 structs.HostLayout
	size, flags, ioas uint32
}

type ioasMap struct {
	_                    structs.HostLayout
	size, flags, ioas, _ uint32
	userVA, length, iova uint64
}

type ioasUnmap struct {
	_            structs.HostLayout
	size, ioas   uint32
	iova, length uint64
}
