// nff-go's Go code reads and writes members of DPDK's rings and buffers. cgo has to find
// them by the names of DPDK 19, and finds nothing inside a union without a name, where
// 22.11 has put some. The structures here lie over DPDK's own and have what nff-go uses
// under the names that it uses; offsets are DPDK's, computed by the compiler.
#ifndef TRAPEZE_VIEWS_H
#define TRAPEZE_VIEWS_H

#include <stddef.h>
#include <stdint.h>

// All that uses the structures by their own names comes first.
#include <rte_ethdev.h>
#include <rte_ip_frag.h>
#include <rte_lpm.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define GAP(type, from, to) (offsetof(type, to) - END_OF(type, from))
#define SAME(type, member, view) \
	_Static_assert(offsetof(type, member) == offsetof(struct view, member) && \
		sizeof(((type *)0)->member) == sizeof(((struct view *)0)->member), #view " " #member)

typedef struct rte_ring trapeze_rte_ring;

struct trapeze_ring {
	char gap0[offsetof(trapeze_rte_ring, size)] __attribute__((aligned(_Alignof(trapeze_rte_ring))));
	uint32_t size, mask;
	char gap1[GAP(trapeze_rte_ring, mask, prod)];
	struct rte_ring_headtail prod;
	char gap2[GAP(trapeze_rte_ring, prod, cons)];
	struct rte_ring_headtail cons;
	char gap3[sizeof(trapeze_rte_ring) - END_OF(trapeze_rte_ring, cons)];
};

SAME(trapeze_rte_ring, size, trapeze_ring);
SAME(trapeze_rte_ring, mask, trapeze_ring);
SAME(trapeze_rte_ring, prod, trapeze_ring);
SAME(trapeze_rte_ring, cons, trapeze_ring);
_Static_assert(sizeof(struct trapeze_ring) == sizeof(trapeze_rte_ring), "ring"); // its elements follow

typedef struct rte_mbuf trapeze_rte_mbuf;

struct trapeze_mbuf {
	void *buf_addr __attribute__((aligned(_Alignof(trapeze_rte_mbuf))));
	char gap0[GAP(trapeze_rte_mbuf, buf_addr, data_off)];
	uint16_t data_off;
	char gap1[GAP(trapeze_rte_mbuf, data_off, ol_flags)];
	uint64_t ol_flags;
	char gap2[GAP(trapeze_rte_mbuf, ol_flags, packet_type)];
	uint32_t packet_type, pkt_len;
	uint16_t data_len;
	char gap3[GAP(trapeze_rte_mbuf, data_len, buf_len)];
	uint16_t buf_len;
	char gap4[GAP(trapeze_rte_mbuf, buf_len, next)];
	struct trapeze_mbuf *next;
	// cgo counts unions without names from 0. nff-go knows the one of the lengths of
	// headers as number 5.
	union { char empty0[0]; };
	union { char empty1[0]; };
	union { char empty2[0]; };
	union { char empty3[0]; };
	union { char empty4[0]; };
	union {
		uint64_t tx_offload;
		struct {
			uint64_t l2_len : RTE_MBUF_L2_LEN_BITS, l3_len : RTE_MBUF_L3_LEN_BITS;
		};
	};
	// A time stamp has no place of its own in 22.11: nff-go's HWRXPacketsTimestamp does not
	// work. This is memory that no one else uses in nff-go.
	char gap5[sizeof(trapeze_rte_mbuf) - sizeof(uint64_t) - END_OF(trapeze_rte_mbuf, tx_offload)];
	uint64_t timestamp;
};

SAME(trapeze_rte_mbuf, buf_addr, trapeze_mbuf);
SAME(trapeze_rte_mbuf, data_off, trapeze_mbuf);
SAME(trapeze_rte_mbuf, ol_flags, trapeze_mbuf);
SAME(trapeze_rte_mbuf, packet_type, trapeze_mbuf);
SAME(trapeze_rte_mbuf, pkt_len, trapeze_mbuf);
SAME(trapeze_rte_mbuf, data_len, trapeze_mbuf);
SAME(trapeze_rte_mbuf, buf_len, trapeze_mbuf);
SAME(trapeze_rte_mbuf, next, trapeze_mbuf);
SAME(trapeze_rte_mbuf, tx_offload, trapeze_mbuf);
_Static_assert(sizeof(struct trapeze_mbuf) == sizeof(trapeze_rte_mbuf), "mbuf"); // the frame follows

#define rte_ring trapeze_ring
#define rte_mbuf trapeze_mbuf

#endif
