/* A program that gives memory back while the library still has it: each call ends with a
 * code, and the program by itself. CASE DEVICE DEVICE. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "pair.h"

#define OWN 16384

static struct side a, b;
static VIP_VI_HANDLE x, y;
static VIP_DESCRIPTOR *queued;
static VIP_MEM_HANDLE own;

/* Registers memory of b's that can be unmapped, and queues a receive in it. */
static void queue_receive(void)
{
	VIP_MEM_ATTRIBUTES at = {0};

	queued = mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (queued == MAP_FAILED)
		exit(1);
	at.Ptag = b.ptag;
	NEED(VipRegisterMem(b.nic, queued, OWN, &at, &own));
	queued->CS.SegCount = 1;
	queued->CS.Length = 4096;
	queued->DS[0].Local.Data.Address = (char *)queued + 4096;
	queued->DS[0].Local.Handle = own;
	queued->DS[0].Local.Length = 4096;
	NEED(VipPostRecv(y, queued, own));
}

/* Takes the memory away, and keeps its addresses: what another thread maps does not come there. */
static void give_back(void)
{
	if (mmap(queued, OWN, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != queued)
		exit(1);
}

static void refused(VIP_RETURN r, VIP_DESCRIPTOR **d)
{
	CHECK(r != VIP_SUCCESS && r != VIP_NOT_DONE);
	CHECK(*d == NULL);
}

/* A NIC whose thread has touched the memory first has failed. */
static void unposted(VIP_RETURN r)
{
	CHECK(r == VIP_INVALID_PARAMETER || r == VIP_ERROR_RESOURCE);
}

static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *e)
{
	(void)context;
	(void)e;
}

int main(int argc, char **argv)
{
	VIP_DESCRIPTOR *d;
	const char *what;
	int i;

	if (argc != 4)
		return 2;
	what = argv[1];
	open_side(&a, argv[2]);
	open_side(&b, argv[3]);
	OK(VipErrorCallback(b.nic, NULL, on_error));
	connect_pair(&a, &b, NULL, NULL, &x, &y);
	queue_receive();
	if (strcmp(what, "disconnected") == 0) { /* as NetPIPE's module ends */
		OK(VipDisconnect(y));
		IS(VipDestroyVi(y), VIP_ERROR_RESOURCE);
		IS(VipDeregisterMem(b.nic, queued, own), VIP_ERROR_RESOURCE);
		give_back();
	} else if (strcmp(what, "connected") == 0) {
		give_back();
	} else if (strcmp(what, "calls") == 0) {
		give_back();
		d = queued;
		refused(VipRecvDone(y, &d), &d);
		d = queued;
		refused(VipRecvWait(y, PATIENCE, &d), &d);
		unposted(VipPostRecv(y, queued + 1, own));
		unposted(VipPostSend(y, queued + 1, own));
		VipSendDone(y, &d); /* no lock is left locked */
		VipRecvDone(y, &d);
	} else if (strcmp(what, "notice") == 0) {
		OK(VipRecvNotify(y, NULL, never));
		give_back();
		usleep(100000);
	} else if (strcmp(what, "message") == 0) {
		give_back();
		NEED(VipPostSend(x, describe(&a, 0, 0, 64), a.memory));
		for (i = 0; i < 100; i++) {
			VipSendDone(x, &d);
			VipSendDone(y, &d);
			usleep(1000);
		}
	} else if (strcmp(what, "buffer") == 0) { /* only the buffer goes */
		if (mprotect((char *)queued + 4096, 4096, PROT_NONE) != 0)
			exit(1);
		NEED(VipPostSend(x, describe(&a, 0, 0, 64), a.memory));
		for (i = 0; i < 100; i++) {
			VipSendDone(x, &d);
			VipRecvDone(y, &d);
			usleep(1000);
		}
	} else {
		return 2;
	}
	VipCloseNic(b.nic);
	VipCloseNic(a.nic);
	IS(VipDisconnect(y), VIP_INVALID_PARAMETER);
	return failures != 0;
}
