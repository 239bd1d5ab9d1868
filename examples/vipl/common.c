/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST 32     /* bytes of a discriminator */
#define PATIENCE 10000 /* ms */

/* Room for any address. */
union address {
	VIP_NET_ADDRESS net;
	char room[sizeof(VIP_NET_ADDRESS) + 6 + LONGEST];
};

void check(const char *what, VIP_RETURN r)
{
	if (r != VIP_SUCCESS) {
		fprintf(stderr, "%s: VIPL code %d\n", what, (int)r);
		exit(1);
	}
}

static void address_of(union address *a, const VIP_UINT8 *host, VIP_UINT16 length, const char *point)
{
	size_t bytes = strlen(point);

	a->net.HostAddressLen = length;
	a->net.DiscriminatorLen = (VIP_UINT16)bytes;
	memcpy(a->net.HostAddress, host, length);
	memcpy(a->net.HostAddress + length, point, bytes);
}

void open_end(struct end *e, const char *nic, size_t buffers, size_t bytes, VIP_BOOLEAN writes)
{
	VIP_VI_ATTRIBUTES vi = {0};
	VIP_MEM_ATTRIBUTES attributes = {0};
	size_t alignment = VIP_DESCRIPTOR_ALIGNMENT;
	void *start;

	check("VipOpenNic", VipOpenNic(nic, &e->nic));
	check("VipQueryNic", VipQueryNic(e->nic, &e->about));
	check("VipCreatePtag", VipCreatePtag(e->nic, &e->ptag));
	vi.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	vi.MaxTransferSize = bytes;
	vi.Ptag = e->ptag;
	vi.EnableRdmaWrite = writes;
	check("VipCreateVi", VipCreateVi(e->nic, &vi, NULL, NULL, &e->vi));

	e->stride = (sizeof(struct buffer) + bytes + alignment - 1) / alignment * alignment;
	if (posix_memalign(&start, alignment, buffers * e->stride) != 0) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	e->start = start;
	attributes.Ptag = e->ptag;
	attributes.EnableRdmaWrite = writes;
	check("VipRegisterMem", VipRegisterMem(e->nic, start, buffers * e->stride, &attributes, &e->memory));
}

void close_end(struct end *e)
{
	VIP_DESCRIPTOR *d;

	check("VipDisconnect", VipDisconnect(e->vi));
	do
		VipRecvDone(e->vi, &d);
	while (d != NULL);
	do
		VipSendDone(e->vi, &d);
	while (d != NULL);
	check("VipDestroyVi", VipDestroyVi(e->vi));
	check("VipDeregisterMem", VipDeregisterMem(e->nic, e->start, e->memory));
	free(e->start);
	check("VipDestroyPtag", VipDestroyPtag(e->nic, e->ptag));
	check("VipCloseNic", VipCloseNic(e->nic));
}

struct buffer *buffer(struct end *e, size_t i)
{
	return (struct buffer *)(e->start + i * e->stride);
}

VIP_DESCRIPTOR *prepare(struct end *e, struct buffer *b, VIP_UINT32 bytes)
{
	VIP_DESCRIPTOR *d = &b->descriptor;

	memset(&d->CS, 0, sizeof(d->CS));
	d->CS.SegCount = 1;
	d->CS.Length = bytes;
	d->DS[0].Local.Data.Address = b->bytes;
	d->DS[0].Local.Handle = e->memory;
	d->DS[0].Local.Length = bytes;
	return d;
}

VIP_DESCRIPTOR *take(struct end *e, VIP_RETURN (*done)(VIP_VI_HANDLE, VIP_DESCRIPTOR **))
{
	VIP_DESCRIPTOR *d;
	VIP_RETURN r;

	while ((r = done(e->vi, &d)) == VIP_NOT_DONE)
		;
	check("done", r);
	return d;
}

void await(struct end *e, const char *point)
{
	union address here, there;
	VIP_VI_ATTRIBUTES other;
	VIP_CONN_HANDLE connection;
	int i;

	for (i = 0; i < e->about.NicAddressLen; i++)
		printf("%s%02x", i == 0 ? "" : ":", e->about.LocalNicAddress[i]);
	printf("\n");
	fflush(stdout);
	address_of(&here, e->about.LocalNicAddress, e->about.NicAddressLen, point);
	there.net.HostAddressLen = e->about.NicAddressLen;
	there.net.DiscriminatorLen = LONGEST;
	check("VipConnectWait", VipConnectWait(e->nic, &here.net, VIP_INFINITE, &there.net, &other, &connection));
	check("VipConnectAccept", VipConnectAccept(connection, e->vi));
}

void connect_to(struct end *e, const char *address, const char *point)
{
	union address here, there;
	VIP_VI_ATTRIBUTES other;
	unsigned int b[6];
	VIP_UINT8 host[6];
	VIP_RETURN r;
	int i;

	if (sscanf(address, "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) != 6) {
		fprintf(stderr, "%s is no address\n", address);
		exit(2);
	}
	for (i = 0; i < 6; i++)
		host[i] = (VIP_UINT8)b[i];
	address_of(&here, e->about.LocalNicAddress, e->about.NicAddressLen, point);
	address_of(&there, host, sizeof(host), point);
	/* The other end may not wait yet. */
	while ((r = VipConnectRequest(e->vi, &here.net, &there.net, PATIENCE, &other)) == VIP_NO_MATCH)
		usleep(1000);
	check("VipConnectRequest", r);
}
