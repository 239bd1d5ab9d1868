/* End points: a VI with its descriptors. */
#include "provider.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t rounded(size_t n) { return (n + 4095) & ~(size_t)4095; }

/* make_slab makes descriptors and room for injected bytes, which the NIC must reach. */
static int make_slab(struct ep *ep)
{
	size_t send = (size_t)ep->send.depth * STRIDE, receive = (size_t)ep->receive.depth * STRIDE, inject = (size_t)ep->send.depth * INJECT_SIZE;
	VIP_MEM_ATTRIBUTES plain = {NULL, VIP_FALSE, VIP_FALSE};
	int r;

	ep->send.ops = calloc(ep->send.depth, sizeof(struct op));
	ep->receive.ops = calloc(ep->receive.depth, sizeof(struct op));
	if (ep->send.ops == NULL || ep->receive.ops == NULL)
		return -FI_ENOMEM;
	ep->slab_size = rounded(send + receive + inject);
	ep->slab = mmap(NULL, ep->slab_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ep->slab == MAP_FAILED) {
		ep->slab = NULL;
		return -errno;
	}
	r = error_of(vip.RegisterMem(ep->domain->nic, ep->slab, ep->slab_size, &plain, &ep->memory));
	if (r != 0)
		return r;
	ep->send.descriptors = ep->slab;
	ep->receive.descriptors = (VIP_DESCRIPTOR *)((char *)ep->slab + send);
	ep->send.inject = (uint8_t *)ep->slab + send + receive;
	return 0;
}

static void free_slab(struct ep *ep)
{
	if (ep->memory != 0)
		(void)vip.DeregisterMem(ep->domain->nic, ep->slab, ep->memory);
	if (ep->slab != NULL)
		munmap(ep->slab, ep->slab_size);
	free(ep->send.ops);
	free(ep->receive.ops);
	ep->memory = 0;
	ep->slab = NULL;
	ep->send.ops = ep->receive.ops = NULL;
}

/* make_vi makes the VI. The queues of completions have room for all that it may complete. */
static int make_vi(struct ep *ep)
{
	struct domain *d = ep->domain;
	VIP_VI_ATTRIBUTES a = {.ReliabilityLevel = VIP_SERVICE_RELIABLE_RECEPTION, .MaxTransferSize = d->attributes.MaxTransferSize,
		.EnableRdmaWrite = VIP_TRUE, .EnableRdmaRead = VIP_TRUE};
	int r;

	if ((d->attributes.ReliabilityLevelSupport & a.ReliabilityLevel) == 0)
		return -FI_EOPNOTSUPP;
	r = error_of(vip.CreateViSized(d->nic, &a, d->cq, d->cq, ep->send.depth, ep->receive.depth, &ep->vi));
	if (r != 0)
		return r;
	pthread_mutex_lock(&d->lock);
	r = domain_add(d, ep);
	pthread_mutex_unlock(&d->lock);
	if (r != 0) {
		(void)vip.DestroyVi(ep->vi);
		ep->vi = NULL;
	}
	return r;
}

int ep_enable(struct ep *ep)
{
	int r;

	if (ep->vi != NULL)
		return 0;
	if ((ep->send.cq == NULL && ep->send.messages == NULL && ep->send.reads == NULL && ep->send.writes == NULL) ||
	    (ep->receive.cq == NULL && ep->receive.messages == NULL))
		return -FI_ENOCQ;
	if (ep->eq == NULL)
		return -FI_ENOEQ;
	r = make_slab(ep);
	if (r == 0)
		r = make_vi(ep);
	if (r != 0) {
		FI_WARN(&provider, FI_LOG_EP_CTRL, "an end point cannot be enabled: %s\n", fi_strerror(-r));
		free_slab(ep);
	}
	return r;
}

/* empty takes back what is posted, after the connection has ended. */
static void empty(struct ep *ep)
{
	int64_t end = now_ms() + 2000;

	while (now_ms() < end) {
		VIP_DESCRIPTOR *d = NULL;
		VIP_RETURN r = vip.RecvDone(ep->vi, &d), s = vip.SendDone(ep->vi, &d);

		/* An empty queue returns an error and no descriptor. */
		if (r != VIP_SUCCESS && r != VIP_NOT_DONE && s != VIP_SUCCESS && s != VIP_NOT_DONE && d == NULL &&
		    vip.DestroyVi(ep->vi) == VIP_SUCCESS)
			return;
	}
	FI_WARN(&provider, FI_LOG_EP_CTRL, "a VI was not destroyed: what is posted does not end\n");
}

static void drop_counters(const struct work *w)
{
	struct cntr *all[] = {w->messages, w->reads, w->writes};
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i] != NULL)
			__atomic_fetch_sub(&all[i]->users, 1, __ATOMIC_ACQ_REL);
}

void linger(struct ep *ep)
{
	struct domain *d = ep->domain;
	int64_t end = now_ms() + LINGER_MS;

	pthread_mutex_lock(&d->lock);
	while (ep->state == EP_CONNECTED && ep->send.early != 0 && now_ms() < end) {
		progress(d, NULL, SIZE_MAX);
		pthread_mutex_unlock(&d->lock);
		sched_yield();
		pthread_mutex_lock(&d->lock);
	}
	pthread_mutex_unlock(&d->lock);
}

static int ep_close(struct fid *fid)
{
	struct ep *ep = (struct ep *)fid;
	struct domain *d = ep->domain;

	if (in_child())
		return -FI_EOPNOTSUPP;
	linger(ep);
	stop_connecting(ep);
	pthread_mutex_lock(&d->lock);
	ep->state = EP_ENDED;
	if (ep->vi != NULL)
		domain_remove(d, ep);
	drop_receives(ep);
	if (ep->send.cq != NULL)
		ep->send.cq->users--;
	if (ep->receive.cq != NULL)
		ep->receive.cq->users--;
	drop_counters(&ep->send);
	drop_counters(&ep->receive);
	pthread_mutex_unlock(&d->lock);
	if (ep->vi != NULL) {
		(void)vip.Disconnect(ep->vi);
		empty(ep);
	}
	free_slab(ep);
	if (ep->eq != NULL)
		__atomic_fetch_sub(&ep->eq->users, 1, __ATOMIC_ACQ_REL);
	libfabric.freeinfo(ep->info);
	__atomic_fetch_sub(&d->users, 1, __ATOMIC_ACQ_REL);
	free(ep);
	return 0;
}

static int bind_cq(struct ep *ep, struct cq *q, uint64_t flags)
{
	static const uint64_t known = FI_TRANSMIT | FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION;

	if ((flags & ~known) != 0 || (flags & (FI_TRANSMIT | FI_SEND | FI_RECV)) == 0)
		return -FI_EBADFLAGS;
	if (q->domain != ep->domain)
		return -FI_EDOMAIN;
	if (((flags & (FI_TRANSMIT | FI_SEND)) != 0 && ep->send.cq != NULL) || ((flags & FI_RECV) != 0 && ep->receive.cq != NULL))
		return -FI_EINVAL;
	pthread_mutex_lock(&ep->domain->lock);
	if ((flags & (FI_TRANSMIT | FI_SEND)) != 0) {
		ep->send.cq = q;
		ep->send.selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
		q->users++;
	}
	if ((flags & FI_RECV) != 0) {
		ep->receive.cq = q;
		ep->receive.selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
		q->users++;
	}
	pthread_mutex_unlock(&ep->domain->lock);
	return 0;
}

/* bind_counter has a counter count operations of some kinds. VIA does not tell a host what others read and
 * write in its memory. */
static int bind_counter(struct ep *ep, struct cntr *c, uint64_t flags)
{
	struct {
		uint64_t flag;
		struct cntr **at;
	} kinds[] = {{FI_SEND, &ep->send.messages}, {FI_READ, &ep->send.reads}, {FI_WRITE, &ep->send.writes}, {FI_RECV, &ep->receive.messages}};
	uint64_t known = 0;
	size_t i;

	if ((flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
		return -FI_ENOSYS;
	if (c->domain != ep->domain)
		return -FI_EDOMAIN;
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		known |= kinds[i].flag;
		if ((flags & kinds[i].flag) != 0 && *kinds[i].at != NULL)
			return -FI_EINVAL;
	}
	if (flags == 0 || (flags & ~known) != 0)
		return -FI_EBADFLAGS;
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if ((flags & kinds[i].flag) != 0) {
			*kinds[i].at = c;
			__atomic_fetch_add(&c->users, 1, __ATOMIC_ACQ_REL);
		}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct ep *ep = (struct ep *)fid;

	if (ep->vi != NULL)
		return -FI_EOPBADSTATE;
	switch (other->fclass) {
	case FI_CLASS_EQ:
		if (ep->eq != NULL)
			return -FI_EINVAL;
		ep->eq = (struct eq *)other;
		__atomic_fetch_add(&ep->eq->users, 1, __ATOMIC_ACQ_REL);
		return 0;
	case FI_CLASS_CQ:
		return bind_cq(ep, (struct cq *)other, flags);
	case FI_CLASS_CNTR:
		return bind_counter(ep, (struct cntr *)other, flags);
	default:
		return -FI_ENOSYS;
	}
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct ep *ep = (struct ep *)fid;

	switch (command) {
	case FI_ENABLE:
		return in_child() ? -FI_EOPNOTSUPP : ep_enable(ep);
	case FI_GETOPSFLAG:
	case FI_SETOPSFLAG: {
		uint64_t *flags = arg;
		struct work *w = (*flags & FI_TRANSMIT) != 0 ? &ep->send : (*flags & FI_RECV) != 0 ? &ep->receive : NULL;

		if (w == NULL)
			return -FI_EINVAL;
		if (command == FI_GETOPSFLAG)
			*flags = w->flags;
		else
			w->flags = *flags & ~(uint64_t)(FI_TRANSMIT | FI_RECV);
		return 0;
	}
	default:
		return -FI_ENOSYS;
	}
}

int option_get(fid_t fid, int level, int name, void *value, size_t *size)
{
	(void)fid;
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
		return -FI_ENOPROTOOPT;
	if (*size < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = CM_DATA_SIZE;
	*size = sizeof(size_t);
	return 0;
}

static int no_option(fid_t fid, int level, int name, const void *value, size_t size)
{
	(void)fid, (void)level, (void)name, (void)value, (void)size;
	return -FI_ENOPROTOOPT;
}

/* VIA has no way to take a receive back that the NIC has. */
static ssize_t no_cancel(fid_t fid, void *context)
{
	(void)fid, (void)context;
	return -FI_ENOSYS;
}

static int no_tx(struct fid_ep *ep, int index, struct fi_tx_attr *a, struct fid_ep **tx, void *context)
{
	(void)ep, (void)index, (void)a, (void)tx, (void)context;
	return -FI_ENOSYS;
}

static int no_rx(struct fid_ep *ep, int index, struct fi_rx_attr *a, struct fid_ep **rx, void *context)
{
	(void)ep, (void)index, (void)a, (void)rx, (void)context;
	return -FI_ENOSYS;
}

static ssize_t left(struct ep *ep, const struct work *w)
{
	pthread_mutex_lock(&ep->domain->lock);
	ssize_t n = w->depth - (w->posted - w->done);
	pthread_mutex_unlock(&ep->domain->lock);
	return n;
}

static ssize_t rx_left(struct fid_ep *fid) { return left((struct ep *)fid, &((struct ep *)fid)->receive); }

static ssize_t tx_left(struct fid_ep *fid) { return left((struct ep *)fid, &((struct ep *)fid)->send); }

static struct fi_ops fid_ops = {sizeof(fid_ops), ep_close, ep_bind, ep_control, no_ops_open, NULL, NULL};
static struct fi_ops_ep ops = {sizeof(ops), no_cancel, option_get, no_option, no_tx, no_rx, rx_left, tx_left};

int ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **made, void *context)
{
	struct ep *ep;

	if (info == NULL || info->ep_attr == NULL || info->ep_attr->type != FI_EP_MSG || info->tx_attr == NULL || info->rx_attr == NULL ||
	    info->tx_attr->size > MAX_DEPTH || info->rx_attr->size > MAX_DEPTH)
		return -FI_EINVAL;
	if (info->handle != NULL && info->handle->fclass != FI_CLASS_CONNREQ && info->handle->fclass != FI_CLASS_PEP)
		return -FI_EINVAL;
	ep = calloc(1, sizeof(*ep));
	if (ep == NULL)
		return -FI_ENOMEM;
	ep->info = libfabric.dupinfo(info);
	if (ep->info == NULL) {
		free(ep);
		return -FI_ENOMEM;
	}
	ep->domain = (struct domain *)domain;
	ep->socket.fd = -1;
	if (info->handle != NULL && info->handle->fclass == FI_CLASS_CONNREQ)
		ep->request = (struct request *)info->handle;
	else if (info->handle != NULL)
		take_address(ep, (struct pep *)info->handle);
	ep->send.depth = info->tx_attr->size != 0 ? (uint32_t)info->tx_attr->size : QUEUE_DEPTH;
	ep->receive.depth = info->rx_attr->size != 0 ? (uint32_t)info->rx_attr->size : QUEUE_DEPTH;
	ep->send.flags = info->tx_attr->op_flags;
	ep->receive.flags = info->rx_attr->op_flags;
	ep->remote_data = ((info->mode | info->rx_attr->mode) & FI_RX_CQ_DATA) != 0;
	ep->ep.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &fid_ops};
	ep->ep.ops = &ops;
	ep->ep.cm = &ep_cm_ops;
	ep->ep.msg = &msg_ops;
	ep->ep.rma = &rma_ops;
	__atomic_fetch_add(&ep->domain->users, 1, __ATOMIC_ACQ_REL);
	*made = &ep->ep;
	return 0;
}
