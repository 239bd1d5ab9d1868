/* What a user may do wrong, and what may befall him: memory of devices, a queue that is not read, signals. */
#define _GNU_SOURCE /* fopencookie */
#include "check.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include <rdma/fi_atomic.h>

void refused_calls(void)
{
	struct fi_info *h = hints(), *i = NULL;
	struct side s;
	struct iovec v;
	struct fi_mr_attr device = {.mr_iov = &v, .iov_count = 1, .access = FI_SEND, .iface = FI_HMEM_CUDA};
	struct fi_atomic_attr atomic;
	struct fid_mr *mr;
	struct fid_ep *ep;

	section = "refused calls";
	WANT(fi_getinfo(FI_VERSION(99, 0), NULL, NULL, 0, h, &i), -FI_ENOSYS);
	h->domain_attr->mr_mode = FI_MR_BASIC;
	WANT(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, h, &i), 0);
	WANT(i->domain_attr->mr_mode, FI_MR_BASIC);
	fi_freeinfo(i);
	fi_freeinfo(h);
	side_open(&s, false, FI_WAIT_NONE);
	v = (struct iovec){s.memory, ROOM};
	WANT(fi_mr_regattr(s.domain, &device, 0, &mr), -FI_EOPNOTSUPP);
	v.iov_len = 0;
	device.iface = FI_HMEM_SYSTEM;
	WANT(fi_mr_regattr(s.domain, &device, 0, &mr), -FI_EINVAL);
	WANT(fi_query_atomic(s.domain, FI_UINT64, FI_SUM, &atomic, 0), -FI_EOPNOTSUPP);
	s.info->ep_attr->type = FI_EP_RDM;
	WANT(fi_endpoint(s.domain, s.info, &ep, NULL), -FI_EINVAL);
	s.info->ep_attr->type = FI_EP_MSG;
	s.info->tx_attr->size = 1025;
	WANT(fi_endpoint(s.domain, s.info, &ep, NULL), -FI_EINVAL);
	s.info->tx_attr->size = 128;
	WANT(fi_endpoint(s.domain, s.info, &ep, NULL), 0);
	WANT(fi_enable(ep), -FI_ENOCQ);
	WANT(fi_ep_bind(ep, &s.cq->fid, FI_SEND | FI_RECV), 0);
	WANT(fi_ep_bind(ep, &s.cq->fid, FI_RECV), -FI_EINVAL);
	WANT(fi_enable(ep), -FI_ENOEQ);
	WANT(fi_recv(ep, s.memory, 8, fi_mr_desc(s.mr), 0, NULL), -FI_EOPBADSTATE);
	WANT(fi_close(&ep->fid), 0);
	side_close(&s);
}

void unread_queue(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	int sent = 0, idle = 0, i;

	section = "a queue that is not read";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	for (i = 0; i < 64; i++)
		post_receive(&server, 0, 8);
	/* Nothing reads the client's queue: posts are refused in the end, and no completion is lost. */
	while (idle < 1000) {
		ssize_t r = fi_send(client.ep, client.memory, 8, fi_mr_desc(client.mr), 0, NULL);

		if (r == 0)
			sent++;
		else
			WANT(r, -FI_EAGAIN);
		if (fi_cq_read(server.cq, &e, 1) == 1) {
			post_receive(&server, 0, 8);
			idle = 0;
		} else {
			idle++;
		}
		if (sent > 5000)
			FAIL("%d sends, and no completion read", sent);
	}
	if (sent < 1024)
		FAIL("only %d sends", sent);
	for (i = 0; i < sent; i++)
		WANT(next(&client, &e), 0);
	none(&client);
	post_send(&client, 0, 8);
	WANT(next(&client, &e), 0);
	WANT(next(&server, &e), 0);
	side_close(&client);
	side_close(&server);
}

void lost_memory(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;

	section = "memory that is deregistered under a receive";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	post_receive(&server, 0, 8);
	WANT(fi_close(&server.mr->fid), 0);
	WANT(fi_mr_reg(server.domain, server.memory, ROOM, FI_RECV, 0, 0, 0, &server.mr, NULL), 0);
	post_send(&client, 0, 8);
	WANT(next(&server, &e), FI_EACCES);
	side_close(&client);
	side_close(&server);
}

void waiting_receives(void)
{
	enum { COUNT = 100 }; /* more than half of a queue: the rest waits in the provider */
	struct side client, server;
	struct fi_cq_data_entry e;
	int i;

	section = "receives that wait in the provider";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	for (i = 0; i < COUNT; i++) {
		post_receive(&server, 8 * (size_t)i, 8);
		client.memory[8 * i] = (char)(i + 1);
		post_send(&client, 8 * (size_t)i, 8);
	}
	for (i = 0; i < COUNT; i++) {
		WANT(next(&server, &e), 0);
		WANT((char *)e.op_context - server.memory, 8 * i);
		WANT(e.len, 8);
		WANT(server.memory[8 * i], (char)(i + 1));
		WANT(next(&client, &e), 0);
	}
	for (i = 0; i < COUNT; i++)
		post_receive(&server, 8 * (size_t)i, 8);
	WANT(fi_close(&client.ep->fid), 0);
	client.ep = NULL;
	for (i = 0; i < COUNT; i++) {
		WANT(next(&server, &e), FI_ECANCELED);
		WANT((char *)e.op_context - server.memory, 8 * i);
	}
	side_close(&client);
	side_close(&server);
}

static volatile sig_atomic_t alarms;

static void count_alarm(int signal)
{
	(void)signal;
	alarms++;
}

static ssize_t write_slowly(void *cookie, const char *b, size_t n)
{
	(void)cookie, (void)b;
	usleep(300000); /* as into a pipe whose reader is slow */
	return (ssize_t)n;
}

void leave(void)
{
	struct side s;
	FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_slowly});

	section = "leaving";
	side_open(&s, true, FI_WAIT_FD);
	fputs("result", out); /* exit writes it when libfabric has unloaded its providers */
	exit(0);
}

void signals(void)
{
	struct sigaction action = {.sa_handler = count_alarm}, before;
	struct itimerval each = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	struct side client, server;
	struct fi_cq_data_entry e;
	int64_t end = milliseconds() + WAIT_MS;
	int i;

	section = "signals";
	WANT(sigaction(SIGALRM, &action, &before), 0); /* without SA_ONSTACK, which the library adds */
	side_open(&server, true, FI_WAIT_FD);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	WANT(setitimer(ITIMER_REAL, &each, NULL), 0);
	for (i = 0; (i < 2000 || alarms < 20) && milliseconds() < end; i++) {
		ssize_t n;

		post_receive(&server, 0, 64);
		post_send(&client, 0, 64);
		do
			n = fi_cq_sread(server.cq, &e, 1, NULL, 1000);
		while (n == -FI_EAGAIN || n == -FI_EINTR);
		WANT(n, 1);
		WANT(next(&client, &e), 0);
	}
	WANT(setitimer(ITIMER_REAL, &never, NULL), 0);
	WANT(alarms >= 20, true);
	side_close(&client);
	side_close(&server);
	WANT(sigaction(SIGALRM, &before, NULL), 0);
}
