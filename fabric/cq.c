/* Completion queues: what end points have completed and their user has not read. */
#include "provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* LEAST is how many completions a queue holds at least: a power of two. */
#define LEAST 256

/* double_ring makes room for as many completions again. */
static int double_ring(struct cq *q)
{
	size_t size = 2 * (q->mask + 1), i;
	struct completion *ring = malloc(size * sizeof(*ring));

	if (ring == NULL)
		return -FI_ENOMEM;
	for (i = q->head; i != q->tail; i++)
		ring[i & (size - 1)] = q->ring[i & q->mask];
	free(q->ring);
	q->ring = ring;
	q->mask = size - 1;
	return 0;
}

bool cq_full(const struct cq *q) { return q->tail - q->head >= q->limit; }

void cq_add(struct cq *q, const struct completion *c)
{
	if (q->tail - q->head > q->mask && double_ring(q) != 0) {
		FI_WARN(&provider, FI_LOG_CQ, "a completion is lost: no memory\n");
		return;
	}
	q->ring[q->tail++ & q->mask] = *c;
	disarm(q->domain, &q->waits);
	signal_set(q->fd);
}

void cq_lost(struct cq *q)
{
	if (q == NULL)
		return;
	q->lost = true;
	disarm(q->domain, &q->waits);
	signal_set(q->fd);
}

static size_t entry_size(enum fi_cq_format f)
{
	switch (f) {
	case FI_CQ_FORMAT_CONTEXT:
		return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	default:
		return 0;
	}
}

/* copy copies completions to a user, and says how many; the domain's lock is held. Each format
 * is the beginning of the longer ones. */
static ssize_t copy(struct cq *q, void *buf, size_t count)
{
	size_t size = entry_size(q->format), n;

	for (n = 0; n < count && q->head != q->tail; n++, q->head++) {
		const struct completion *c = &q->ring[q->head & q->mask];

		if (c->error != 0)
			return n != 0 ? (ssize_t)n : -FI_EAVAIL;
		memcpy((char *)buf + n * size, &c->entry, size);
	}
	return n != 0 ? (ssize_t)n : -FI_EAGAIN;
}

/* look has the NIC work. Layers of libfabric read until there is nothing, and reply then: that read is answered
 * without the NIC, which would send alone the acknowledgement that the reply carries. */
static void look(struct cq *q, size_t wanted)
{
	if (q->domain->answer)
		q->domain->answer = false;
	else
		progress(q->domain, q, wanted);
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *from)
{
	struct cq *q = (struct cq *)fid;
	ssize_t n, i;

	if (in_child())
		return -FI_EOPNOTSUPP;
	pthread_mutex_lock(&q->domain->lock);
	if (q->tail - q->head < count || count == 0)
		look(q, count);
	n = count != 0 ? copy(q, buf, count) : q->head == q->tail ? -FI_EAGAIN : 0;
	if (n == -FI_EAGAIN && q->lost) {
		q->lost = false;
		n = -FI_ENOTCONN;
	}
	pthread_mutex_unlock(&q->domain->lock);
	for (i = 0; from != NULL && i < n; i++)
		from[i] = FI_ADDR_NOTAVAIL;
	return n;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count) { return cq_readfrom(fid, buf, count, NULL); }

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
	struct cq *q = (struct cq *)fid;
	ssize_t n = -FI_EAGAIN;

	(void)flags;
	pthread_mutex_lock(&q->domain->lock);
	if (q->head != q->tail && q->ring[q->head & q->mask].error != 0) {
		const struct completion *c = &q->ring[q->head++ & q->mask];

		*buf = (struct fi_cq_err_entry){.op_context = c->entry.op_context, .flags = c->entry.flags, .len = c->entry.len, .buf = c->entry.buf,
			.data = c->entry.data, .err = c->error, .prov_errno = c->status};
		n = 1;
	}
	pthread_mutex_unlock(&q->domain->lock);
	return n;
}

int cq_arm(struct cq *q)
{
	int r;

	pthread_mutex_lock(&q->domain->lock);
	signal_clear(q->fd);
	progress(q->domain, q, 1);
	r = q->head != q->tail || q->lost ? -FI_EAGAIN : arm(q->domain, &q->waits);
	pthread_mutex_unlock(&q->domain->lock);
	return r;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *from, const void *cond, int timeout)
{
	struct cq *q = (struct cq *)fid;
	int64_t end = now_ms() + timeout;

	(void)cond;
	if (q->fd < 0)
		return -FI_ENOSYS;
	for (;;) {
		ssize_t n = cq_readfrom(fid, buf, count, from);
		int left = timeout < 0 ? -1 : (int)(end - now_ms());

		if (n != -FI_EAGAIN || (timeout >= 0 && left <= 0))
			return n;
		if (__atomic_exchange_n(&q->signaled, false, __ATOMIC_ACQ_REL))
			return -FI_EAGAIN;
		n = cq_arm(q);
		if (n == 0)
			n = signal_wait(q->fd, left);
		if (n != 0 && n != -FI_EAGAIN)
			return n;
	}
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct cq *q = (struct cq *)fid;

	if (q->fd < 0)
		return -FI_ENOSYS;
	__atomic_store_n(&q->signaled, true, __ATOMIC_RELEASE);
	signal_set(q->fd);
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int status, const void *data, char *buf, size_t len)
{
	static const char *const names[] = {"format error", "protection error", "length error", "partial error", "flushed", "transport error",
					    "RDMA protection error", "remote descriptor error"};
	const char *s = "no error";
	size_t i;

	(void)fid, (void)data;
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if ((status & (VIP_STATUS_FORMAT_ERROR << i)) != 0)
			s = names[i];
	if (buf != NULL && len != 0) {
		strncpy(buf, s, len - 1);
		buf[len - 1] = 0;
	}
	return s;
}

static int cq_close(struct fid *fid)
{
	struct cq *q = (struct cq *)fid;
	struct domain *d = q->domain;
	bool busy;

	pthread_mutex_lock(&d->lock);
	busy = q->users != 0;
	if (!busy) {
		disarm(d, &q->waits);
		d->users--;
	}
	pthread_mutex_unlock(&d->lock);
	if (busy)
		return -FI_EBUSY;
	if (q->fd >= 0)
		close(q->fd);
	free(q->ring);
	free(q);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct cq *q = (struct cq *)fid;

	return wait_object(q->fd, command, arg);
}

static struct fi_ops fid_ops = {sizeof(fid_ops), cq_close, no_bind, cq_control, no_ops_open, NULL, NULL};
static struct fi_ops_cq ops = {sizeof(ops), cq_read, cq_readfrom, cq_readerr, cq_sread, cq_sreadfrom, cq_signal, cq_strerror};

int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
	struct domain *d = (struct domain *)domain;
	struct cq *q;
	int r = -FI_ENOMEM;

	if (attr == NULL || (attr->format != FI_CQ_FORMAT_UNSPEC && entry_size(attr->format) == 0) || attr->wait_cond != FI_CQ_COND_NONE)
		return -FI_EINVAL;
	if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC && attr->wait_obj != FI_WAIT_FD)
		return -FI_ENOSYS;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return r;
	q->fd = -1;
	q->domain = d;
	q->format = attr->format != FI_CQ_FORMAT_UNSPEC ? attr->format : FI_CQ_FORMAT_CONTEXT;
	q->ring = malloc(LEAST * sizeof(*q->ring));
	q->mask = LEAST - 1;
	q->limit = attr->size > MAX_DEPTH ? attr->size : MAX_DEPTH;
	if (q->ring == NULL || (attr->wait_obj != FI_WAIT_NONE && (r = signal_open(&q->fd)) != 0)) {
		free(q->ring);
		free(q);
		return r;
	}
	q->cq.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &fid_ops};
	q->cq.ops = &ops;
	pthread_mutex_lock(&d->lock);
	d->users++;
	pthread_mutex_unlock(&d->lock);
	*cq = &q->cq;
	return 0;
}
