/*
 * Checks the provider through libfabric: what it refuses, connections and their data, messages,
 * RMA, and the ways in which things end. It prints how many checks have passed.
 *
 *   check
 *   check time MESSAGES BYTES [DEVICE DEVICE]     the processor time of a message
 *   check connections COUNT                       the memory of a connection
 *   check leave                                   a program that ends with all open
 */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int checks;
const char *section = "start";

/* refuse checks that no NIC is offered for hints with one thing changed. */
#define REFUSE(change)                                                                  \
	do {                                                                            \
		struct fi_info *h = hints(), *i = NULL;                                 \
		h->change;                                                              \
		WANT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &i), -FI_ENODATA); \
		fi_freeinfo(h);                                                         \
	} while (0)

static void refused_hints(void)
{
	section = "hints";
	REFUSE(caps |= FI_ATOMIC);
	REFUSE(caps |= FI_TAGGED);
	REFUSE(caps |= FI_HMEM);
	REFUSE(caps |= FI_MULTI_RECV);
	REFUSE(ep_attr->type = FI_EP_DGRAM);
	REFUSE(ep_attr->msg_prefix_size = 8);
	REFUSE(ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT);
	REFUSE(ep_attr->max_msg_size = SIZE_MAX);
	REFUSE(tx_attr->inject_size = 257);
	REFUSE(tx_attr->iov_limit = 5);
	REFUSE(tx_attr->size = 1025);
	REFUSE(rx_attr->size = 1025);
	REFUSE(tx_attr->rma_iov_limit = 2);
	REFUSE(domain_attr->mr_mode = FI_MR_VIRT_ADDR);
	REFUSE(domain_attr->data_progress = FI_PROGRESS_AUTO);
	REFUSE(domain_attr->cq_data_size = 8);
	REFUSE(addr_format = FI_ADDR_IB_UD);
}

static void connection_data(void)
{
	char sent[257], got[512];
	struct side client, server;
	size_t n, i;
	int error;

	section = "connection data";
	for (i = 0; i < sizeof(sent); i++)
		sent[i] = (char)(i * 7);
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	ep_make(&client, client.info, 0);
	{
		struct sockaddr_in a = address_of(&server);

		WANT(fi_connect(client.ep, &a, sent, 257), -FI_EINVAL);
	}
	WANT(fi_send(client.ep, client.memory, 1, fi_mr_desc(client.mr), 0, NULL), -FI_ENOTCONN);
	begin_connect(&client, &server, sent, 256);
	ep_make(&server, server_request(&server, got, &n), 0);
	WANT(n, 256);
	WANT(memcmp(got, sent, n), 0);
	WANT(fi_accept(server.ep, sent + 100, 24), 0);
	WANT(event(&client, got, &n, &error), FI_CONNECTED);
	WANT(n, 24);
	WANT(memcmp(got, sent + 100, n), 0);
	WANT(event(&server, NULL, NULL, &error), FI_CONNECTED);
	WANT(fi_connect(client.ep, client.info->src_addr, NULL, 0), -FI_EOPBADSTATE);
	WANT(fi_close(&client.domain->fid), -FI_EBUSY);
	WANT(fi_close(&client.cq->fid), -FI_EBUSY);
	WANT(fi_close(&client.eq->fid), -FI_EBUSY);
	WANT(fi_close(&client.fabric->fid), -FI_EBUSY);
	WANT(fi_shutdown(client.ep, 0), 0);
	WANT(event(&client, NULL, NULL, &error), FI_SHUTDOWN);
	WANT(event(&server, NULL, NULL, &error), FI_SHUTDOWN);
	side_close(&client);
	side_close(&server);
}

static void refused_connections(void)
{
	struct side client, server;
	struct sockaddr_in a;
	char got[512];
	size_t n;
	int error, i;

	section = "refused connections";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	begin_connect(&client, &server, "hello", 5);
	server_request(&server, got, &n);
	WANT(n, 5);
	WANT(fi_reject(server.pep, server.info->handle, "no", 2), 0);
	WANT(fi_reject(server.pep, server.info->handle, "no", 2), -FI_EINVAL);
	WANT(event(&client, got, &n, &error), 0);
	WANT(error, FI_ECONNREFUSED);
	WANT(n, 2);
	WANT(memcmp(got, "no", 2), 0);
	WANT(fi_close(&client.ep->fid), 0);
	client.ep = NULL;

	/* Strangers: they say nothing, half of something, or nonsense. */
	a = address_of(&server);
	for (i = 0; i < 30; i++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		char junk[1000];

		memset(junk, i, sizeof(junk));
		WANT(connect(s, (struct sockaddr *)&a, sizeof(a)), 0);
		if (i % 3 != 0)
			(void)!send(s, junk, i % 3 == 1 ? 100 : sizeof(junk), MSG_NOSIGNAL);
		close(s);
	}
	connect_sides(&client, &server); /* it still works */
	WANT(fi_close(&client.ep->fid), 0);
	client.ep = NULL;

	ep_make(&client, client.info, 0);
	WANT(fi_close(&server.pep->fid), 0);
	server.pep = NULL;
	WANT(fi_connect(client.ep, &a, NULL, 0), 0);
	WANT(event(&client, NULL, NULL, &error), 0);
	WANT(error, FI_ECONNREFUSED);
	side_close(&client);
	side_close(&server);
}

static void messages(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	int i;

	section = "messages";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);

	/* Early ones wait for their receives. */
	for (i = 0; i < 100; i++) {
		client.memory[i] = (char)i;
		post_send(&client, (size_t)i, 1);
	}
	none(&server);
	for (i = 0; i < 100; i++) {
		post_receive(&server, (size_t)i, 1);
		WANT(next(&server, &e), 0);
		WANT(server.memory[i], i);
		WANT(e.len, 1);
		WANT(e.flags, FI_MSG | FI_RECV);
		WANT(e.op_context == server.memory + i, true);
		WANT(next(&client, &e), 0);
		WANT(e.op_context == client.memory + i, true);
	}
	post_receive(&server, 0, 0);
	WANT(fi_inject(client.ep, NULL, 0, 0), 0);
	WANT(next(&server, &e), 0);
	WANT(e.len, 0);
	none(&client);

	post_receive(&server, 0, 256);
	WANT(fi_injectdata(client.ep, "inject", 6, 0xfedcba98, 0), 0);
	WANT(next(&server, &e), 0);
	WANT(memcmp(server.memory, "inject", 6), 0);
	WANT(e.data, 0xfedcba98);
	WANT(e.flags, FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA);
	WANT(fi_inject(client.ep, client.memory, 257, 0), -FI_EMSGSIZE);
	WANT(fi_injectdata(client.ep, client.memory, 1, (uint64_t)1 << 32, 0), -FI_EINVAL);
	WANT(fi_send(client.ep, client.memory, 1, NULL, 0, NULL), -FI_EINVAL);
	none(&client);

	/* As many as the queue holds, and then not one more until one is read. */
	for (i = 0; fi_send(client.ep, client.memory, 1, fi_mr_desc(client.mr), 0, NULL) == 0; i++)
		if (i > 1024)
			FAIL("the send queue has no end");
	WANT(i, 128);
	for (i = 0; i < 128; i++)
		post_receive(&server, 0, 1);
	for (i = 0; i < 128; i++)
		WANT(next(&server, &e), 0);
	for (i = 0; i < 128; i++)
		WANT(next(&client, &e), 0);

	/* Too long a message ends the connection. */
	post_receive(&server, 0, 10);
	post_send(&client, 0, 11);
	WANT(next(&server, &e), FI_ETRUNC);
	side_close(&server);
	side_close(&client);
}

static void *receive_later(void *server)
{
	usleep(100000);
	post_receive(server, 0, 256);
	return NULL;
}

/* A user who does not ask to learn when the peer has a message: short ones complete when they are posted, and arrive, though
 * he closes his end then. */
static void early_completion(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	struct fi_info *h = hints(), *i;
	struct iovec v;
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1};
	pthread_t thread;
	void *desc;

	section = "early completion";
	WANT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &i), 0);
	WANT(i->tx_attr->comp_order == FI_ORDER_STRICT, true);
	fi_freeinfo(i);
	h->tx_attr->op_flags = 0;
	WANT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &i), 0);
	WANT(i->tx_attr->comp_order, FI_ORDER_NONE);
	fi_freeinfo(i);
	h->tx_attr->comp_order = FI_ORDER_STRICT;
	WANT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &i), 0);
	WANT(i->tx_attr->op_flags, FI_TRANSMIT_COMPLETE);
	fi_freeinfo(i);
	fi_freeinfo(h);

	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	client.info->tx_attr->op_flags = 0;
	connect_sides(&client, &server);
	client.memory[0] = 7;
	client.memory[255] = 8;
	post_send(&client, 1000, 257);
	none(&client);
	post_send(&client, 0, 256);
	WANT(fi_cq_read(client.cq, &e, 1), 1);
	WANT(e.flags, FI_MSG | FI_SEND);
	WANT(e.len, 256);
	WANT(e.op_context == client.memory, true);
	client.memory[0] = client.memory[255] = 9;
	v = (struct iovec){client.memory, 1};
	desc = fi_mr_desc(client.mr);
	m.desc = &desc;
	m.context = &m;
	WANT(fi_sendmsg(client.ep, &m, FI_TRANSMIT_COMPLETE), 0);
	none(&client);
	post_receive(&server, 1000, 257);
	WANT(next(&server, &e), 0);
	WANT(next(&client, &e), 0);
	WANT(e.op_context == client.memory + 1000, true);
	post_receive(&server, 0, 256);
	WANT(next(&server, &e), 0);
	WANT(e.len, 256);
	WANT(server.memory[0] == 7 && server.memory[255] == 8, true);
	none(&client);
	post_receive(&server, 0, 1);
	WANT(next(&server, &e), 0);
	WANT(next(&client, &e), 0);
	WANT(e.op_context == &m, true);

	client.memory[0] = 10;
	post_send(&client, 0, 256);
	WANT(next(&client, &e), 0);
	WANT(pthread_create(&thread, NULL, receive_later, &server), 0);
	WANT(fi_close(&client.ep->fid), 0);
	client.ep = NULL;
	WANT(pthread_join(thread, NULL), 0);
	WANT(next(&server, &e), 0);
	WANT(server.memory[0], 10);
	side_close(&client);
	side_close(&server);
}

static void rma(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	uint64_t key, at;
	int i;

	section = "RMA";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	key = fi_mr_key(server.mr);
	at = (uint64_t)(uintptr_t)server.memory;
	for (i = 0; i < ROOM; i++)
		client.memory[i] = (char)(i * 3);
	WANT(fi_write(client.ep, client.memory, 30000, fi_mr_desc(client.mr), 0, at + 7, key, &key), 0);
	for (i = 0; fi_cq_read(client.cq, &e, 1) == -FI_EAGAIN; i++)
		(void)fi_cq_read(server.cq, &e, 0); /* the NIC of this process works in calls */
	WANT(memcmp(server.memory + 7, client.memory, 30000), 0);
	none(&server);
	WANT(fi_read(client.ep, client.memory + 40000, 20000, fi_mr_desc(client.mr), 0, at + 7, key, NULL), 0);
	WANT(next(&client, &e), 0);
	WANT(e.flags, FI_RMA | FI_READ);
	WANT(memcmp(client.memory + 40000, server.memory + 7, 20000), 0);
	WANT(fi_inject_write(client.ep, "x", 1, 0, at, key), 0);
	for (i = 0; ((volatile char *)server.memory)[0] != 'x' && i < 100000; i++)
		(void)fi_cq_read(client.cq, &e, 1);
	WANT(server.memory[0], 'x');
	WANT(fi_writedata(client.ep, client.memory, 1, fi_mr_desc(client.mr), 7, 0, at, key, NULL), -FI_EOPNOTSUPP);
	WANT(fi_write(client.ep, client.memory, 1, fi_mr_desc(client.mr), 0, at, (uint64_t)1 << 32, NULL), -FI_EKEYREJECTED);

	/* A key of memory that is registered no more, and one byte too far. */
	WANT(fi_write(client.ep, client.memory, 8, fi_mr_desc(client.mr), 0, at + ROOM - 7, key, NULL), 0);
	WANT(next(&client, &e), FI_EACCES);
	side_close(&client);
	side_close(&server);

	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	key = fi_mr_key(server.mr);
	WANT(fi_close(&server.mr->fid), 0);
	WANT(fi_mr_reg(server.domain, server.memory, ROOM, FI_REMOTE_READ, 0, 0, 0, &server.mr, NULL), 0);
	WANT(fi_read(client.ep, client.memory, 8, fi_mr_desc(client.mr), 0, (uint64_t)(uintptr_t)server.memory, key, NULL), 0);
	WANT(next(&client, &e), FI_EACCES);
	side_close(&server);
	side_close(&client);
}

static void selective(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	struct iovec v;
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1};
	void *desc;
	int error;

	section = "selective completion";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	ep_make(&client, client.info, FI_SELECTIVE_COMPLETION);
	begin_connect(&client, &server, NULL, 0);
	ep_make(&server, server_request(&server, NULL, NULL), 0);
	WANT(fi_accept(server.ep, NULL, 0), 0);
	WANT(event(&server, NULL, NULL, &error), FI_CONNECTED);
	WANT(event(&client, NULL, NULL, &error), FI_CONNECTED);
	post_receive(&server, 0, 8);
	post_receive(&server, 0, 8);
	post_send(&client, 0, 8);
	WANT(next(&server, &e), 0);
	none(&client);
	v = (struct iovec){client.memory, 8};
	desc = fi_mr_desc(client.mr);
	m.desc = &desc;
	m.context = &m;
	WANT(fi_sendmsg(client.ep, &m, FI_COMPLETION), 0);
	WANT(next(&client, &e), 0);
	WANT(e.op_context == &m, true);
	side_close(&client);
	side_close(&server);
}

/* A message wakes who waits for it, though an injected one completes before it without a completion. The NIC works ten
 * times a second without that: one of some waits is to end earlier. */
static void woken_after_silence(struct side *client, struct side *server)
{
	struct fid *fids[1] = {&server->cq->fid};
	struct pollfd p = {.events = POLLIN};
	struct fi_cq_data_entry e;
	int64_t began, took = WAIT_MS;
	int i;

	WANT(fi_control(fids[0], FI_GETWAIT, &p.fd), 0);
	for (i = 0; i < 20 && took > 50; i++) {
		post_receive(server, 0, 8);
		post_receive(client, 0, 8);
		while (fi_trywait(server->fabric, fids, 1) != 0)
			none(server);
		WANT(fi_inject(server->ep, server->memory, 8, 0), 0);
		WANT(next(client, &e), 0);
		usleep(10000);
		post_send(client, 0, 8);
		began = milliseconds();
		WANT(poll(&p, 1, WAIT_MS), 1);
		took = milliseconds() - began;
		WANT(next(server, &e), 0);
		WANT(next(client, &e), 0);
	}
	WANT(took <= 50, true);
}

static void waiting(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	struct fid *fids[1];
	struct pollfd p = {.events = POLLIN};

	section = "waiting";
	side_open(&server, true, FI_WAIT_FD);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	WANT(fi_cq_sread(client.cq, &e, 1, NULL, 10), -FI_ENOSYS);
	WANT(fi_cq_sread(server.cq, &e, 1, NULL, 20), -FI_EAGAIN);
	fids[0] = &server.cq->fid;
	WANT(fi_control(&server.cq->fid, FI_GETWAIT, &p.fd), 0);
	post_receive(&server, 0, 8);
	WANT(fi_trywait(server.fabric, fids, 1), 0);
	WANT(poll(&p, 1, 20), 0);
	post_send(&client, 0, 8);
	WANT(poll(&p, 1, WAIT_MS), 1);
	WANT(fi_trywait(server.fabric, fids, 1), -FI_EAGAIN);
	WANT(fi_cq_sread(server.cq, &e, 1, NULL, WAIT_MS), 1);
	WANT(fi_cq_signal(server.cq), 0);
	WANT(fi_cq_sread(server.cq, &e, 1, NULL, WAIT_MS), -FI_EAGAIN);
	WANT(next(&client, &e), 0);
	woken_after_silence(&client, &server);
	side_close(&client);
	side_close(&server);
}

/* Messages, writes and reads of more than a VI of VIA must carry, up to what the provider says. */
static void large(void)
{
	size_t n = 40 << 20, last = n - 1;
	char *b = aligned_alloc(4096, n), *own = aligned_alloc(4096, n);
	struct side client, server;
	struct fi_cq_data_entry e;
	struct fid_mr *mr, *mine;

	section = "large messages";
	WANT(b != NULL && own != NULL, true);
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	WANT(fi_mr_reg(server.domain, b, n, FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	connect_sides(&client, &server);
	memset(own, 7, n);
	WANT(fi_mr_reg(client.domain, own, n, FI_SEND | FI_READ | FI_WRITE, 0, 0, 0, &mine, NULL), 0);
	WANT(fi_recv(server.ep, b, n, fi_mr_desc(mr), 0, NULL), 0);
	WANT(fi_send(client.ep, own, n, fi_mr_desc(mine), 0, NULL), 0);
	while (fi_cq_read(server.cq, &e, 1) == -FI_EAGAIN)
		(void)fi_cq_read(client.cq, NULL, 0);
	WANT(e.len, n);
	WANT(b[last], 7);
	WANT(next(&client, &e), 0);
	memset(own, 9, n);
	WANT(fi_write(client.ep, own, n, fi_mr_desc(mine), 0, (uint64_t)(uintptr_t)b, fi_mr_key(mr), NULL), 0);
	while (fi_cq_read(client.cq, &e, 1) == -FI_EAGAIN)
		(void)fi_cq_read(server.cq, NULL, 0);
	WANT(b[0] == 9 && b[last] == 9, true);
	b[last] = 11;
	WANT(fi_read(client.ep, own, n, fi_mr_desc(mine), 0, (uint64_t)(uintptr_t)b, fi_mr_key(mr), NULL), 0);
	while (fi_cq_read(client.cq, &e, 1) == -FI_EAGAIN)
		(void)fi_cq_read(server.cq, NULL, 0);
	WANT(own[0] == 9 && own[last] == 11, true);
	WANT(fi_close(&mine->fid), 0);
	WANT(fi_close(&mr->fid), 0);
	side_close(&client);
	side_close(&server);
	free(own);
	free(b);
}

/* Ends with work under way: receives and sends that are never taken, a request that is not answered. */
static void ends(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	int i, error;

	section = "ends";
	for (i = 0; i < 10; i++) {
		side_open(&server, true, FI_WAIT_NONE);
		side_open(&client, false, FI_WAIT_NONE);
		connect_sides(&client, &server);
		post_receive(&client, 0, 8);
		post_send(&server, 0, 8);
		post_send(&client, 0, 60000);
		if (i % 2 == 0) {
			side_close(&client);
			WANT(event(&server, NULL, NULL, &error), FI_SHUTDOWN);
			side_close(&server);
		} else {
			side_close(&server);
			WANT(event(&client, NULL, NULL, &error), FI_SHUTDOWN);
			WANT(fi_recv(client.ep, client.memory, 8, fi_mr_desc(client.mr), 0, NULL), -FI_ENOTCONN);
			while (next(&client, &e) != FI_ECANCELED)
				;
			side_close(&client);
		}
	}
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	begin_connect(&client, &server, NULL, 0);
	side_close(&client);
	side_close(&server);
}

/* Threads that post and read at one end point. */
static struct side shared_client;
static int sent;

static void *sender(void *argument)
{
	struct fi_cq_data_entry e;
	int i;

	(void)argument;
	for (i = 0; i < 500; i++) {
		while (fi_send(shared_client.ep, shared_client.memory, 64, fi_mr_desc(shared_client.mr), 0, NULL) == -FI_EAGAIN)
			;
		if (fi_cq_read(shared_client.cq, &e, 1) == 1)
			__atomic_fetch_add(&sent, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void threads(void)
{
	struct side server;
	struct fi_cq_data_entry e;
	pthread_t t[4];
	int i;

	section = "threads";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&shared_client, false, FI_WAIT_NONE);
	connect_sides(&shared_client, &server);
	for (i = 0; i < 100; i++)
		post_receive(&server, 0, 64);
	for (i = 0; i < 4; i++)
		WANT(pthread_create(&t[i], NULL, sender, NULL), 0);
	for (i = 0; i < 2000; i++) {
		WANT(next(&server, &e), 0);
		if (i < 1900)
			post_receive(&server, 0, 64);
	}
	for (i = 0; i < 4; i++)
		WANT(pthread_join(t[i], NULL), 0);
	while (sent < 2000) {
		WANT(next(&shared_client, &e), 0);
		sent++;
	}
	side_close(&shared_client);
	side_close(&server);
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : 0;

	if ((argc == 4 || argc == 6) && strcmp(argv[1], "time") == 0 && count > 0 && atoi(argv[3]) > 0 && atoi(argv[3]) <= ROOM) {
		measure_messages(count, (size_t)atoi(argv[3]), argc == 6 ? argv + 4 : NULL);
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "connections") == 0 && count > 0) {
		measure_connections(count);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "leave") == 0)
		leave();
	if (argc != 1) {
		fprintf(stderr, "usage: %s [time MESSAGES BYTES [DEVICE DEVICE] | connections COUNT | leave]\n", argv[0]);
		return 2;
	}
	peers();
	refused_hints();
	refused_calls();
	connection_data();
	refused_connections();
	messages();
	early_completion();
	rma();
	selective();
	counters();
	refused_counters();
	failed_injects();
	serialized();
	waiting();
	ends();
	large();
	unread_queue();
	lost_memory();
	waiting_receives();
	threads();
	signals();
	forked();
	printf("%d checks passed\n", checks);
	return 0;
}
