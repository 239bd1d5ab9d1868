// Package nffgo makes an [ethernet.Port] a source and a sink of flow graphs of nff-go, a
// framework for network functions on DPDK. It is compiled with the build tag nffgo alone,
// as it needs cgo and DPDK; README.md says how.
//
//	in, err := nffgo.Join(port, 0)        // queue 0 of a port
//	frames, err := in.SetReceiver()       // in place of flow.SetReceiver
//	err = flow.SetVectorHandlerDrop(frames, allowed, nil)
//	err = out.SetSender(frames)           // in place of flow.SetSender
//
// A frame is copied once on each way: DPDK's buffers are in DPDK's memory, nff-go lays its
// own structure beside each of them, and the pool of a port is in memory that devices can
// reach. Nothing else crosses: neither tags, hashes and checksums that the port was asked
// for, nor requests of nff-go's (HWTXChecksum), nor packets of several buffers.
//
// # What is lost, and where
//
// nff-go drops what finds no room in a ring between two functions. So a receiver has no
// more buffers in the graph than one ring of the default size holds; frames that come
// meanwhile stay in the port's receive ring, and then in the device. flow.Config.RingSize
// must not be less than its default, 64, and flows of several receivers that are merged
// need that for each. A sender waits while the port's send ring is full, up to Options.Timeout of the
// port. What it cannot send is counted.
//
// # Order
//
// flow.Config.DisableScheduler must be set. nff-go's scheduler runs a function on several
// cores, each of which takes frames when it likes, and gives each copy a core: of a
// receiver, only the first copy receives.
package nffgo
