/*
 * What the two examples have in common: a NIC, a VI, memory with descriptors, and how two
 * such ends find each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef COMMON_H
#define COMMON_H

#include <vipl.h>

/* One end of a connection. */
struct end {
	VIP_NIC_HANDLE nic;
	VIP_NIC_ATTRIBUTES about;
	VIP_PROTECTION_HANDLE ptag;
	VIP_VI_HANDLE vi;
	VIP_MEM_HANDLE memory; /* of all buffers */
	char *start;
	size_t stride; /* from one buffer to the next, in bytes */
};

/* A descriptor with its data behind it. */
struct buffer {
	VIP_DESCRIPTOR descriptor;
	char bytes[];
};

/* Ends the program unless r is VIP_SUCCESS. */
void check(const char *what, VIP_RETURN r);

/* Opens a NIC, with a VI and so many buffers for messages of up to bytes bytes. With
 * writes the other end may write into them. */
void open_end(struct end *e, const char *nic, size_t buffers, size_t bytes, VIP_BOOLEAN writes);
void close_end(struct end *e);

struct buffer *buffer(struct end *e, size_t i);

/* Makes the descriptor of b a send or receive of its first bytes. */
VIP_DESCRIPTOR *prepare(struct end *e, struct buffer *b, VIP_UINT32 bytes);

/* Takes the next descriptor that completes, with VipSendDone or VipRecvDone. */
VIP_DESCRIPTOR *take(struct end *e, VIP_RETURN (*done)(VIP_VI_HANDLE, VIP_DESCRIPTOR **));

/* Says on stdout at which address this end waits, and waits for the other one. */
void await(struct end *e, const char *point);

/* Connects with the end that waits at address, six bytes in hexadecimal with colons. */
void connect_to(struct end *e, const char *address, const char *point);

#endif
