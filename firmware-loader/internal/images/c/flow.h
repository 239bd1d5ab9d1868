/* The flow that a frame belongs to. */
#ifndef FLOW_H
#define FLOW_H

#include "trapeze.h"

/* Numbers in network order; IPv4 addresses as ::ffff:a.b.c.d (RFC 4291). Ports are
 * 0 unless the protocol is TCP or UDP. */
struct flow {
	u32 source[4], destination[4];
	u32 ports; /* source, destination */
	u8 protocol, zero[3];
};

/* Loads of a little-endian machine. */
#define TYPE_IP4 0x0008
#define TYPE_IP6 0xdd86
#define FRAGMENTED 0xff3f
#define MAPPED 0xffff0000u

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

struct ip4 {
	u8 version, service;
	u16 length, identification, flags;
	u8 ttl, protocol;
	u16 checksum;
	u32 source, destination;
};

struct ip6 {
	u32 class;
	u16 length;
	u8 next, hops;
	u32 source[4], destination[4];
};

struct ethernet {
	u8 addresses[12];
	u16 type;
};

/* Headers behind the Ethernet header are aligned to 2 bytes only. */
TRAPEZE_INLINE u32 word(const void *p)
{
	const u16 *half = p;

	return half[0] | (u32)half[1] << 16;
}

TRAPEZE_INLINE void ports_at(struct flow *flow, const u8 *at, const void *end)
{
	if (flow->protocol != PROTOCOL_TCP && flow->protocol != PROTOCOL_UDP)
		return;
	if ((const void *)(at + 4) <= end)
		flow->ports = word(at);
}

/* Returns how many words of each address the packet has: 1, 4, or 0 if the frame is
 * not of IP. */
TRAPEZE_INLINE int flow_of(struct trapeze_frame *f, struct flow *flow)
{
	void *end = TRAPEZE_END(f);
	struct ethernet *e = TRAPEZE_DATA(f);
	int i;

	__builtin_memset(flow, 0, sizeof(*flow));
	if ((void *)(e + 1) > end)
		return 0;
	if (e->type == TYPE_IP4) {
		struct ip4 *ip = (void *)(e + 1);
		u32 words;

		if ((void *)(ip + 1) > end || ip->version >> 4 != 4)
			return 0;
		words = ip->version & 0xf;
		if (words < 5)
			return 0;
		flow->source[2] = flow->destination[2] = MAPPED;
		flow->source[3] = word(&ip->source);
		flow->destination[3] = word(&ip->destination);
		flow->protocol = ip->protocol;
		if (!(ip->flags & FRAGMENTED))
			ports_at(flow, (u8 *)ip + words * 4, end);
		return 1;
	}
	if (e->type == TYPE_IP6) {
		struct ip6 *ip = (void *)(e + 1);

		if ((void *)(ip + 1) > end)
			return 0;
		for (i = 0; i < 4; i++) {
			flow->source[i] = word(&ip->source[i]);
			flow->destination[i] = word(&ip->destination[i]);
		}
		flow->protocol = ip->next;
		ports_at(flow, (u8 *)(ip + 1), end);
		return 4;
	}
	return 0;
}

#endif
