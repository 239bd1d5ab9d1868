// Package drivers has ethernet.Open know all drivers of this repository. Import it for that alone:
//
//		import _ "github.com/trapeze-nic/trapeze/ethernet/drivers"
//
//	  - igb drives Intel's 82576, 82580, I350, I354, I210 and I211, and the virtual functions of the
//	    82576 and the I350: pci:0000:03:10.0
//	  - virtio drives virtio network devices, version 1 and newer. They are PCI functions, or behind a
//	    back end of vhost-user: vhost-user:/run/vhost0.sock
//	  - afxdp drives any Ethernet interface through the kernel's driver: afxdp:eth0
//
// docs/nics.md says on which NICs each was run.
package drivers

import (
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/afxdp"  // afxdp:
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/igb"    // pci:
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/mqnic"  // pci: and vfio-user:
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/virtio" // pci: and vhost-user:
)
