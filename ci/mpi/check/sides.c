#include "check.h"

#include <arpa/inet.h>
#include <string.h>
#include <time.h>

int64_t milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

struct fi_info *hints(void)
{
	struct fi_info *h = fi_allocinfo();

	if (h == NULL)
		FAIL("no memory");
	h->caps = FI_MSG | FI_RMA;
	h->ep_attr->type = FI_EP_MSG;
	h->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->fabric_attr->prov_name = strdup("trapeze");
	return h;
}

void side_open(struct side *s, bool listens, enum fi_wait_obj wait)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .wait_obj = wait};
	struct fi_info *h = hints();

	memset(s, 0, sizeof(*s));
	WANT(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h, &s->info), 0);
	fi_freeinfo(h);
	WANT(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), 0);
	WANT(fi_eq_open(s->fabric, &eq, &s->eq, NULL), 0);
	WANT(fi_domain(s->fabric, s->info, &s->domain, NULL), 0);
	WANT(fi_cq_open(s->domain, &cq, &s->cq, NULL), 0);
	s->memory = aligned_alloc(4096, ROOM);
	if (s->memory == NULL)
		FAIL("no memory");
	memset(s->memory, 0, ROOM);
	WANT(fi_mr_reg(s->domain, s->memory, ROOM, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &s->mr, NULL), 0);
	if (!listens)
		return;
	WANT(fi_passive_ep(s->fabric, s->info, &s->pep, NULL), 0);
	WANT(fi_pep_bind(s->pep, &s->eq->fid, 0), 0);
	WANT(fi_listen(s->pep), 0);
}

void side_close(struct side *s)
{
	if (s->ep != NULL)
		WANT(fi_close(&s->ep->fid), 0);
	if (s->pep != NULL)
		WANT(fi_close(&s->pep->fid), 0);
	WANT(fi_close(&s->mr->fid), 0);
	WANT(fi_close(&s->cq->fid), 0);
	WANT(fi_close(&s->domain->fid), 0);
	WANT(fi_close(&s->eq->fid), 0);
	WANT(fi_close(&s->fabric->fid), 0);
	fi_freeinfo(s->info);
	free(s->memory);
	memset(s, 0, sizeof(*s));
}

void ep_make(struct side *s, struct fi_info *info, uint64_t flags)
{
	WANT(fi_endpoint(s->domain, info, &s->ep, NULL), 0);
	WANT(fi_ep_bind(s->ep, &s->eq->fid, 0), 0);
	WANT(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | flags), 0);
	WANT(fi_ep_bind(s->ep, &s->cq->fid, FI_RECV), 0);
	WANT(fi_enable(s->ep), 0);
}

struct sockaddr_in address_of(struct side *s)
{
	struct sockaddr_in a;
	size_t n = sizeof(a);

	WANT(fi_getname(&s->pep->fid, &a, &n), 0);
	return a;
}

void begin_connect(struct side *client, struct side *server, const void *data, size_t size)
{
	struct sockaddr_in a = address_of(server);

	if (client->ep == NULL)
		ep_make(client, client->info, 0);
	WANT(fi_connect(client->ep, &a, data, size), 0);
}

uint32_t event(struct side *s, void *data, size_t *size, int *error)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
	} e;
	struct fi_eq_err_entry failed = {0};
	uint32_t type = 0;
	ssize_t n = fi_eq_sread(s->eq, &type, &e, sizeof(e), WAIT_MS, 0);

	if (n == -FI_EAVAIL) {
		WANT(fi_eq_readerr(s->eq, &failed, 0), sizeof(failed));
		*error = failed.err;
		if (size != NULL) {
			*size = failed.err_data_size;
			memcpy(data, failed.err_data, *size);
		}
		return 0;
	}
	if (n < (ssize_t)sizeof(e.entry))
		FAIL("no event: %s", fi_strerror((int)-n));
	*error = 0;
	if (size != NULL) {
		*size = (size_t)n - sizeof(e.entry);
		memcpy(data, e.entry.data, *size);
	}
	if (type == FI_CONNREQ)
		s->info->handle = NULL, fi_freeinfo(s->info), s->info = e.entry.info;
	return type;
}

struct fi_info *server_request(struct side *server, void *data, size_t *size)
{
	int error;

	WANT(event(server, data, size, &error), FI_CONNREQ);
	return server->info;
}

void connect_sides(struct side *client, struct side *server)
{
	int error;

	begin_connect(client, server, NULL, 0);
	ep_make(server, server_request(server, NULL, NULL), 0);
	WANT(fi_accept(server->ep, NULL, 0), 0);
	WANT(event(server, NULL, NULL, &error), FI_CONNECTED);
	WANT(event(client, NULL, NULL, &error), FI_CONNECTED);
}

int next(struct side *s, struct fi_cq_data_entry *e)
{
	struct fi_cq_err_entry failed = {0};
	int64_t end = milliseconds() + WAIT_MS;
	ssize_t n;

	do
		n = fi_cq_read(s->cq, e, 1);
	while (n == -FI_EAGAIN && milliseconds() < end);
	if (n == 1)
		return 0;
	if (n != -FI_EAVAIL)
		FAIL("no completion: %s", fi_strerror((int)-n));
	WANT(fi_cq_readerr(s->cq, &failed, 0), 1);
	e->op_context = failed.op_context;
	return failed.err;
}

void none(struct side *s)
{
	struct fi_cq_data_entry e;
	int64_t end = milliseconds() + 50;

	while (milliseconds() < end)
		if (fi_cq_read(s->cq, &e, 1) != -FI_EAGAIN)
			FAIL("a completion that must not be");
	checks++;
}

void post_receive(struct side *s, size_t at, size_t n)
{
	WANT(fi_recv(s->ep, s->memory + at, n, fi_mr_desc(s->mr), 0, s->memory + at), 0);
}

void post_send(struct side *s, size_t at, size_t n)
{
	WANT(fi_send(s->ep, s->memory + at, n, fi_mr_desc(s->mr), 0, s->memory + at), 0);
}
