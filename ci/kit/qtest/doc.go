// Package qtest gives tests real drivers' devices without hardware: QEMU's models of
// NICs, such as igb and virtio-net-pci, each a [vfio.Device] of its
// own. No guest runs. QEMU's processor sleeps from its first instruction on, and the
// test programs the device: registers and configuration space over QEMU's
// qtest protocol, DMA through memory that both processes map.
//
// [Start] starts a [Machine] with one or several devices, [Machine.Open] takes one as
// a driver does, and [Machine.Connect] joins its network side to a UDP socket: a
// datagram is an Ethernet frame. [Machine.SetLink] pulls the cable, [Machine.Unplug]
// the card.
//
// What is different from hardware behind VFIO:
//   - A register access is a request to another process and takes 30 µs at least,
//     writes too: none is posted. No BAR can be mapped.
//   - Mapped memory is moved into the machine's RAM: see [vfio.Memory.Move]. Devices of
//     one machine can share it, others cannot.
//   - There is an IOMMU, of which [Machine.Fault] tells what it has stopped.
//   - BARs in I/O ports are left out.
//   - Interrupts are MSI-X only. The message is looked for in RAM, so that it takes
//     up to a millisecond to signal the eventfd.
//   - Virtual functions cannot be opened.
package qtest
