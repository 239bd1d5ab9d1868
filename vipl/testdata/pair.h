/* Two ends in one process. */
#ifndef PAIR_H
#define PAIR_H

#include <pthread.h>
#include <unistd.h>

#include "check.h"

struct request {
	struct side *here, *there;
	VIP_VI_HANDLE vi;
	VIP_RETURN result;
	VIP_VI_ATTRIBUTES other;
};

/* Asks until somebody waits there. */
static void *request_connection(void *argument)
{
	struct request *q = argument;
	union any_address here, there;

	set_address(&here, &q->here->about, "client");
	set_address(&there, &q->there->about, "server");
	while ((q->result = VipConnectRequest(q->vi, &here.net, &there.net, PATIENCE, &q->other)) == VIP_NO_MATCH)
		usleep(1000);
	return NULL;
}

static inline VIP_CONN_HANDLE await_connection(struct side *s)
{
	union any_address here, there = {0};
	VIP_VI_ATTRIBUTES other;
	VIP_CONN_HANDLE c;

	set_address(&here, &s->about, "server");
	NEED(VipConnectWait(s->nic, &here.net, PATIENCE, &there.net, &other, &c));
	CHECK(there.net.HostAddressLen == 6 && there.net.DiscriminatorLen == 6);
	CHECK(memcmp(there.net.HostAddress + 6, "client", 6) == 0);
	return c;
}

/* Connects a VI of a, the client, with one of b. */
static inline void connect_vis(struct side *a, struct side *b, VIP_VI_HANDLE x, VIP_VI_HANDLE y)
{
	struct request q = {.here = a, .there = b, .vi = x};
	pthread_t client;
	VIP_RETURN r;

	if (pthread_create(&client, NULL, request_connection, &q) != 0)
		exit(1);
	do /* A late copy of a request that was answered already times out. */
		r = VipConnectAccept(await_connection(b), y);
	while (r == VIP_TIMEOUT);
	NEED(r);
	pthread_join(client, NULL);
	NEED(q.result);
}

static inline void connect_pair(struct side *a, struct side *b, VIP_CQ_HANDLE send, VIP_CQ_HANDLE recv,
				VIP_VI_HANDLE *x, VIP_VI_HANDLE *y)
{
	*x = make_vi(a, NULL, NULL);
	*y = make_vi(b, send, recv);
	connect_vis(a, b, *x, *y);
}

/* Takes everything back from a VI and destroys it. */
static inline void disconnect(VIP_VI_HANDLE vi)
{
	VIP_DESCRIPTOR *d;

	OK(VipDisconnect(vi));
	do
		VipSendDone(vi, &d);
	while (d != NULL);
	do
		VipRecvDone(vi, &d);
	while (d != NULL);
	OK(VipDestroyVi(vi));
}

/* Sends bytes from x to y, and takes both descriptors back. */
static inline void exchange(struct side *a, struct side *b, VIP_VI_HANDLE x, VIP_VI_HANDLE y, VIP_UINT32 bytes)
{
	VIP_DESCRIPTOR *s = describe(a, 0, 0, bytes), *r = describe(b, 1, 0, bytes), *d;
	VIP_UINT32 i;

	for (i = 0; i < bytes; i++) {
		a->start[DATA + i] = (char)(i * 7 + bytes);
		b->start[DATA + i] = 0;
	}
	OK(VipPostRecv(y, r, b->memory));
	OK(VipPostSend(x, s, a->memory));
	OK(VipRecvWait(y, PATIENCE, &d));
	CHECK(d == r && r->CS.Length == bytes && r->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE));
	CHECK(memcmp(a->start + DATA, b->start + DATA, bytes) == 0);
	OK(VipSendWait(x, PATIENCE, &d));
	CHECK(d == s && s->CS.Length == bytes && s->CS.Status == VIP_STATUS_DONE);
}

#endif
