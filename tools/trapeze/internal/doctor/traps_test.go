package doctor_test

// trap is a known way to fail with VFIO.
type trap struct {
	number int
	// symptom is what one sees.
	symptom string
	// unseen says why no check finds it; empty if one does. Such traps are a
	// matter of the program that drives the device.
	unseen string
}

// traps are the known ways to fail, by number from 1.
var traps = []trap{
	{1, "group not viable: EPERM at SET_CONTAINER", ""},
	{2, "ENOMEM at MAP_DMA: limit of locked memory", ""},
	{3, "ENOSPC at MAP_DMA: no mapping entries left", ""},
	{4, "EINVAL at MAP_DMA: address beyond the IOMMU's width, or reserved", ""},
	{5, "EINVAL at MAP_DMA: no IOMMU was set", "it is the order of calls in a program"},
	{6, "EINVAL at mmap of a BAR: table page left out, or smaller than a page", ""},
	{7, "no DMA and no error: bus mastering is off", ""},
	{8, "reads give all ones, SIGBUS: asleep or gone", ""},
	{9, "no interrupts after a reset, or only one", ""},
	{10, "everything is in one group: no ACS", ""},
	{11, "no huge pages, or on another NUMA node", ""},
	{12, "EINVAL at bind: no IOMMU group", ""},
	{13, "EBUSY at open: somebody else holds it", ""},
	{14, "ENOENT at open: not bound, no module, or no node in the container", ""},
	{15, "ENOTTY: no container interface", ""},
	{16, "EINVAL or EPERM at hot reset: others on the bus", ""},
	{17, "EPERM at mmap through sysfs: lockdown", ""},
	{18, "garbage or DMA faults: the device has fewer address bits", ""},
	{19, "removal hangs: nobody listens to requests for the device", ""},
	{20, "EACCES: a VF token is required", ""},
	{21, "EBUSY at bind: SR-IOV is enabled", ""},
	{22, "memory use doubles", "it is how a program maps its memory: private instead of shared"},
	{23, "EINVAL at UNMAP_DMA", "it is a flag that a program passes"},
	{24, "INTx never arrives", ""},
	{25, "unbinding hangs after a crash", ""},
	{26, "the limit of locked memory counts BARs", ""},
}
