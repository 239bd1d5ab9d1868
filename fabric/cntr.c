/* Counters: how many operations of some kinds have completed, and how many have failed. */
#include "provider.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void cntr_count(struct cntr *c, bool failed)
{
	uint64_t *n = failed ? &c->errors : &c->value;

	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
	disarm(c->domain, &c->waits);
	signal_set(c->fd);
}

/* cntr_progress has the NIC work, which a user who has no other calls relies on. */
static void cntr_progress(struct cntr *c)
{
	if (in_child())
		return;
	pthread_mutex_lock(&c->domain->lock);
	progress(c->domain, NULL, SIZE_MAX);
	pthread_mutex_unlock(&c->domain->lock);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct cntr *c = (struct cntr *)fid;

	cntr_progress(c);
	return __atomic_load_n(&c->value, __ATOMIC_RELAXED);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct cntr *c = (struct cntr *)fid;

	cntr_progress(c);
	return __atomic_load_n(&c->errors, __ATOMIC_RELAXED);
}

/* change changes a number by hand, which is news for those who wait. */
static int change(struct cntr *c, uint64_t *n, uint64_t to, bool add)
{
	if (add)
		__atomic_fetch_add(n, to, __ATOMIC_RELAXED);
	else
		__atomic_store_n(n, to, __ATOMIC_RELAXED);
	signal_set(c->fd);
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t n) { return change((struct cntr *)fid, &((struct cntr *)fid)->value, n, true); }

static int cntr_set(struct fid_cntr *fid, uint64_t n) { return change((struct cntr *)fid, &((struct cntr *)fid)->value, n, false); }

static int cntr_adderr(struct fid_cntr *fid, uint64_t n) { return change((struct cntr *)fid, &((struct cntr *)fid)->errors, n, true); }

static int cntr_seterr(struct fid_cntr *fid, uint64_t n) { return change((struct cntr *)fid, &((struct cntr *)fid)->errors, n, false); }

int cntr_arm(struct cntr *c)
{
	uint64_t value = __atomic_load_n(&c->value, __ATOMIC_RELAXED), errors = __atomic_load_n(&c->errors, __ATOMIC_RELAXED);
	int r;

	pthread_mutex_lock(&c->domain->lock);
	signal_clear(c->fd);
	progress(c->domain, NULL, SIZE_MAX);
	r = value != __atomic_load_n(&c->value, __ATOMIC_RELAXED) || errors != __atomic_load_n(&c->errors, __ATOMIC_RELAXED) ? -FI_EAGAIN
															      : arm(c->domain, &c->waits);
	pthread_mutex_unlock(&c->domain->lock);
	return r;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct cntr *c = (struct cntr *)fid;
	uint64_t errors = __atomic_load_n(&c->errors, __ATOMIC_RELAXED);
	int64_t end = now_ms() + timeout;

	if (c->fd < 0)
		return -FI_ENOSYS;
	if (in_child())
		return -FI_EOPNOTSUPP;
	for (;;) {
		int r = cntr_arm(c), left;

		if (__atomic_load_n(&c->value, __ATOMIC_RELAXED) >= threshold)
			return 0;
		if (__atomic_load_n(&c->errors, __ATOMIC_RELAXED) != errors)
			return -FI_EAVAIL;
		left = timeout < 0 ? -1 : (int)(end - now_ms());
		if (timeout >= 0 && left <= 0)
			return -FI_ETIMEDOUT;
		if (r == 0)
			r = signal_wait(c->fd, left);
		if (r != 0 && r != -FI_EAGAIN)
			return r;
	}
}

static int cntr_close(struct fid *fid)
{
	struct cntr *c = (struct cntr *)fid;

	if (__atomic_load_n(&c->users, __ATOMIC_ACQUIRE) != 0)
		return -FI_EBUSY;
	pthread_mutex_lock(&c->domain->lock);
	disarm(c->domain, &c->waits);
	pthread_mutex_unlock(&c->domain->lock);
	__atomic_fetch_sub(&c->domain->users, 1, __ATOMIC_ACQ_REL);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
	return 0;
}

static int cntr_control(struct fid *fid, int command, void *arg) { return wait_object(((struct cntr *)fid)->fd, command, arg); }

static struct fi_ops fid_ops = {sizeof(fid_ops), cntr_close, no_bind, cntr_control, no_ops_open, NULL, NULL};
static struct fi_ops_cntr ops = {.size = sizeof(ops), .read = cntr_read, .readerr = cntr_readerr, .add = cntr_add, .set = cntr_set, .wait = cntr_wait,
	.adderr = cntr_adderr, .seterr = cntr_seterr};

int cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context)
{
	static const struct fi_cntr_attr none = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	const struct fi_cntr_attr *a = attr != NULL ? attr : &none;
	struct cntr *c;
	int r;

	if (a->flags != 0)
		return -FI_EBADFLAGS;
	if (a->events != FI_CNTR_EVENTS_COMP || (a->wait_obj != FI_WAIT_NONE && a->wait_obj != FI_WAIT_UNSPEC && a->wait_obj != FI_WAIT_FD))
		return -FI_ENOSYS;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -FI_ENOMEM;
	c->fd = -1;
	c->domain = (struct domain *)domain;
	if (a->wait_obj != FI_WAIT_NONE && (r = signal_open(&c->fd)) != 0) {
		free(c);
		return r;
	}
	c->cntr.fid = (struct fid){.fclass = FI_CLASS_CNTR, .context = context, .ops = &fid_ops};
	c->cntr.ops = &ops;
	__atomic_fetch_add(&c->domain->users, 1, __ATOMIC_ACQ_REL);
	*cntr = &c->cntr;
	return 0;
}
