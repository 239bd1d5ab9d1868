package kernel

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// headersVariable names a folder of kernel headers to use instead of the
// compiler's own. Everything must then be found there.
const headersVariable = "TRAPEZE_KERNEL_HEADERS"

// layout says what a structure of ours must look like in C.
type layout struct {
	name   string
	size   uintptr
	grows  bool // later kernels append fields
	fields map[string]uintptr
}

// abi is a part of the kernel's interface that came at one time.
type abi struct {
	name, header string
	structs      []layout
	constants    map[string]uint64
}

var abis = []abi{
	{name: "vfio", header: "linux/vfio.h", structs: []layout{
		{"struct vfio_group_status", unsafe.Sizeof(groupStatus{}), false, map[string]uintptr{
			"argsz": unsafe.Offsetof(groupStatus{}.argsz), "flags": unsafe.Offsetof(groupStatus{}.flags)}},
		{"struct vfio_device_info", unsafe.Sizeof(deviceInfo{}), true, map[string]uintptr{
			"argsz": unsafe.Offsetof(deviceInfo{}.argsz), "flags": unsafe.Offsetof(deviceInfo{}.flags),
			"num_regions": unsafe.Offsetof(deviceInfo{}.numRegions), "num_irqs": unsafe.Offsetof(deviceInfo{}.numIRQs),
			"cap_offset": unsafe.Offsetof(deviceInfo{}.capOffset)}},
		{"struct vfio_region_info", unsafe.Sizeof(regionInfo{}), false, map[string]uintptr{
			"argsz": unsafe.Offsetof(regionInfo{}.argsz), "flags": unsafe.Offsetof(regionInfo{}.flags),
			"index": unsafe.Offsetof(regionInfo{}.index), "cap_offset": unsafe.Offsetof(regionInfo{}.capOffset),
			"size": unsafe.Offsetof(regionInfo{}.size), "offset": unsafe.Offsetof(regionInfo{}.offset)}},
		{"struct vfio_info_cap_header", unsafe.Sizeof(capHeader{}), false, map[string]uintptr{
			"id": unsafe.Offsetof(capHeader{}.id), "version": unsafe.Offsetof(capHeader{}.version), "next": unsafe.Offsetof(capHeader{}.next)}},
		// The two lists that rangesCap reads, and what they hold.
		{"struct vfio_region_info_cap_sparse_mmap", 16, false, map[string]uintptr{"nr_areas": 8, "areas": 16}},
		{"struct vfio_region_sparse_mmap_area", 16, false, map[string]uintptr{"offset": 0, "size": 8}},
		{"struct vfio_iommu_type1_info_cap_iova_range", 16, false, map[string]uintptr{"nr_iovas": 8, "iova_ranges": 16}},
		{"struct vfio_iova_range", unsafe.Sizeof(iovaRange{}), false, map[string]uintptr{
			"start": unsafe.Offsetof(iovaRange{}.start), "end": unsafe.Offsetof(iovaRange{}.last)}},
		{"struct vfio_iommu_type1_info_dma_avail", 12, false, map[string]uintptr{"avail": 8}},
		{"struct vfio_irq_info", unsafe.Sizeof(irqInfo{}), false, map[string]uintptr{
			"argsz": unsafe.Offsetof(irqInfo{}.argsz), "flags": unsafe.Offsetof(irqInfo{}.flags),
			"index": unsafe.Offsetof(irqInfo{}.index), "count": unsafe.Offsetof(irqInfo{}.count)}},
		{"struct vfio_irq_set", unsafe.Sizeof(irqSet{}), false, map[string]uintptr{
			"argsz": unsafe.Offsetof(irqSet{}.argsz), "flags": unsafe.Offsetof(irqSet{}.flags), "index": unsafe.Offsetof(irqSet{}.index),
			"start": unsafe.Offsetof(irqSet{}.start), "count": unsafe.Offsetof(irqSet{}.count), "data": unsafe.Sizeof(irqSet{})}},
		{"struct vfio_iommu_type1_info", unsafe.Sizeof(iommuInfo{}), true, map[string]uintptr{
			"argsz": unsafe.Offsetof(iommuInfo{}.argsz), "flags": unsafe.Offsetof(iommuInfo{}.flags),
			"iova_pgsizes": unsafe.Offsetof(iommuInfo{}.pageSizes), "cap_offset": unsafe.Offsetof(iommuInfo{}.capOffset)}},
		{"struct vfio_iommu_type1_dma_map", unsafe.Sizeof(dmaMap{}), false, map[string]uintptr{
			"argsz": unsafe.Offsetof(dmaMap{}.argsz), "flags": unsafe.Offsetof(dmaMap{}.flags), "vaddr": unsafe.Offsetof(dmaMap{}.vaddr),
			"iova": unsafe.Offsetof(dmaMap{}.iova), "size": unsafe.Offsetof(dmaMap{}.size)}},
		{"struct vfio_iommu_type1_dma_unmap", unsafe.Sizeof(dmaUnmap{}), false, map[string]uintptr{
			"argsz": unsafe.Offsetof(dmaUnmap{}.argsz), "flags": unsafe.Offsetof(dmaUnmap{}.flags),
			"iova": unsafe.Offsetof(dmaUnmap{}.iova), "size": unsafe.Offsetof(dmaUnmap{}.size)}},
	}, constants: map[string]uint64{
		"VFIO_GET_API_VERSION": vfioGetAPIVersion, "VFIO_CHECK_EXTENSION": vfioCheckExtension, "VFIO_SET_IOMMU": vfioSetIOMMU,
		"VFIO_GROUP_GET_STATUS": vfioGroupGetStatus, "VFIO_GROUP_SET_CONTAINER": vfioGroupSetContainer,
		"VFIO_GROUP_GET_DEVICE_FD": vfioGroupGetDeviceFD, "VFIO_DEVICE_GET_INFO": vfioDeviceGetInfo,
		"VFIO_DEVICE_GET_REGION_INFO": vfioDeviceGetRegionInfo, "VFIO_DEVICE_GET_IRQ_INFO": vfioDeviceGetIRQInfo,
		"VFIO_DEVICE_SET_IRQS": vfioDeviceSetIRQs, "VFIO_DEVICE_RESET": vfioDeviceReset,

		"VFIO_IOMMU_GET_INFO": vfioIOMMUGetInfo, "VFIO_IOMMU_MAP_DMA": vfioIOMMUMapDMA, "VFIO_IOMMU_UNMAP_DMA": vfioIOMMUUnmapDMA,
		"VFIO_API_VERSION": vfioAPIVersion, "VFIO_TYPE1v2_IOMMU": vfioType1v2IOMMU, "VFIO_NOIOMMU_IOMMU": vfioNoIOMMU,
		"VFIO_GROUP_FLAGS_VIABLE": groupViable, "VFIO_GROUP_FLAGS_CONTAINER_SET": groupContainerSet,
		"VFIO_DEVICE_FLAGS_RESET": deviceFlagReset, "VFIO_DEVICE_FLAGS_PCI": deviceFlagPCI,
		"VFIO_REGION_INFO_FLAG_READ": uint64(vfio.RegionRead), "VFIO_REGION_INFO_FLAG_WRITE": uint64(vfio.RegionWrite),
		"VFIO_REGION_INFO_FLAG_MMAP": uint64(vfio.RegionMmap), "VFIO_REGION_INFO_FLAG_CAPS": regionFlagCaps,
		"VFIO_REGION_INFO_CAP_SPARSE_MMAP": regionCapSparseMmap, "VFIO_REGION_INFO_CAP_MSIX_MAPPABLE": regionCapMSIX,
		"VFIO_PCI_BAR0_REGION_INDEX": vfio.RegionBAR0, "VFIO_PCI_BAR2_REGION_INDEX": vfio.RegionBAR2,
		"VFIO_PCI_BAR4_REGION_INDEX": vfio.RegionBAR4, "VFIO_PCI_ROM_REGION_INDEX": vfio.RegionROM,
		"VFIO_PCI_CONFIG_REGION_INDEX": vfio.RegionConfig,
		"VFIO_PCI_INTX_IRQ_INDEX":      vfio.IRQINTx, "VFIO_PCI_MSI_IRQ_INDEX": vfio.IRQMSI, "VFIO_PCI_MSIX_IRQ_INDEX": vfio.IRQMSIX,
		"VFIO_PCI_ERR_IRQ_INDEX": vfio.IRQErr, "VFIO_PCI_REQ_IRQ_INDEX": vfio.IRQReq,
		"VFIO_IRQ_INFO_EVENTFD": uint64(vfio.IRQEventfd), "VFIO_IRQ_INFO_MASKABLE": uint64(vfio.IRQMaskable),
		"VFIO_IRQ_INFO_AUTOMASKED": uint64(vfio.IRQAutomasked), "VFIO_IRQ_INFO_NORESIZE": uint64(vfio.IRQNoResize),
		"VFIO_IRQ_SET_DATA_NONE": irqSetDataNone, "VFIO_IRQ_SET_DATA_EVENTFD": irqSetDataEventfd,
		"VFIO_IRQ_SET_ACTION_TRIGGER": irqSetActionTrigger,
		"VFIO_IOMMU_INFO_PGSIZES":     iommuInfoPageSizes, "VFIO_IOMMU_INFO_CAPS": iommuInfoCaps,
		"VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE": iommuCapIOVARange, "VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL": iommuCapDMAAvailable,
		"VFIO_DMA_MAP_FLAG_READ": dmaMapRead, "VFIO_DMA_MAP_FLAG_WRITE": dmaMapWrite,
	}},
	{name: "vfio of Linux 6.6", header: "linux/vfio.h", structs: []layout{
		{"struct vfio_device_bind_iommufd", sizeOfBindWithoutUUID, true, map[string]uintptr{
			"argsz": unsafe.Offsetof(bindIOMMUFD{}.argsz), "flags": unsafe.Offsetof(bindIOMMUFD{}.flags),
			"iommufd": unsafe.Offsetof(bindIOMMUFD{}.iommufd), "out_devid": unsafe.Offsetof(bindIOMMUFD{}.devID)}},
		{"struct vfio_device_attach_iommufd_pt", unsafe.Sizeof(attachPT{}), true, map[string]uintptr{
			"argsz": unsafe.Offsetof(attachPT{}.argsz), "flags": unsafe.Offsetof(attachPT{}.flags), "pt_id": unsafe.Offsetof(attachPT{}.pageT)}},
	}, constants: map[string]uint64{
		"VFIO_DEVICE_BIND_IOMMUFD": vfioDeviceBindIOMMUFD, "VFIO_DEVICE_ATTACH_IOMMUFD_PT": vfioDeviceAttachPT,
	}},
	{name: "vfio of Linux 6.17", header: "linux/vfio.h", structs: []layout{
		{"struct vfio_device_bind_iommufd", unsafe.Sizeof(bindIOMMUFD{}), true, map[string]uintptr{
			"token_uuid_ptr": unsafe.Offsetof(bindIOMMUFD{}.token)}},
	}, constants: map[string]uint64{"VFIO_DEVICE_BIND_FLAG_TOKEN": bindFlagToken}},
	{name: "iommufd", header: "linux/iommufd.h", structs: []layout{
		{"struct iommu_destroy", unsafe.Sizeof(destroy{}), false, map[string]uintptr{
			"size": unsafe.Offsetof(destroy{}.size), "id": unsafe.Offsetof(destroy{}.id)}},
		{"struct iommu_ioas_alloc", unsafe.Sizeof(ioasAlloc{}), false, map[string]uintptr{
			"size": unsafe.Offsetof(ioasAlloc{}.size), "flags": unsafe.Offsetof(ioasAlloc{}.flags), "out_ioas_id": unsafe.Offsetof(ioasAlloc{}.ioas)}},
		{"struct iommu_iova_range", unsafe.Sizeof(iovaRange{}), false, map[string]uintptr{
			"start": unsafe.Offsetof(iovaRange{}.start), "last": unsafe.Offsetof(iovaRange{}.last)}},
		{"struct iommu_ioas_iova_ranges", unsafe.Sizeof(ioasIOVARanges{}), false, map[string]uintptr{
			"size": unsafe.Offsetof(ioasIOVARanges{}.size), "ioas_id": unsafe.Offsetof(ioasIOVARanges{}.ioas),
			"num_iovas": unsafe.Offsetof(ioasIOVARanges{}.num), "allowed_iovas": unsafe.Offsetof(ioasIOVARanges{}.ranges),
			"out_iova_alignment": unsafe.Offsetof(ioasIOVARanges{}.alignment)}},
		{"struct iommu_ioas_map", unsafe.Sizeof(ioasMap{}), false, map[string]uintptr{
			"size": unsafe.Offsetof(ioasMap{}.size), "flags": unsafe.Offsetof(ioasMap{}.flags), "ioas_id": unsafe.Offsetof(ioasMap{}.ioas),
			"user_va": unsafe.Offsetof(ioasMap{}.userVA), "length": unsafe.Offsetof(ioasMap{}.length), "iova": unsafe.Offsetof(ioasMap{}.iova)}},
		{"struct iommu_ioas_unmap", unsafe.Sizeof(ioasUnmap{}), false, map[string]uintptr{
			"size": unsafe.Offsetof(ioasUnmap{}.size), "ioas_id": unsafe.Offsetof(ioasUnmap{}.ioas),
			"iova": unsafe.Offsetof(ioasUnmap{}.iova), "length": unsafe.Offsetof(ioasUnmap{}.length)}},
	}, constants: map[string]uint64{
		"IOMMU_DESTROY": iommuDestroy, "IOMMU_IOAS_ALLOC": iommuIOASAlloc, "IOMMU_IOAS_IOVA_RANGES": iommuIOASIOVARanges, "IOMMU_IOAS_MAP": iommuIOASMap,
		"IOMMU_IOAS_UNMAP": iommuIOASUnmap, "IOMMU_IOAS_MAP_FIXED_IOVA": ioasMapFixedIOVA,
		"IOMMU_IOAS_MAP_WRITEABLE": ioasMapWriteable, "IOMMU_IOAS_MAP_READABLE": ioasMapReadable,
	}},
}

// TestABI compiles a C program that prints sizes, offsets and constants of the
// kernel's headers, and compares.
func TestABI(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler: install gcc and libc6-dev")
	}
	for _, a := range abis {
		t.Run(a.name, func(t *testing.T) {
			values := a.ask(t, cc)
			checked := 0
			check := func(expression string, got uint64, mayBeMore bool) {
				want, ok := values[expression]
				checked++
				should.Hold(t, ok && (got == want || (mayBeMore && want > got)),
					"%s is %d here and %d in the kernel's header", expression, got, want)
			}
			for _, s := range a.structs {
				check("sizeof("+s.name+")", uint64(s.size), s.grows)
				for field, offset := range s.fields {
					check("offsetof("+s.name+", "+field+")", uint64(offset), false)
				}
			}
			for name, v := range a.constants {
				check(name, v, false)
			}
			t.Logf("%d sizes, offsets and constants checked", checked)
		})
	}
}

// ask has the compiler evaluate the expressions of a part.
func (a abi) ask(t *testing.T, cc string) map[string]uint64 {
	t.Helper()
	var expressions []string
	for _, s := range a.structs {
		expressions = append(expressions, "sizeof("+s.name+")")
		for field := range s.fields {
			expressions = append(expressions, "offsetof("+s.name+", "+field+")")
		}
	}
	for name := range a.constants {
		expressions = append(expressions, name)
	}
	var source bytes.Buffer
	fmt.Fprintf(&source, "#include <stdio.h>\n#include <stddef.h>\n#include <%s>\nint main(void) {\n", a.header)
	for _, e := range expressions {
		fmt.Fprintf(&source, "printf(\"%%s=%%llu\\n\", %q, (unsigned long long)(%s));\n", e, e)
	}
	source.WriteString("return 0; }\n")

	dir := t.TempDir()
	program := filepath.Join(dir, "probe")
	must.OK(t, os.WriteFile(program+".c", source.Bytes(), 0o644))
	args := []string{"-o", program, program + ".c"}
	headers := os.Getenv(headersVariable)
	if headers != "" {
		args = append([]string{"-I", headers}, args...)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		text := fmt.Sprintf("%s is missing or older than this part: %v\n%.500s", a.header, err, out)
		must.Be(t, headers, "", "%v", text)
		t.Skip(text, "install linux-libc-dev of a newer release, or set "+headersVariable)
	}
	out := must.Get(exec.Command(program).Output())(t)
	values := map[string]uint64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		n := must.Get(strconv.ParseUint(value, 10, 64))(t)
		values[name] = n
	}
	return values
}
