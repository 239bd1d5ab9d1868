/*
 * What end points and passive ones say to each other on their socket, and their names.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MESSAGE_H
#define MESSAGE_H

#include "provider.h"

enum { REQUEST = 1, ACCEPT = 2, REJECT = 3 };
enum { SLICE_MS = 100 }; /* between two looks whether the end point is being closed */

/* A message of the socket; numbers are big endian. */
struct message {
	uint8_t magic[4];
	uint8_t type, zero;
	uint8_t size[2]; /* of data */
	uint8_t mac[MAC_SIZE];
	uint8_t point[POINT_SIZE]; /* where an accepting end waits; zero in others */
	uint8_t data[CM_DATA_SIZE];
};

/* compose makes a message; mac and data may be NULL. */
void compose(struct message *m, uint8_t type, const uint8_t *mac, const void *data, size_t size);

/* valid reports whether a message is one; data_size is how many bytes of data a valid one has. */
bool valid(const struct message *m);
size_t data_size(const struct message *m);

/* exchange sends or receives all of a message, until the deadline in now_ms or until the end point is being closed.
 * A message that it receives is valid. */
int exchange(const struct ep *ep, int fd, struct message *m, bool out, int64_t deadline);

/* ready waits until a socket is, the end point is being closed, or the time is over. */
int ready(const struct ep *ep, int fd, short events, int64_t deadline);

/* copy_name copies an address of n bytes, as fi_getname has it; NULL is none. */
int copy_name(const void *from, size_t n, void *addr, size_t *size);

/* socket_name is the address that a socket is bound to. */
int socket_name(int fd, void *addr, size_t *size);

/* no_join is fi_join of ends that have no groups. */
int no_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context);

#endif
