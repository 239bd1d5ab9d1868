/*
 * Copies a file to the other end, with sends or with RDMA writes.
 *
 *   filecopy NIC FILE                 waits for the other end, and writes what comes to FILE
 *   filecopy NIC FILE ADDRESS [write] sends FILE; "write" has the NIC write it into the
 *                                     other program's memory
 *
 * The receiver says first where its buffers are. Each buffer of the sender goes to the one
 * of the same number there, and may be used again when the receiver has said that it is
 * empty. Immediate data is how many bytes there are; fewer than a whole buffer end the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define POINT "filecopy"
#define WINDOW 8	   /* buffers at each end */
#define WHOLE (32u * 1024) /* bytes of a buffer */

/* The receiver's first message. */
struct hello {
	VIP_UINT64 start; /* of the bytes of its first buffer */
	VIP_UINT64 stride;
	VIP_UINT32 handle;
};

static struct end end;

static void post_receive(size_t i, VIP_UINT32 bytes)
{
	check("VipPostRecv", VipPostRecv(end.vi, prepare(&end, buffer(&end, i), bytes), end.memory));
}

static void post_send(VIP_DESCRIPTOR *d)
{
	check("VipPostSend", VipPostSend(end.vi, d, end.memory));
}

/* Buffers 0 to WINDOW-1 are for the file, as many more for what says that they are empty. */
static void receive_file(FILE *f)
{
	struct hello hello = {(VIP_UINT64)buffer(&end, 0)->bytes, end.stride, end.memory};
	VIP_DESCRIPTOR *d;
	VIP_UINT32 bytes;
	size_t i;

	for (i = 0; i < WINDOW; i++)
		post_receive(i, WHOLE);
	await(&end, POINT);
	memcpy(buffer(&end, WINDOW)->bytes, &hello, sizeof(hello));
	post_send(prepare(&end, buffer(&end, WINDOW), sizeof(hello)));
	take(&end, VipSendDone);
	for (i = 0;; i = (i + 1) % WINDOW) {
		d = take(&end, VipRecvDone);
		if ((bytes = d->CS.ImmediateData) > WHOLE) {
			fprintf(stderr, "the sender says %u bytes\n", bytes);
			exit(1);
		}
		if (fwrite(buffer(&end, i)->bytes, 1, bytes, f) != bytes) {
			perror("write");
			exit(1);
		}
		if (bytes == WHOLE)
			post_receive(i, WHOLE);
		post_send(prepare(&end, buffer(&end, WINDOW + i), 0));
		take(&end, VipSendDone);
		if (bytes < WHOLE)
			return;
	}
}

/* An RDMA write of the first bytes of buffer i to that of the other end. */
static VIP_DESCRIPTOR *prepare_write(size_t i, VIP_UINT32 bytes, const struct hello *to)
{
	VIP_DESCRIPTOR *d = prepare(&end, buffer(&end, i), bytes);

	d->CS.SegCount = 2;
	d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
	d->DS[1] = d->DS[0];
	d->DS[0].Remote.Data.AddressBits = to->start + i * to->stride;
	d->DS[0].Remote.Handle = to->handle;
	d->DS[0].Remote.Reserved = 0;
	return d;
}

static void send_file(FILE *f, const char *address, int write)
{
	unsigned long sent = 0, emptied = 0;
	VIP_DESCRIPTOR *d;
	struct hello hello;
	VIP_UINT32 bytes;
	size_t i;

	for (i = 0; i <= WINDOW; i++)
		post_receive(WINDOW + i, sizeof(hello));
	connect_to(&end, address, POINT);
	take(&end, VipRecvDone);
	memcpy(&hello, buffer(&end, WINDOW)->bytes, sizeof(hello));
	do {
		i = sent % WINDOW;
		if (sent >= WINDOW) { /* its buffer has to be empty there, and done with here */
			take(&end, VipRecvDone);
			post_receive(WINDOW + 1 + emptied++ % WINDOW, sizeof(hello));
			take(&end, VipSendDone);
		}
		bytes = (VIP_UINT32)fread(buffer(&end, i)->bytes, 1, WHOLE, f);
		if (ferror(f)) {
			perror("read");
			exit(1);
		}
		d = write ? prepare_write(i, bytes, &hello) : prepare(&end, buffer(&end, i), bytes);
		d->CS.Control |= VIP_CONTROL_IMMEDIATE;
		d->CS.ImmediateData = bytes;
		post_send(d);
		sent++;
	} while (bytes == WHOLE);
	for (; emptied < sent; emptied++)
		take(&end, VipRecvDone);
}

int main(int argc, char **argv)
{
	int sends = argc >= 4, write = argc == 5 && strcmp(argv[4], "write") == 0;
	FILE *f;

	if (argc < 3 || argc > 5 || (argc == 5 && !write)) {
		fprintf(stderr, "usage: filecopy NIC FILE [ADDRESS [write]]\n");
		return 2;
	}
	if ((f = fopen(argv[2], sends ? "rb" : "wb")) == NULL) {
		perror(argv[2]);
		return 1;
	}
	open_end(&end, argv[1], 2 * WINDOW + 1, WHOLE, VIP_TRUE);
	if (sends)
		send_file(f, argv[3], write);
	else
		receive_file(f);
	close_end(&end);
	if (fclose(f) != 0) {
		perror(argv[2]);
		return 1;
	}
	return 0;
}
