/* A program as NetPIPE's module for VIA: RDMA writes, and the last byte of memory polled for
 * what the other end writes, with no call of the library meanwhile. Prints how long one way
 * takes in ns: MESSAGES BYTES DEVICE, and the address of the other end for the client. */
#define _GNU_SOURCE
#include <time.h>

#include "pair.h"

struct target {
	VIP_UINT64 address;
	VIP_MEM_HANDLE handle;
};

static struct side s;
static VIP_VI_HANDLE vi;
static volatile char *landing; /* where the other end writes */
static char *source;
static VIP_MEM_HANDLE memory;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Waits for a byte without a call. */
static void look(size_t at, char value)
{
	double end = now() + 60e9;
	long i;

	for (i = 0; landing[at] != value; i++)
		if (i % 4096 == 0 && now() > end) {
			fprintf(stderr, "nothing comes\n");
			exit(1);
		}
}

static void write_to(const struct target *t, VIP_UINT32 bytes)
{
	VIP_DESCRIPTOR *d = describe(&s, 0, 0, bytes), *done;
	VIP_RETURN r;

	d->CS.SegCount = 2;
	d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
	d->DS[1].Local.Data.Address = source;
	d->DS[1].Local.Handle = memory;
	d->DS[1].Local.Length = bytes;
	d->DS[0].Remote.Data.AddressBits = t->address;
	d->DS[0].Remote.Handle = t->handle;
	d->DS[0].Remote.Reserved = 0;
	NEED(VipPostSend(vi, d, s.memory));
	while ((r = VipSendDone(vi, &done)) == VIP_NOT_DONE)
		;
	NEED(r);
}

int main(int argc, char **argv)
{
	union any_address here = {0}, there = {0};
	VIP_VI_ATTRIBUTES a = {0}, other;
	VIP_MEM_ATTRIBUTES at = {0};
	VIP_CONN_HANDLE c;
	VIP_DESCRIPTOR *d, *done;
	struct target mine, theirs;
	unsigned byte;
	VIP_UINT32 bytes;
	double start;
	long count, i;

	if (argc != 4 && argc != 5)
		return 2;
	count = atol(argv[1]);
	bytes = (VIP_UINT32)atol(argv[2]);
	open_side(&s, argv[3]);
	at.Ptag = a.Ptag = s.ptag;
	at.EnableRdmaWrite = a.EnableRdmaWrite = VIP_TRUE;
	a.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	a.MaxTransferSize = s.about.MaxTransferSize;
	source = aligned_alloc(4096, 2 * (size_t)bytes);
	memset(source, 0, 2 * (size_t)bytes);
	landing = source + bytes;
	NEED(VipRegisterMem(s.nic, source, 2 * (VIP_ULONG)bytes, &at, &memory));
	NEED(VipCreateVi(s.nic, &a, NULL, NULL, &vi));
	NEED(VipPostRecv(vi, d = describe(&s, 1, 4096, sizeof(theirs)), s.memory));

	set_address(&here, &s.about, argc == 5 ? "client" : "server");
	if (argc == 5) {
		set_address(&there, &s.about, "server");
		for (i = 0; i < 6; i++) {
			if (sscanf(argv[4] + 3 * i, "%2x", &byte) != 1)
				return 2;
			there.net.HostAddress[i] = (VIP_UINT8)byte;
		}
		while (VipConnectRequest(vi, &here.net, &there.net, PATIENCE, &other) == VIP_NO_MATCH)
			;
	} else {
		for (i = 0; i < 6; i++)
			printf("%02x%c", s.about.LocalNicAddress[i], i < 5 ? ':' : '\n');
		fflush(stdout);
		NEED(VipConnectWait(s.nic, &here.net, PATIENCE, &there.net, &other, &c));
		NEED(VipConnectAccept(c, vi));
	}
	mine.address = (VIP_UINT64)(uintptr_t)landing;
	mine.handle = memory;
	memcpy(s.start + DATA, &mine, sizeof(mine));
	NEED(VipPostSend(vi, describe(&s, 0, 0, sizeof(mine)), s.memory));
	NEED(VipRecvWait(vi, PATIENCE, &done));
	CHECK(done == d);
	memcpy(&theirs, s.start + DATA + 4096, sizeof(theirs));
	NEED(VipSendWait(vi, PATIENCE, &done));

	start = now();
	for (i = 0; i < count; i++) {
		source[bytes - 1] = (char)(i + 1);
		if (argc == 5)
			write_to(&theirs, bytes);
		look(bytes - 1, (char)(i + 1));
		if (argc == 4)
			write_to(&theirs, bytes);
	}
	if (argc == 5)
		printf("%.0f\n", (now() - start) / (double)count / 2);
	if (argc == 5)
		usleep(100000); /* the server's last acknowledgement */
	VipDisconnect(vi);
	VipCloseNic(s.nic);
	return failures != 0;
}
