/* What the checks of the provider share: one end of a connection, and ways to expect things. */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

enum { ROOM = 1 << 16, WAIT_MS = 20000 };

/* One side: all that belongs to an end point, and registered memory. */
struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct fid_mr *mr;
	char *memory; /* ROOM bytes */
};

extern int checks;
extern const char *section;

#define FAIL(...)                                                            \
	do {                                                                 \
		fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, section); \
		fprintf(stderr, __VA_ARGS__);                                \
		fputc('\n', stderr);                                         \
		exit(1);                                                     \
	} while (0)

/* WANT compares a result with what it must be. */
#define WANT(got, want)                                                                       \
	do {                                                                                  \
		long got_ = (long)(got), want_ = (long)(want);                                \
		if (got_ != want_)                                                            \
			FAIL("%s is %ld (%s), not %ld", #got, got_, fi_strerror((int)-got_), want_); \
		checks++;                                                                     \
	} while (0)

/* hints are those of a user of end points of messages. */
struct fi_info *hints(void);

/* side_open opens all but the end point. listens says whether it is to be connected to. */
void side_open(struct side *s, bool listens, enum fi_wait_obj wait);

/* side_close closes what is open. */
void side_close(struct side *s);

/* ep_make makes the end point of an info, with its queues. */
void ep_make(struct side *s, struct fi_info *info, uint64_t flags);

/* address_of is where a listening side is. */
struct sockaddr_in address_of(struct side *s);

/* begin_connect has a client connect to a server, and server_request waits for that. */
void begin_connect(struct side *client, struct side *server, const void *data, size_t size);
struct fi_info *server_request(struct side *server, void *data, size_t *size);

/* connect_sides connects two sides that are open. */
void connect_sides(struct side *client, struct side *server);

/* event waits for an event and returns its type; of a failure 0, with the error in *error. */
uint32_t event(struct side *s, void *data, size_t *size, int *error);

/* next waits for a completion; of a failure it returns the positive error. */
int next(struct side *s, struct fi_cq_data_entry *e);

/* none checks that nothing completes. */
void none(struct side *s);

/* post_receive and post_send post a part of the memory. */
void post_receive(struct side *s, size_t at, size_t n);
void post_send(struct side *s, size_t at, size_t n);

int64_t milliseconds(void);

/* processes.c */
void forked(void);
void peers(void);

/* counters.c */
void counters(void);
void refused_counters(void);
void failed_injects(void);
void serialized(void);

/* bad.c */
void refused_calls(void);
void unread_queue(void);
void lost_memory(void);
void waiting_receives(void);
void signals(void);

/* leave ends the program with all open, as programs do on errors. */
void leave(void);

/* measure_messages prints the time of count messages, between two devices or the usual ones for NULL.
 * measure_connections prints the memory of count connections. */
void measure_messages(int count, size_t bytes, char **devices);
void measure_connections(int count);

#endif
