/* Fabrics, domains and memory regions. A domain is an opened NIC. */
#include "provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mr {
	struct fid_mr mr;
	struct domain *domain;
	void *base;
	VIP_MEM_HANDLE handle;
};

static int mr_close(struct fid *fid)
{
	struct mr *m = (struct mr *)fid;
	int r;

	if (in_child())
		return -FI_EOPNOTSUPP;
	r = error_of(vip.DeregisterMem(m->domain->nic, m->base, m->handle));
	if (r != 0)
		return r;
	__atomic_fetch_sub(&m->domain->users, 1, __ATOMIC_ACQ_REL);
	free(m);
	return 0;
}

static struct fi_ops mr_ops = {sizeof(mr_ops), mr_close, no_bind, no_control, no_ops_open, NULL, NULL};

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *a, uint64_t flags, struct fid_mr **mr)
{
	static const uint64_t known = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct domain *d = (struct domain *)fid;
	VIP_MEM_ATTRIBUTES m = {.EnableRdmaWrite = (a->access & FI_REMOTE_WRITE) != 0, .EnableRdmaRead = (a->access & FI_REMOTE_READ) != 0};
	struct mr *made;
	int r;

	if (in_child())
		return -FI_EOPNOTSUPP;
	/* Layers of libfabric add flags of their own, from bit 60 on: whether to cache a registration. */
	if (fid->fclass != FI_CLASS_DOMAIN || (flags & (((uint64_t)1 << 60) - 1)) != 0 || (a->access & ~known) != 0 || a->iov_count != 1 || a->mr_iov == NULL)
		return -FI_EINVAL;
	if (a->iface != FI_HMEM_SYSTEM || a->offset != 0)
		return -FI_EOPNOTSUPP;
	if (a->mr_iov->iov_base == NULL || a->mr_iov->iov_len == 0)
		return -FI_EINVAL;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -FI_ENOMEM;
	r = error_of(vip.RegisterMem(d->nic, a->mr_iov->iov_base, a->mr_iov->iov_len, &m, &made->handle));
	if (r != 0) {
		FI_WARN(&provider, FI_LOG_MR, "%zu bytes at %p cannot be registered: %s\n", a->mr_iov->iov_len, a->mr_iov->iov_base, fi_strerror(-r));
		free(made);
		return r;
	}
	made->domain = d;
	made->base = a->mr_iov->iov_base;
	made->mr.fid = (struct fid){.fclass = FI_CLASS_MR, .context = a->context, .ops = &mr_ops};
	made->mr.mem_desc = (void *)(uintptr_t)made->handle;
	made->mr.key = made->handle;
	__atomic_fetch_add(&d->users, 1, __ATOMIC_ACQ_REL);
	*mr = &made->mr;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
		   struct fid_mr **mr, void *context)
{
	struct fi_mr_attr a = {.mr_iov = iov, .iov_count = count, .access = access, .offset = offset, .requested_key = key, .context = context};

	return mr_regattr(fid, &a, flags, mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **mr,
		  void *context)
{
	struct iovec v = {(void *)buf, len};

	return mr_regv(fid, &v, 1, access, offset, key, flags, mr, context);
}

static struct fi_ops_mr mr_domain_ops = {sizeof(mr_domain_ops), mr_reg, mr_regv, mr_regattr};

/* slot is where the end point of a VI is in the table, or would be. */
static size_t slot(const struct domain *d, VIP_VI_HANDLE vi)
{
	size_t i = (size_t)((uintptr_t)vi * 0x9E3779B97F4A7C15u >> 32) & d->mask; /* Knuth, 6.4: multiplicative hashing */

	while (d->eps[i] != NULL && d->eps[i]->vi != vi)
		i = (i + 1) & d->mask;
	return i;
}

/* rehash makes the table anew with so many slots, a power of two. */
static int rehash(struct domain *d, size_t slots, const struct ep *without)
{
	struct ep **old = d->eps, **made = calloc(slots, sizeof(*made));
	size_t i, had = old != NULL ? d->mask + 1 : 0;

	if (made == NULL)
		return -FI_ENOMEM;
	d->eps = made;
	d->mask = slots - 1;
	for (i = 0; i < had; i++)
		if (old[i] != NULL && old[i] != without)
			d->eps[slot(d, old[i]->vi)] = old[i];
	free(old);
	return 0;
}

int domain_add(struct domain *d, struct ep *ep)
{
	int r;

	if (2 * (d->entries + 1) > d->mask + 1 && (r = rehash(d, 2 * (d->mask + 1), NULL)) != 0)
		return r;
	d->eps[slot(d, ep->vi)] = ep;
	d->entries++;
	return 0;
}

void domain_remove(struct domain *d, struct ep *ep)
{
	size_t i = slot(d, ep->vi), next;

	if (d->eps[i] != ep)
		return;
	d->eps[i] = NULL;
	d->entries--;
	/* Those behind it may have come there because it stood in their way. */
	for (next = (i + 1) & d->mask; d->eps[next] != NULL; next = (next + 1) & d->mask) {
		struct ep *moved = d->eps[next];

		d->eps[next] = NULL;
		d->eps[slot(d, moved->vi)] = moved;
	}
}

/* took delivers the descriptor that a queue of a VI has completed. */
static void took(struct domain *d, VIP_VI_HANDLE vi, bool receive)
{
	struct ep *ep = d->eps[slot(d, vi)];
	VIP_DESCRIPTOR *done = NULL;
	VIP_RETURN r;

	if (ep == NULL)
		return;
	r = receive ? vip.RecvDone(vi, &done) : vip.SendDone(vi, &done);
	if (done != NULL && (r == VIP_SUCCESS || r == VIP_DESCRIPTOR_ERROR))
		complete(ep, done, receive);
}

void progress(struct domain *d, const struct cq *q, size_t wanted)
{
	enum { ROOM = 16 };
	VIP_CQ_COMPLETION done[ROOM];
	VIP_ULONG n = ROOM, i;
	int calls;

	d->polls++;
	d->answer = false;
	if (d->waiting != NULL)
		hand_receives(d);
	/* A call that is not filled has found all. One more would have the NIC send acknowledgements that the
	 * user's next message can carry. */
	for (calls = 0; calls < 64 && n == ROOM && (calls == 0 || q == NULL || q->tail - q->head < wanted); calls++) {
		if (vip.CQPoll(d->cq, done, ROOM, &n) != VIP_SUCCESS)
			return;
		for (i = 0; i < n; i++) {
			struct ep *ep = d->eps[slot(d, done[i].ViHandle)];

			d->answer = d->answer || done[i].RecvQueue;
			if (ep != NULL && done[i].DescriptorPtr != NULL)
				complete(ep, done[i].DescriptorPtr, done[i].RecvQueue);
		}
	}
}

/* notify asks for a notice of the next completion, unless that has been done. */
static int notify(struct domain *d);

/* notified is called by a thread of the library with a completion for which notify has asked. */
static void notified(void *context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN receive)
{
	struct domain *d = context;

	(void)nic;
	pthread_mutex_lock(&d->lock);
	d->armed = false;
	took(d, vi, receive);
	if (d->waiters != 0)
		(void)notify(d); /* it was for another queue, or its completion is suppressed */
	pthread_mutex_unlock(&d->lock);
}

static int notify(struct domain *d)
{
	int r;

	if (d->armed)
		return 0;
	d->armed = true; /* before the call: the handler may run at once, and waits for the lock */
	r = error_of(vip.CQNotify(d->cq, d, notified));
	if (r != 0)
		d->armed = false;
	return r;
}

int arm(struct domain *d, bool *waits)
{
	if (!*waits) {
		*waits = true;
		d->waiters++;
	}
	return notify(d);
}

void disarm(struct domain *d, bool *waits)
{
	if (*waits) {
		*waits = false;
		d->waiters--;
	}
}

/* failed is called by a thread of the library with what no call can tell. */
static void failed(void *context, VIP_ERROR_DESCRIPTOR *e)
{
	struct domain *d = context;
	size_t i;

	pthread_mutex_lock(&d->fabric->lock);
	pthread_mutex_lock(&d->lock);
	if (e->ErrorCode == VIP_ERROR_CATASTROPHIC) {
		FI_WARN(&provider, FI_LOG_DOMAIN, "the NIC has failed; all its connections have ended\n");
		for (i = 0; i <= d->mask; i++)
			if (d->eps[i] != NULL)
				ended(d->eps[i]);
	} else if (e->ViHandle != NULL && e->ErrorCode == VIP_ERROR_CONN_LOST) {
		struct ep *ep = d->eps[slot(d, e->ViHandle)];

		if (ep != NULL && e->OpCode == VIP_PEER_LOST && ep->socket.id != 0)
			ep->socket.deadline = now_ms() + REST_MS; /* a process that has ended closes its socket */
		else if (ep != NULL)
			ended(ep);
	} else {
		FI_INFO(&provider, FI_LOG_DOMAIN, "error %d of VI %p\n", e->ErrorCode, e->ViHandle);
	}
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_unlock(&d->fabric->lock);
}

static int domain_close(struct fid *fid)
{
	struct domain *d = (struct domain *)fid, **at;

	if (in_child())
		return -FI_EOPNOTSUPP;
	if (__atomic_load_n(&d->users, __ATOMIC_ACQUIRE) != 0)
		return -FI_EBUSY;
	pthread_mutex_lock(&d->fabric->lock);
	for (at = &d->fabric->domains; *at != d; at = &(*at)->next)
		;
	*at = d->next;
	pthread_mutex_unlock(&d->fabric->lock);
	(void)vip.DestroyCQ(d->cq);
	(void)vip.CloseNic(d->nic); /* which waits for handlers */
	pthread_mutex_destroy(&d->lock);
	__atomic_fetch_sub(&d->fabric->users, 1, __ATOMIC_ACQ_REL);
	free(d->eps);
	free(d);
	return 0;
}

static int domain_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid;
	/* An event queue of a domain is told of asynchronous registration, which there is none of. */
	return other->fclass == FI_CLASS_EQ && (flags & FI_REG_MR) == 0 ? 0 : -FI_ENOSYS;
}

static int no_av(struct fid_domain *d, struct fi_av_attr *a, struct fid_av **av, void *context)
{
	(void)d, (void)a, (void)av, (void)context;
	return -FI_ENOSYS;
}

static int no_scalable(struct fid_domain *d, struct fi_info *i, struct fid_ep **ep, void *context)
{
	(void)d, (void)i, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *d, struct fi_poll_attr *a, struct fid_poll **p)
{
	(void)d, (void)a, (void)p;
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *d, struct fi_tx_attr *a, struct fid_stx **s, void *context)
{
	(void)d, (void)a, (void)s, (void)context;
	return -FI_ENOSYS;
}

static int no_srx(struct fid_domain *d, struct fi_rx_attr *a, struct fid_ep **ep, void *context)
{
	(void)d, (void)a, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_atomic(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *a, uint64_t flags)
{
	(void)d, (void)type, (void)op, (void)a, (void)flags;
	return -FI_EOPNOTSUPP;
}

static int no_collective(struct fid_domain *d, enum fi_collective_op c, struct fi_collective_attr *a, uint64_t flags)
{
	(void)d, (void)c, (void)a, (void)flags;
	return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {sizeof(domain_fid_ops), domain_close, domain_bind, no_control, no_ops_open, NULL, NULL};
static struct fi_ops_domain domain_ops = {.size = sizeof(domain_ops), .av_open = no_av, .cq_open = cq_open, .endpoint = ep_open, .scalable_ep = no_scalable,
	.cntr_open = cntr_open, .poll_open = no_poll, .stx_ctx = no_stx, .srx_ctx = no_srx, .query_atomic = no_atomic,
	.query_collective = no_collective};

/* open_nic opens the NIC, and what all its end points share. */
static int open_nic(struct domain *d)
{
	const char *address = device_address();
	VIP_RETURN r = vip.OpenNic(address, &d->nic);

	if (r != VIP_SUCCESS) {
		FI_WARN(&provider, FI_LOG_DOMAIN, "%s cannot be opened (%d): libvipl has said why on stderr; FI_TRAPEZE_DEVICE names another NIC\n", address, r);
		return -FI_ENODEV;
	}
	r = vip.QueryNic(d->nic, &d->attributes);
	if (r == VIP_SUCCESS && d->attributes.NicAddressLen != MAC_SIZE)
		r = VIP_ERROR_NOT_SUPPORTED;
	if (r == VIP_SUCCESS)
		r = vip.ErrorCallback(d->nic, d, failed);
	if (r == VIP_SUCCESS)
		r = vip.CreateCQ(d->nic, 64, &d->cq); /* which grows with its end points */
	if (r != VIP_SUCCESS) {
		(void)vip.CloseNic(d->nic);
		return error_of(r);
	}
	memcpy(d->mac, d->attributes.LocalNicAddress, MAC_SIZE);
	return 0;
}

int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	struct domain *d;
	int r;

	if (info == NULL || info->domain_attr == NULL)
		return -FI_EINVAL;
	if ((r = load_library()) != 0)
		return r;
	if (in_child()) {
		FI_WARN(&provider, FI_LOG_DOMAIN, "this process is a child of one that uses trapeze: call exec first\n");
		return -FI_EOPNOTSUPP;
	}
	d = calloc(1, sizeof(*d));
	if (d == NULL || rehash(d, 16, NULL) != 0) {
		free(d);
		return -FI_ENOMEM;
	}
	d->fabric = (struct fabric *)fabric;
	pthread_mutex_init(&d->lock, NULL);
	if ((r = open_nic(d)) != 0) {
		pthread_mutex_destroy(&d->lock);
		free(d->eps);
		free(d);
		return r;
	}
	d->domain.fid = (struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid_ops};
	d->domain.ops = &domain_ops;
	d->domain.mr = &mr_domain_ops;
	pthread_mutex_lock(&d->fabric->lock);
	d->next = d->fabric->domains;
	d->fabric->domains = d;
	pthread_mutex_unlock(&d->fabric->lock);
	__atomic_fetch_add(&d->fabric->users, 1, __ATOMIC_ACQ_REL);
	*domain = &d->domain;
	return 0;
}
