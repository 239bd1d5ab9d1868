/* Event queues: what happens to connections. */
#include "provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add(struct eq *q, struct event *e)
{
	pthread_mutex_lock(&q->lock);
	*q->last = e;
	q->last = &e->next;
	pthread_mutex_unlock(&q->lock);
	signal_set(q->fd);
}

static struct event *make(uint32_t type, size_t size)
{
	struct event *e = calloc(1, sizeof(*e) + size);

	if (e == NULL) {
		FI_WARN(&provider, FI_LOG_EQ, "no memory for an event\n");
		return NULL;
	}
	e->type = type;
	e->size = size;
	return e;
}

int eq_connection(struct eq *q, uint32_t type, fid_t fid, struct fi_info *info, const void *data, size_t size)
{
	struct event *e = make(type, sizeof(struct fi_eq_cm_entry) + size);
	struct fi_eq_cm_entry *c;

	if (e == NULL)
		return -FI_ENOMEM;
	c = (struct fi_eq_cm_entry *)e->entry;
	c->fid = fid;
	c->info = info;
	if (size != 0)
		memcpy(c->data, data, size);
	add(q, e);
	return 0;
}

void eq_failure(struct eq *q, fid_t fid, int error, const void *data, size_t size)
{
	struct event *e = make(0, size);

	if (e == NULL)
		return;
	e->failed = true;
	e->error = (struct fi_eq_err_entry){.fid = fid, .context = fid->context, .err = error, .err_data_size = size};
	if (size != 0)
		memcpy(e->entry, data, size);
	add(q, e);
}

bool eq_empty(struct eq *q)
{
	pthread_mutex_lock(&q->lock);
	bool empty = q->first == NULL;
	pthread_mutex_unlock(&q->lock);
	return empty;
}

/* take takes the first event off the queue, whose lock is held. */
static void take(struct eq *q)
{
	struct event *e = q->first;

	q->first = e->next;
	if (q->first == NULL) {
		q->last = &q->first;
		signal_clear(q->fd);
	}
	free(e);
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *type, void *buf, size_t len, uint64_t flags)
{
	struct eq *q = (struct eq *)fid;
	struct event *e;
	ssize_t n;

	pthread_mutex_lock(&q->lock);
	e = q->first;
	if (e == NULL) {
		n = -FI_EAGAIN;
	} else if (e->failed) {
		n = -FI_EAVAIL;
	} else if (len < sizeof(struct fi_eq_cm_entry) && len < e->size) {
		n = -FI_ETOOSMALL;
	} else {
		n = (ssize_t)(len < e->size ? len : e->size); /* data beyond the room is cut */
		memcpy(buf, e->entry, (size_t)n);
		*type = e->type;
		if ((flags & FI_PEEK) == 0)
			take(q);
	}
	pthread_mutex_unlock(&q->lock);
	return n;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
	struct eq *q = (struct eq *)fid;
	struct event *e;
	ssize_t n = -FI_EAGAIN;

	pthread_mutex_lock(&q->lock);
	e = q->first;
	if (e != NULL && e->failed) {
		void *room = buf->err_data;
		size_t space = buf->err_data_size;

		*buf = e->error;
		if (room != NULL && space != 0) {
			/* Since libfabric 1.5 the user brings the room. */
			buf->err_data = room;
			buf->err_data_size = space < e->size ? space : e->size;
			memcpy(room, e->entry, buf->err_data_size);
		} else if (e->size != 0) {
			free(q->read_data);
			q->read_data = malloc(e->size);
			buf->err_data = q->read_data;
			buf->err_data_size = q->read_data != NULL ? e->size : 0;
			if (q->read_data != NULL)
				memcpy(q->read_data, e->entry, e->size);
		}
		n = sizeof(*buf);
		if ((flags & FI_PEEK) == 0)
			take(q);
	}
	pthread_mutex_unlock(&q->lock);
	return n;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t type, const void *buf, size_t len, uint64_t flags)
{
	struct event *e;

	if (flags != 0 || (buf == NULL && len != 0))
		return -FI_EINVAL;
	e = make(type, len);
	if (e == NULL)
		return -FI_ENOMEM;
	if (len != 0)
		memcpy(e->entry, buf, len);
	add((struct eq *)fid, e);
	return (ssize_t)len;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *type, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct eq *q = (struct eq *)fid;
	int64_t end = now_ms() + timeout;

	if (q->fd < 0)
		return -FI_ENOSYS;
	for (;;) {
		ssize_t n = eq_read(fid, type, buf, len, flags);
		int left = timeout < 0 ? -1 : (int)(end - now_ms());

		if (n != -FI_EAGAIN || (timeout >= 0 && left <= 0))
			return n;
		n = signal_wait(q->fd, left);
		if (n != 0 && n != -FI_EAGAIN)
			return n;
	}
}

static const char *eq_strerror(struct fid_eq *fid, int error, const void *data, char *buf, size_t len)
{
	(void)fid, (void)data;
	const char *s = fi_strerror(error);

	if (buf != NULL && len != 0) {
		strncpy(buf, s, len - 1);
		buf[len - 1] = 0;
	}
	return s;
}

static int eq_close(struct fid *fid)
{
	struct eq *q = (struct eq *)fid;

	if (__atomic_load_n(&q->users, __ATOMIC_ACQUIRE) != 0)
		return -FI_EBUSY;
	while (q->first != NULL) {
		if (!q->first->failed && q->first->type == FI_CONNREQ)
			libfabric.freeinfo(((struct fi_eq_cm_entry *)q->first->entry)->info);
		take(q);
	}
	if (q->fd >= 0)
		close(q->fd);
	free(q->read_data);
	pthread_mutex_destroy(&q->lock);
	__atomic_fetch_sub(&q->fabric->users, 1, __ATOMIC_ACQ_REL);
	free(q);
	return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct eq *q = (struct eq *)fid;

	return wait_object(q->fd, command, arg);
}

static struct fi_ops fid_ops = {sizeof(fid_ops), eq_close, no_bind, eq_control, no_ops_open, NULL, NULL};
static struct fi_ops_eq ops = {sizeof(ops), eq_read, eq_readerr, eq_write, eq_sread, eq_strerror};

int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context)
{
	static const struct fi_eq_attr none = {.wait_obj = FI_WAIT_UNSPEC};
	struct eq *q;
	int r = 0;

	if (attr == NULL)
		attr = (struct fi_eq_attr *)&none;
	if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC && attr->wait_obj != FI_WAIT_FD)
		return -FI_ENOSYS;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return -FI_ENOMEM;
	q->fd = -1;
	if (attr->wait_obj != FI_WAIT_NONE && (r = signal_open(&q->fd)) != 0) {
		free(q);
		return r;
	}
	q->eq.fid = (struct fid){.fclass = FI_CLASS_EQ, .context = context, .ops = &fid_ops};
	q->eq.ops = &ops;
	q->fabric = (struct fabric *)fabric;
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	__atomic_fetch_add(&q->fabric->users, 1, __ATOMIC_ACQ_REL);
	*eq = &q->eq;
	return 0;
}
