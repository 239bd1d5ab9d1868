/* Sends messages to and fro between two NICs of this process on one thread, and prints
 * how many nanoseconds of processor time each took: COUNT BYTES DEVICE DEVICE. */
#define _GNU_SOURCE
#include <time.h>

#include "pair.h"

static VIP_DESCRIPTOR *take(VIP_RETURN (*done)(VIP_VI_HANDLE, VIP_DESCRIPTOR **), VIP_VI_HANDLE vi)
{
	VIP_DESCRIPTOR *d;
	VIP_RETURN r;

	while ((r = done(vi, &d)) == VIP_NOT_DONE)
		;
	NEED(r);
	return d;
}

static void again(VIP_DESCRIPTOR *d, VIP_UINT32 bytes)
{
	d->CS.Length = bytes;
	d->CS.Status = 0;
}

int main(int argc, char **argv)
{
	struct side a, b, *sides[2] = {&a, &b};
	VIP_VI_HANDLE vi[2];
	VIP_DESCRIPTOR *send[2], *recv[2];
	struct timespec start, stop;
	long count, i;
	VIP_UINT32 bytes;
	int from;

	if (argc != 5)
		return 2;
	count = atol(argv[1]);
	bytes = (VIP_UINT32)atol(argv[2]);
	open_side(&a, argv[3]);
	open_side(&b, argv[4]);
	if (memcmp(a.about.LocalNicAddress, b.about.LocalNicAddress, a.about.NicAddressLen) == 0) {
		fprintf(stderr, "%s and %s are one NIC: let the addresses differ, if only in the order of their options\n", argv[3], argv[4]);
		return 2;
	}
	connect_pair(&a, &b, NULL, NULL, &vi[0], &vi[1]);
	for (i = 0; i < 2; i++) {
		send[i] = describe(sides[i], 0, 0, bytes);
		recv[i] = describe(sides[i], 1, 32768 / 2, bytes);
		NEED(VipPostRecv(vi[i], recv[i], sides[i]->memory));
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	for (i = 0; i < count; i++) {
		from = i & 1;
		NEED(VipPostSend(vi[from], send[from], sides[from]->memory));
		if (take(VipRecvDone, vi[!from])->CS.Length != bytes)
			return 1;
		again(recv[!from], bytes);
		NEED(VipPostRecv(vi[!from], recv[!from], sides[!from]->memory));
		take(VipSendDone, vi[from]);
		again(send[from], bytes);
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &stop);
	printf("%.1f\n", ((double)(stop.tv_sec - start.tv_sec) * 1e9 + (double)(stop.tv_nsec - start.tv_nsec)) / (double)count);
	disconnect(vi[0]);
	disconnect(vi[1]);
	close_side(&a);
	close_side(&b);
	return failures != 0;
}
