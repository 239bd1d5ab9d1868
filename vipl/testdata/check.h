/* What the test programs have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vipl.h"

static int failures;

#define CHECK(condition)                                                                       \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition);    \
			failures++;                                                            \
		}                                                                              \
	} while (0)

/* Says which code came, which CHECK does not. */
#define IS(call, want)                                                                         \
	do {                                                                                   \
		int is_ = (int)(call);                                                         \
		if (is_ != (int)(want)) {                                                      \
			fprintf(stderr, "%s:%d: %s is %d, want %s\n", __FILE__, __LINE__, #call, is_, #want); \
			failures++;                                                            \
		}                                                                              \
	} while (0)

#define OK(call) IS(call, VIP_SUCCESS)

/* Ends the program if what the rest needs does not succeed. */
#define NEED(call)                                                                             \
	do {                                                                                   \
		int need_ = (int)(call);                                                       \
		if (need_ != VIP_SUCCESS) {                                                    \
			fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, need_); \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

/* Handlers that nobody calls. */
static inline void never(VIP_PVOID c, VIP_NIC_HANDLE n, VIP_VI_HANDLE v, VIP_DESCRIPTOR *d)
{
	fprintf(stderr, "a handler was called: %p %p %p %p\n", c, n, v, (void *)d);
	exit(1);
}

static inline void never_cq(VIP_PVOID c, VIP_NIC_HANDLE n, VIP_VI_HANDLE v, VIP_BOOLEAN r)
{
	fprintf(stderr, "a handler was called: %p %p %p %d\n", c, n, v, r);
	exit(1);
}

#define PATIENCE 60000 /* ms */

/* Room for any address of a NIC. */
union any_address {
	VIP_NET_ADDRESS net;
	char room[64];
};

static inline void set_address(union any_address *a, const VIP_NIC_ATTRIBUTES *nic, const char *point)
{
	a->net.HostAddressLen = nic->NicAddressLen;
	a->net.DiscriminatorLen = (VIP_UINT16)strlen(point);
	memcpy(a->net.HostAddress, nic->LocalNicAddress, nic->NicAddressLen);
	memcpy(a->net.HostAddress + nic->NicAddressLen, point, strlen(point));
}

/* A NIC with memory: descriptors of 64 bytes first, data from 8192 on. */
struct side {
	VIP_NIC_HANDLE nic;
	VIP_NIC_ATTRIBUTES about;
	VIP_PROTECTION_HANDLE ptag;
	VIP_MEM_HANDLE memory;
	char *start;
};

#define SIDE_BYTES (64 * 1024)
#define DATA 8192

static inline void open_side(struct side *s, const char *device)
{
	VIP_MEM_ATTRIBUTES a = {0};

	NEED(VipOpenNic(device, &s->nic));
	NEED(VipQueryNic(s->nic, &s->about));
	NEED(VipCreatePtag(s->nic, &s->ptag));
	s->start = aligned_alloc(4096, SIDE_BYTES);
	memset(s->start, 0, SIDE_BYTES);
	a.Ptag = s->ptag;
	NEED(VipRegisterMem(s->nic, s->start, SIDE_BYTES, &a, &s->memory));
}

static inline void close_side(struct side *s)
{
	OK(VipDeregisterMem(s->nic, s->start, s->memory));
	OK(VipDestroyPtag(s->nic, s->ptag));
	OK(VipCloseNic(s->nic));
	free(s->start);
}

static inline VIP_VI_HANDLE make_vi(struct side *s, VIP_CQ_HANDLE send, VIP_CQ_HANDLE recv)
{
	VIP_VI_ATTRIBUTES a = {0};
	VIP_VI_HANDLE vi;

	a.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	a.MaxTransferSize = 32768;
	a.Ptag = s->ptag;
	NEED(VipCreateVi(s->nic, &a, send, recv, &vi));
	return vi;
}

/* What VipQueryVi says, which wants to say it all. */
static inline VIP_VI_STATE query_vi(VIP_VI_HANDLE vi, VIP_BOOLEAN *sends, VIP_BOOLEAN *receives)
{
	VIP_VI_ATTRIBUTES a;
	VIP_VI_STATE state = 77;

	OK(VipQueryVi(vi, &state, &a, sends, receives));
	return state;
}

static inline VIP_VI_STATE state_of(VIP_VI_HANDLE vi)
{
	VIP_BOOLEAN sends, receives;

	return query_vi(vi, &sends, &receives);
}

/* The i-th descriptor, of bytes bytes at offset of the data. */
static inline VIP_DESCRIPTOR *describe(struct side *s, int i, size_t offset, VIP_UINT32 bytes)
{
	VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)(s->start + 64 * i);

	memset(d, 0, sizeof(*d));
	d->CS.SegCount = 1;
	d->CS.Length = bytes;
	d->DS[0].Local.Data.Address = s->start + DATA + offset;
	d->DS[0].Local.Handle = s->memory;
	d->DS[0].Local.Length = bytes;
	return d;
}

#endif
