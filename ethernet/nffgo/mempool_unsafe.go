//go:build nffgo

package nffgo

// #include <rte_mbuf.h>
//
// static unsigned outstanding(const struct rte_mbuf *m)
// {
//	return rte_mempool_in_use_count(m->pool);
// }
//
// static unsigned size(const struct rte_mbuf *m)
// {
//	return m->pool->size;
// }
import "C"

import (
	"unsafe"

	"github.com/intel-go/nff-go/packet"
)

func mbuf(p *packet.Packet) *C.struct_rte_mbuf {
	return (*C.struct_rte_mbuf)(unsafe.Pointer(p.CMbuf))
}

// outstanding returns how many buffers of the pool that a packet is from are in use. It
// takes some hundred nanoseconds.
func outstanding(p *packet.Packet) int { return int(C.outstanding(mbuf(p))) }

// poolSize returns how many buffers that pool has.
func poolSize(p *packet.Packet) int { return int(C.size(mbuf(p))) }
