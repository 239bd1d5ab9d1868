/* Checks of counters, of what injected messages tell, and of a domain that its user serializes. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

/* connect_counted connects two sides. The client has no queue for what it sends, but counters. */
static void connect_counted(struct side *client, struct side *server, struct fid_cntr **sends, struct fid_cntr **reads, struct fid_cntr **receives)
{
	int error;

	side_open(server, true, FI_WAIT_NONE);
	side_open(client, false, FI_WAIT_NONE);
	WANT(fi_cntr_open(client->domain, NULL, sends, NULL), 0);
	WANT(fi_cntr_open(client->domain, NULL, reads, NULL), 0);
	WANT(fi_cntr_open(server->domain, NULL, receives, NULL), 0);
	WANT(fi_endpoint(client->domain, client->info, &client->ep, NULL), 0);
	WANT(fi_ep_bind(client->ep, &client->eq->fid, 0), 0);
	WANT(fi_ep_bind(client->ep, &client->cq->fid, FI_RECV), 0);
	WANT(fi_enable(client->ep), -FI_ENOCQ);
	WANT(fi_ep_bind(client->ep, &(*sends)->fid, FI_SEND | FI_WRITE), 0);
	WANT(fi_ep_bind(client->ep, &(*reads)->fid, FI_READ), 0);
	WANT(fi_enable(client->ep), 0);
	begin_connect(client, server, NULL, 0);
	server_request(server, NULL, NULL);
	WANT(fi_endpoint(server->domain, server->info, &server->ep, NULL), 0);
	WANT(fi_ep_bind(server->ep, &server->eq->fid, 0), 0);
	WANT(fi_ep_bind(server->ep, &server->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	WANT(fi_ep_bind(server->ep, &(*receives)->fid, FI_RECV), 0);
	WANT(fi_accept(server->ep, NULL, 0), 0);
	WANT(event(server, NULL, NULL, &error), FI_CONNECTED);
	WANT(event(client, NULL, NULL, &error), FI_CONNECTED);
}

/* reach reads two counters, whose NICs work in that call, until the first is as large as wanted. */
static void reach(struct fid_cntr *c, uint64_t wanted, struct fid_cntr *other)
{
	int64_t end = milliseconds() + WAIT_MS;

	while (fi_cntr_read(c) < wanted && milliseconds() < end)
		(void)fi_cntr_read(other);
	WANT(fi_cntr_read(c), wanted);
}

static void reach_error(struct fid_cntr *c)
{
	int64_t end = milliseconds() + WAIT_MS;

	while (fi_cntr_readerr(c) < 1 && milliseconds() < end)
		;
	WANT(fi_cntr_readerr(c), 1);
}

static volatile bool stop;

/* fail_again counts failures, some of them while another thread waits. */
static void *fail_again(void *argument)
{
	while (!stop) {
		(void)fi_cntr_adderr(argument, 1);
		usleep(1000);
	}
	return NULL;
}

void counters(void)
{
	struct side client, server;
	struct fid_cntr *sends, *reads, *receives;
	struct fi_cq_data_entry e;
	uint64_t key, at;
	pthread_t t;
	int i, error;

	section = "counters";
	connect_counted(&client, &server, &sends, &reads, &receives);
	key = fi_mr_key(server.mr);
	at = (uint64_t)(uintptr_t)server.memory;
	for (i = 0; i < 20; i++)
		post_receive(&server, 0, 8);
	for (i = 0; i < 10; i++) {
		post_send(&client, 0, 8);
		WANT(fi_inject(client.ep, "x", 1, 0), 0); /* counted too */
	}
	reach(receives, 20, sends);
	reach(sends, 20, receives);
	for (i = 0; i < 20; i++)
		WANT(next(&server, &e), 0); /* the queue has them as well */
	WANT(fi_write(client.ep, client.memory, 8, fi_mr_desc(client.mr), 0, at, key, NULL), 0);
	reach(sends, 21, receives);
	WANT(fi_cntr_read(reads), 0);
	WANT(fi_read(client.ep, client.memory, 8, fi_mr_desc(client.mr), 0, at, key, NULL), 0);
	reach(reads, 1, receives);
	none(&client);

	/* Waiting ends with the count, the time, or a failure. */
	WANT(fi_cntr_wait(receives, 20, 0), 0);
	WANT(fi_cntr_wait(receives, 21, 20), -FI_ETIMEDOUT);
	WANT(fi_cntr_set(receives, 5), 0);
	WANT(fi_cntr_add(receives, 3), 0);
	WANT(fi_cntr_read(receives), 8);
	post_receive(&server, 0, 8);
	post_send(&client, 0, 8);
	WANT(fi_cntr_wait(receives, 9, WAIT_MS), 0);
	reach(sends, 22, receives);
	WANT(fi_close(&sends->fid), -FI_EBUSY);
	post_receive(&server, 0, 8);
	WANT(fi_close(&client.ep->fid), 0);
	client.ep = NULL;
	reach_error(receives);
	stop = false;
	WANT(pthread_create(&t, NULL, fail_again, receives), 0);
	WANT(fi_cntr_wait(receives, 10, WAIT_MS), -FI_EAVAIL);
	stop = true;
	WANT(pthread_join(t, NULL), 0);
	WANT(event(&server, NULL, NULL, &error), FI_SHUTDOWN);
	WANT(fi_close(&client.domain->fid), -FI_EBUSY);
	WANT(fi_close(&sends->fid), 0);
	WANT(fi_close(&reads->fid), 0);
	WANT(fi_close(&server.ep->fid), 0);
	server.ep = NULL;
	WANT(fi_close(&receives->fid), 0);
	side_close(&client);
	side_close(&server);
}

void refused_counters(void)
{
	struct fi_cntr_attr bytes = {.events = FI_CNTR_EVENTS_COMP + 1}, set = {.wait_obj = FI_WAIT_SET}, flags = {.flags = 1}, silent = {.wait_obj = FI_WAIT_NONE};
	struct side s, other;
	struct fid_cntr *c = NULL, *foreign;
	struct fid_ep *ep;

	section = "refused counters";
	side_open(&s, false, FI_WAIT_NONE);
	side_open(&other, false, FI_WAIT_NONE);
	WANT(fi_cntr_open(s.domain, &bytes, &c, NULL), -FI_ENOSYS);
	WANT(fi_cntr_open(s.domain, &set, &c, NULL), -FI_ENOSYS);
	WANT(fi_cntr_open(s.domain, &flags, &c, NULL), -FI_EBADFLAGS);
	WANT(fi_cntr_open(s.domain, &silent, &c, NULL), 0);
	WANT(fi_cntr_open(other.domain, NULL, &foreign, NULL), 0);
	WANT(fi_cntr_wait(c, 1, 1), -FI_ENOSYS);
	WANT(fi_endpoint(s.domain, s.info, &ep, NULL), 0);
	WANT(fi_ep_bind(ep, &c->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
	WANT(fi_ep_bind(ep, &c->fid, 0), -FI_EBADFLAGS);
	WANT(fi_ep_bind(ep, &c->fid, FI_SEND | FI_TAGGED), -FI_EBADFLAGS);
	WANT(fi_ep_bind(ep, &foreign->fid, FI_SEND), -FI_EDOMAIN);
	WANT(fi_ep_bind(ep, &c->fid, FI_SEND | FI_RECV), 0);
	WANT(fi_ep_bind(ep, &c->fid, FI_RECV), -FI_EINVAL);
	WANT(fi_close(&c->fid), -FI_EBUSY);
	WANT(fi_close(&ep->fid), 0);
	WANT(fi_close(&c->fid), 0);
	WANT(fi_close(&foreign->fid), 0);
	side_close(&s);
	side_close(&other);
}

/* An injected message has no context, by which ofi_rxm would know it: its failure is not told. */
void failed_injects(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	int i, error;

	section = "injected messages that fail";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	for (i = 0; i < 3; i++)
		WANT(fi_inject(client.ep, "x", 1, 0), 0);
	post_send(&client, 0, 8);
	WANT(fi_inject(client.ep, "x", 1, 0), 0);
	side_close(&server);
	WANT(event(&client, NULL, NULL, &error), FI_SHUTDOWN);
	WANT(next(&client, &e), FI_ECANCELED);
	WANT(e.op_context == client.memory, true);
	none(&client);
	side_close(&client);
}

/* A user who sees to it that one thread at a time is in a domain gets one that would allow more. */
void serialized(void)
{
	struct fi_info *h = hints(), *i;
	struct side client, server;
	struct fi_cq_data_entry e;

	section = "FI_THREAD_DOMAIN";
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	WANT(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h, &i), 0);
	WANT(i->domain_attr->threading, FI_THREAD_DOMAIN);
	fi_freeinfo(h);
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	WANT(fi_close(&client.mr->fid), 0);
	WANT(fi_close(&client.cq->fid), 0);
	WANT(fi_close(&client.domain->fid), 0);
	fi_freeinfo(client.info);
	client.info = i;
	WANT(fi_domain(client.fabric, client.info, &client.domain, NULL), 0);
	WANT(fi_cq_open(client.domain, &(struct fi_cq_attr){.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE}, &client.cq, NULL), 0);
	WANT(fi_mr_reg(client.domain, client.memory, ROOM, FI_SEND | FI_RECV, 0, 0, 0, &client.mr, NULL), 0);
	connect_sides(&client, &server);
	post_receive(&server, 0, 8);
	post_send(&client, 0, 8);
	WANT(next(&server, &e), 0);
	WANT(next(&client, &e), 0);
	side_close(&client);
	side_close(&server);
}
