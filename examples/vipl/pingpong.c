/*
 * Sends a message back and forth, and says how long it takes one way.
 *
 *   pingpong NIC                      waits for the other end, and prints its address
 *   pingpong NIC ADDRESS [COUNT [BYTES]]
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common.h"

#define POINT "pingpong" /* the connection point */
#define MOST 32768	 /* bytes of a message */

static struct end end;

/* The time in microseconds. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void receive_into(struct buffer *b)
{
	check("VipPostRecv", VipPostRecv(end.vi, prepare(&end, b, MOST), end.memory));
}

static void send_from(struct buffer *b, VIP_UINT32 bytes)
{
	check("VipPostSend", VipPostSend(end.vi, prepare(&end, b, bytes), end.memory));
}

/* Answers until the other end has gone. */
static void serve(struct buffer *in, struct buffer *out)
{
	VIP_DESCRIPTOR *d;
	VIP_UINT32 bytes;
	VIP_RETURN r;

	for (;;) {
		while ((r = VipRecvDone(end.vi, &d)) == VIP_NOT_DONE)
			;
		if (r != VIP_SUCCESS)
			break; /* flushed: the client has disconnected */
		bytes = d->CS.Length;
		memcpy(out->bytes, in->bytes, bytes);
		receive_into(in);
		send_from(out, bytes);
		take(&end, VipSendDone);
	}
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 3 ? strtoul(argv[3], NULL, 0) : 100000;
	unsigned long bytes = argc > 4 ? strtoul(argv[4], NULL, 0) : 64;
	struct buffer *in, *out;
	unsigned long i;
	double start, *times;

	if (argc < 2 || argc > 5 || count == 0 || bytes > MOST) {
		fprintf(stderr, "usage: pingpong NIC [ADDRESS [COUNT [BYTES]]]\n");
		return 2;
	}
	open_end(&end, argv[1], 2, MOST, VIP_FALSE);
	in = buffer(&end, 0);
	out = buffer(&end, 1);
	receive_into(in);
	if (argc == 2) {
		await(&end, POINT);
		serve(in, out);
	} else {
		connect_to(&end, argv[2], POINT);
		for (i = 0; i < bytes; i++)
			out->bytes[i] = (char)i;
		if ((times = malloc(count * sizeof(*times))) == NULL) {
			fprintf(stderr, "out of memory\n");
			return 1;
		}
		for (i = 0; i < count; i++) {
			start = now();
			send_from(out, (VIP_UINT32)bytes);
			if (take(&end, VipRecvDone)->CS.Length != bytes || memcmp(in->bytes, out->bytes, bytes) != 0) {
				fprintf(stderr, "message %lu came back changed\n", i);
				return 1;
			}
			receive_into(in);
			take(&end, VipSendDone);
			times[i] = (now() - start) / 2;
		}
		qsort(times, count, sizeof(*times), compare);
		printf("%lu messages of %lu bytes, one way in %.3f us (median)\n", count, bytes, times[count / 2]);
		free(times);
	}
	close_end(&end);
	return 0;
}
