/*
 * What the parts of the provider share. An object of libfabric begins with its fid, so a
 * pointer to the fid is a pointer to the object.
 *
 * Locks, in the order in which they are taken: a fabric's (connections), a domain's (end
 * points and what they have posted), a queue's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PROVIDER_H
#define PROVIDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <netinet/in.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <vipl.h>

enum {
	SEGMENTS = 4,	     /* iov_limit */
	STRIDE = 128,	     /* of descriptors: a control segment, an address, SEGMENTS of data */
	INJECT_SIZE = 256,   /* bytes that a send may leave in the provider */
	QUEUE_DEPTH = 128,   /* of a new end point, where its user names none */
	MAX_DEPTH = 1024,    /* MaxDescriptorsPerQueue of libvipl */
	CM_DATA_SIZE = 256,  /* bytes of connection data, each way */
	MAC_SIZE = 6,	     /* of the address of a station */
	POINT_SIZE = 16,     /* of the name of a connection point */
	CONNECT_MS = 30000,  /* the longest that connecting may take */
	LINGER_MS = 2000,    /* the longest that an end point lingers for a peer to take what was told as sent */
	REST_MS = 100,	     /* that a NIC rests while its program computes; peers elsewhere take it for dead after 3 s */
};

/* The functions of libvipl that the provider calls; it loads the library with the first domain. */
#define LIBRARY(F)                                                                             \
	F(OpenNic) F(CloseNic) F(QueryNic) F(ErrorCallback) F(RegisterMem) F(DeregisterMem)    \
	F(CreateViSized) F(DestroyVi) F(QueryVi) F(ConnectWait) F(ConnectAccept) F(ConnectReject) F(ConnectRequest)  \
	F(Disconnect) F(PostSend) F(SendDone) F(PostRecv) F(RecvDone) F(CreateCQ) F(DestroyCQ) \
	F(CQPoll) F(CQNotify)

struct library {
#define F(name) __typeof__(&Vip##name) name;
	LIBRARY(F)
#undef F
};

/* Flags of sends that complete once the peer has them. Others of at most INJECT_SIZE bytes complete when they are posted. */
#define PLACED (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

extern struct library vip;

/* The functions of libfabric whose newest version the provider calls. Structures have grown since the headers
 * of which it was made: what the running library reads, it must allocate. */
struct libfabric {
	struct fi_info *(*dupinfo)(const struct fi_info *info); /* NULL: a new one */
	void (*freeinfo)(struct fi_info *info);
	uint32_t (*version)(void);
};

extern struct libfabric libfabric;

/* find_libfabric finds them in the library that has loaded the provider, and notes which process that is. */
bool find_libfabric(void);
extern struct fi_provider provider;

/* load_library finds libvipl. It returns 0 or an error of libfabric, and logs the reason. */
int load_library(void);

/* device_address is the address of the NIC that a domain opens. */
const char *device_address(void);

/* in_child reports whether the process is a child that fork has made of the one that loaded the provider. */
bool in_child(void);

/* error_of is the negative error of libfabric for a code of VIPL. */
int error_of(VIP_RETURN r);

int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
	     const struct fi_info *hints, struct fi_info **info);
int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);

/* known_address reports whether an address is one of IP, and has its length. */
bool known_address(const void *address, size_t size);

/* What a fid's operations answer that there are none of. */
int no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int no_control(struct fid *fid, int command, void *arg);
int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

/* A signal is a descriptor for poll, readable after signal_set until signal_clear. */
int signal_open(int *fd);
void signal_set(int fd);
void signal_clear(int fd);

/* signal_wait waits until the signal is set, or milliseconds have passed; negative ones never end. */
int signal_wait(int fd, int milliseconds);

/* wait_object answers fi_control about the wait object of a queue. */
int wait_object(int fd, int command, void *arg);

/* now_ms is the monotonic time in milliseconds. */
int64_t now_ms(void);

/* One event that has not been read. */
struct event {
	struct event *next;
	uint32_t type;
	bool failed;
	struct fi_eq_err_entry error;
	size_t size;
	uint8_t entry[]; /* as fi_eq_read returns it; of a failure, err_data */
};

struct eq {
	struct fid_eq eq;
	struct fabric *fabric;
	pthread_mutex_t lock;
	struct event *first, **last;
	void *read_data; /* err_data that fi_eq_readerr has returned */
	int fd;		 /* -1 without a wait object */
	int users;
};

int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);

/* eq_connection tells of a connection: FI_CONNREQ, FI_CONNECTED or FI_SHUTDOWN. */
int eq_connection(struct eq *eq, uint32_t type, fid_t fid, struct fi_info *info, const void *data, size_t size);

/* eq_failure tells that connecting has failed with a positive error. */
void eq_failure(struct eq *eq, fid_t fid, int error, const void *data, size_t size);

bool eq_empty(struct eq *eq);

/* One completion that has not been read. */
struct completion {
	struct fi_cq_tagged_entry entry;
	int error;  /* 0, or positive */
	int status; /* VIPL's, of an error */
};

struct cq {
	struct fid_cq cq;
	struct domain *domain;
	struct completion *ring;
	size_t mask, head, tail; /* free running; guarded by the domain's lock */
	size_t limit;		 /* of completions that wait */
	enum fi_cq_format format;
	int fd; /* -1 without a wait object */
	bool signaled;
	bool waits; /* for arm; guarded by the domain's lock */
	bool lost;  /* its user has not been told of a connection that was lost; guarded by the domain's lock */
	int users;
};

int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);

/* cq_add adds a completion. */
void cq_add(struct cq *cq, const struct completion *c);

/* cq_lost has the read after all completions fail once, since a connection was lost whose peer lives. Layers drop
 * the receives that end with a connection, as after the end of a process. q may be NULL. */
void cq_lost(struct cq *q);

/* cq_full reports whether so many completions wait for their user that nothing is to be posted. */
bool cq_full(const struct cq *cq);

/* cq_arm has the queue's descriptor become readable with the next completion: -FI_EAGAIN if there is one. */
int cq_arm(struct cq *cq);

/* A counter of operations that have completed. */
struct cntr {
	struct fid_cntr cntr;
	struct domain *domain;
	uint64_t value, errors;
	int fd; /* -1 without a wait object */
	bool waits; /* for arm; guarded by the domain's lock */
	int users;
};

int cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);

/* cntr_count counts one operation more. The domain's lock is held. */
void cntr_count(struct cntr *c, bool failed);

/* cntr_arm has the counter's descriptor become readable when it changes: -FI_EAGAIN if it just has. */
int cntr_arm(struct cntr *c);

struct fabric {
	struct fid_fabric fabric;
	struct fabric *next; /* of those that are open */
	pthread_mutex_t lock;
	struct watched *watched; /* guarded by lock */
	struct domain *domains;	 /* guarded by lock */
	uint64_t next_id;
	pthread_t watcher;
	bool watching;
	int epoll, wake;
	int users;
};

/* A socket whose news the watcher of a fabric waits for. */
struct watched {
	struct watched *next;
	uint64_t id;
	int fd;
	/* news is called with the fabric's lock held; the socket is not watched any more if it returns false. */
	bool (*news)(struct watched *w);
	int64_t deadline; /* in now_ms, 0 for none: then news is called */
};

/* end_watchers ends the watchers of all fabrics that are open when the process ends. */
void end_watchers(void);

int watch(struct fabric *f, struct watched *w, uint32_t events);
void unwatch(struct fabric *f, struct watched *w);

struct domain {
	struct fid_domain domain;
	struct fabric *fabric;
	struct domain *next; /* of the fabric's; guarded by its lock */
	uint64_t polls;	     /* calls of progress so far */
	uint64_t seen;	     /* of them, when the watcher looked last; guarded by the fabric's lock */
	pthread_mutex_t lock;
	VIP_NIC_HANDLE nic;
	VIP_NIC_ATTRIBUTES attributes;
	uint8_t mac[MAC_SIZE];
	VIP_CQ_HANDLE cq; /* of all end points */
	struct ep **eps;  /* by VI: a hash table with room */
	size_t mask, entries;
	bool armed;	  /* a notice has been asked for */
	int waiters;	  /* queues and counters that wait for one */
	bool answer;	  /* a receive has completed: a reply may come before the next look */
	struct ep *waiting; /* end points with receives that the NIC has not got yet */
	int users;
};

int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);
int domain_add(struct domain *d, struct ep *ep);
void domain_remove(struct domain *d, struct ep *ep);

/* progress has the NIC work and delivers what has completed, until a queue has as many completions
 * as wanted, or there are no more. q may be NULL. The domain's lock is held. */
void progress(struct domain *d, const struct cq *q, size_t wanted);

/* arm has the next completion at a queue or counter wake its user; waits belongs to that. Completions of others
 * leave it armed until disarm. The domain's lock is held. */
int arm(struct domain *d, bool *waits);
void disarm(struct domain *d, bool *waits);

/* A request for a connection that has been neither accepted nor rejected. */
struct request {
	struct fid fid;
	struct watched socket;
	struct pep *pep;
	struct request *next;
	uint8_t *got;
	size_t have;
	uint8_t mac[MAC_SIZE];
};

struct pep {
	struct fid_pep pep;
	struct fabric *fabric;
	struct eq *eq;
	struct fi_info *info;
	struct watched socket;
	struct request *requests; /* guarded by the fabric's lock */
	int request_count;
	bool listening;
};

int pep_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context);

/* What has been posted and has not completed. */
struct op {
	void *context;
	void *buffer;
	uint64_t flags; /* of the completion */
	/* Of a completion: none unless it fails; none at all; or it was told when the operation was posted. */
	enum { TOLD, QUIET, SILENT, EARLY } silence;
};

/* One work queue: descriptors and what they are for, used in turns. */
struct work {
	VIP_DESCRIPTOR *descriptors;
	struct op *ops;
	uint8_t *inject; /* INJECT_SIZE bytes each; of a send queue */
	uint32_t depth, posted, done; /* free running */
	uint32_t handed; /* of a receive queue, free running: what the NIC has got */
	uint32_t early;	 /* of a send queue: those that were told when they were posted, and have not completed */
	struct cq *cq;	/* NULL if counters tell all */
	struct cntr *messages, *reads, *writes; /* that count its operations, NULL for none */
	uint64_t flags; /* op_flags */
	bool selective;
};

enum state { EP_IDLE, EP_CONNECTING, EP_CONNECTED, EP_ENDED };

struct ep {
	struct fid_ep ep;
	struct domain *domain;
	struct eq *eq;
	struct fi_info *info;
	VIP_VI_HANDLE vi;
	VIP_MEM_HANDLE memory; /* of the slab */
	void *slab;
	size_t slab_size;
	struct work send, receive;
	struct ep *next_waiting; /* of the domain's end points with receives that wait */
	bool waiting;
	bool remote_data; /* FI_RX_CQ_DATA: a write with data takes a receive */

	enum state state; /* guarded by the domain's lock */
	struct watched socket;
	struct request *request; /* that it accepts */
	uint8_t peer[MAC_SIZE];
	pthread_t connector;
	bool connecting; /* connector is to be joined */
	volatile bool closing;
	size_t data_size;
	uint8_t data[CM_DATA_SIZE];
};

int ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int ep_enable(struct ep *ep);
void complete(struct ep *ep, VIP_DESCRIPTOR *d, bool receive);

/* descriptor is that of an operation, by its free-running number. */
VIP_DESCRIPTOR *descriptor(const struct work *w, uint32_t index);

/* post_error is the error of libfabric for what a post has returned. */
int post_error(VIP_RETURN r);

/* post_receive hands over the receive that was posted last, or has it wait: while it does, half of the queue and more
 * is with the NIC. hand_receives gives the NIC all that wait; drop_receives forgets those of an end point. The
 * domain's lock is held. */
int post_receive(struct ep *ep);
void hand_receives(struct domain *d);
void drop_receives(struct ep *ep);

/* linger waits until the peer has all of whose end the sender was told early. */
void linger(struct ep *ep);

/* ended tells once that the connection is no more. The domain's lock is held. */
void ended(struct ep *ep);

extern struct fi_ops_msg msg_ops;
extern struct fi_ops_rma rma_ops;
extern struct fi_ops_cm ep_cm_ops;

/* stop_connecting ends what connects the end point, and its socket. */
void stop_connecting(struct ep *ep);

/* take_address has an end point connect from the address of a passive one, which gives it up. */
void take_address(struct ep *ep, struct pep *p);

/* forget_request ends a request; its socket is closed. The fabric's lock is held. */
void forget_request(struct request *r);

int option_get(fid_t fid, int level, int name, void *value, size_t *size);

#endif
