/* The data path: descriptors are filled in, posted, and become completions. */
#include "provider.h"

#include <string.h>

/* What is to be posted. */
struct post {
	const struct iovec *iov;
	void *const *desc;
	size_t count;
	void *context;
	uint64_t flags;	 /* of the operation: FI_COMPLETION, FI_INJECT, FI_REMOTE_CQ_DATA */
	uint64_t reports; /* flags of the completion */
	uint16_t op;	 /* VIP_CONTROL_OP_... */
	uint32_t data;
	uint64_t address, key; /* of remote memory */
	bool inject;	       /* by a call that has no context: neither its end nor its failure is told */
};

/* fill writes a descriptor and says how many bytes it moves, or an error. */
static ssize_t fill(const struct ep *ep, VIP_DESCRIPTOR *d, const struct post *p, uint8_t *inject)
{
	VIP_DESCRIPTOR_SEGMENT *s = d->DS;
	size_t total = 0, i;

	if (p->op != VIP_CONTROL_OP_SENDRECV) {
		if (p->key > UINT32_MAX)
			return -FI_EKEYREJECTED;
		s->Remote = (VIP_ADDRESS_SEGMENT){.Data.AddressBits = p->address, .Handle = (VIP_MEM_HANDLE)p->key};
		s++;
	}
	for (i = 0; i < p->count; i++) {
		if (p->iov[i].iov_len == 0)
			continue;
		if (total + p->iov[i].iov_len > (inject != NULL ? INJECT_SIZE : ep->domain->attributes.MaxTransferSize))
			return -FI_EMSGSIZE;
		if (inject != NULL) {
			memcpy(inject + total, p->iov[i].iov_base, p->iov[i].iov_len);
		} else {
			if (p->desc == NULL || p->desc[i] == NULL)
				return -FI_EINVAL; /* FI_MR_LOCAL: memory is registered */
			s->Local = (VIP_DATA_SEGMENT){.Data.Address = p->iov[i].iov_base, .Handle = (VIP_MEM_HANDLE)(uintptr_t)p->desc[i],
				.Length = (VIP_UINT32)p->iov[i].iov_len};
			s++;
		}
		total += p->iov[i].iov_len;
	}
	if (inject != NULL && total != 0) {
		s->Local = (VIP_DATA_SEGMENT){.Data.Address = inject, .Handle = ep->memory, .Length = (VIP_UINT32)total};
		s++;
	}
	d->CS = (VIP_CONTROL_SEGMENT){.SegCount = (VIP_UINT16)(s - d->DS), .Control = p->op, .Length = (VIP_UINT32)total};
	if ((p->flags & FI_REMOTE_CQ_DATA) != 0) {
		d->CS.Control |= VIP_CONTROL_IMMEDIATE;
		d->CS.ImmediateData = p->data;
	}
	return (ssize_t)total;
}

int post_error(VIP_RETURN r)
{
	return r == VIP_ERROR_RESOURCE ? -FI_EAGAIN : r == VIP_INVALID_PARAMETER || r == VIP_DESCRIPTOR_ERROR ? -FI_EINVAL : error_of(r);
}

VIP_DESCRIPTOR *descriptor(const struct work *w, uint32_t index)
{
	return (VIP_DESCRIPTOR *)((char *)w->descriptors + (size_t)(index % w->depth) * STRIDE);
}

/* completes_early reports whether a send completes when it is posted: it is copied, and its user did not ask to learn when the
 * peer has it. Layers free what a send was of once they hear from other peers that all is over; what this peer has to
 * say may come later. */
static bool completes_early(const struct work *w, const struct post *p)
{
	size_t total = 0, i;

	if (w->cq == NULL || p->inject || (p->reports & FI_SEND) == 0 || ((p->flags | w->flags) & PLACED) != 0 ||
	    (w->selective && (p->flags & FI_COMPLETION) == 0))
		return false;
	for (i = 0; i < p->count && total <= INJECT_SIZE; i++)
		total += p->iov[i].iov_len;
	return total <= INJECT_SIZE;
}

/* post_to posts to one of the queues; the domain's lock is held. */
static ssize_t post_to(struct ep *ep, struct work *w, bool receive, const struct post *p)
{
	uint32_t i = w->posted % w->depth;
	VIP_DESCRIPTOR *d = descriptor(w, i);
	struct op *op = &w->ops[i];
	bool early = completes_early(w, p);
	VIP_RETURN r;
	ssize_t n;

	if (w->posted - w->done == w->depth || (w->cq != NULL && cq_full(w->cq)))
		return -FI_EAGAIN;
	n = fill(ep, d, p, early || (p->flags & FI_INJECT) != 0 ? w->inject + (size_t)i * INJECT_SIZE : NULL);
	if (n < 0)
		return n;
	*op = (struct op){.context = p->context, .buffer = receive && p->count != 0 ? p->iov[0].iov_base : NULL, .flags = p->reports,
		.silence = early ? EARLY : p->inject ? SILENT : w->selective && (p->flags & FI_COMPLETION) == 0 ? QUIET : TOLD};
	w->posted++; /* before the post, which may deliver */
	if (receive)
		return post_receive(ep);
	r = vip.PostSend(ep->vi, d, ep->memory);
	if (r != VIP_SUCCESS) {
		w->posted--;
	} else if (early) {
		struct completion c = {.entry = {.op_context = p->context, .flags = p->reports, .len = (size_t)n}};

		w->early++;
		cq_add(w->cq, &c);
	}
	return post_error(r);
}

static ssize_t post(struct fid_ep *fid, bool receive, const struct post *p)
{
	struct ep *ep = (struct ep *)fid;
	struct work *w = receive ? &ep->receive : &ep->send;
	ssize_t r;

	if (in_child())
		return -FI_EOPNOTSUPP;
	if (p->count > SEGMENTS)
		return -FI_EINVAL;
	pthread_mutex_lock(&ep->domain->lock);
	if (ep->vi == NULL)
		r = -FI_EOPBADSTATE;
	else if (ep->state == EP_ENDED || (!receive && ep->state == EP_IDLE))
		r = -FI_ENOTCONN;
	else if (!receive && ep->state == EP_CONNECTING)
		r = -FI_EAGAIN; /* a message of the peer may be here before accept_thread says that the connection is */
	else
		r = post_to(ep, w, receive, p);
	if (r == -FI_EAGAIN)
		progress(ep->domain, NULL, SIZE_MAX); /* else a user who only posts would wait for ever */
	pthread_mutex_unlock(&ep->domain->lock);
	return r;
}

/* failure is the error of a status, positive. */
static int failure(uint32_t status)
{
	if ((status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0)
		return FI_ECANCELED;
	if ((status & VIP_STATUS_LENGTH_ERROR) != 0)
		return FI_ETRUNC;
	if ((status & (VIP_STATUS_PROTECTION_ERROR | VIP_STATUS_RDMA_PROT_ERROR)) != 0)
		return FI_EACCES;
	if ((status & VIP_STATUS_REMOTE_DESC_ERROR) != 0)
		return FI_EREMOTEIO;
	if ((status & VIP_STATUS_FORMAT_ERROR) != 0)
		return FI_EINVAL;
	return FI_EIO;
}

void complete(struct ep *ep, VIP_DESCRIPTOR *d, bool receive)
{
	struct work *w = receive ? &ep->receive : &ep->send;
	size_t i = (size_t)((char *)d - (char *)w->descriptors) / STRIDE;
	uint32_t status = d->CS.Status;
	struct op *op = &w->ops[i];
	struct completion c = {.entry = {.op_context = op->context, .flags = op->flags, .buf = op->buffer}};

	struct cntr *counter = (op->flags & FI_READ) != 0 ? w->reads : (op->flags & FI_WRITE) != 0 ? w->writes : w->messages;

	w->done++;
	if (counter != NULL)
		cntr_count(counter, (status & VIP_STATUS_ERROR_MASK) != 0);
	if (w->cq == NULL)
		return;
	if (op->silence == EARLY)
		w->early--;
	if (op->silence == SILENT || op->silence == EARLY)
		return; /* ofi_rxm would take its context for a message of its own; the end of the connection is an event */
	if ((status & VIP_STATUS_ERROR_MASK) != 0) {
		c.error = failure(status);
		c.status = (int)(status & VIP_STATUS_ERROR_MASK);
		cq_add(w->cq, &c);
		return;
	}
	if (op->silence == QUIET)
		return;
	c.entry.len = d->CS.Length;
	if (receive && (status & VIP_STATUS_IMMEDIATE) != 0) {
		c.entry.flags |= FI_REMOTE_CQ_DATA;
		c.entry.data = d->CS.ImmediateData;
	}
	if (receive && (status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_REMOTE_RDMA_WRITE)
		c.entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
	cq_add(w->cq, &c);
}

/* flags_of are those of an operation that names none of its own. */
static uint64_t flags_of(struct fid_ep *fid, bool receive)
{
	struct ep *ep = (struct ep *)fid;

	return receive ? ep->receive.flags : ep->send.flags;
}

/* Receives. */

static ssize_t ep_recvmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
	struct post p = {.iov = m->msg_iov, .desc = m->desc, .count = m->iov_count, .context = m->context, .flags = flags & FI_COMPLETION,
		.reports = FI_MSG | FI_RECV};

	if ((flags & (FI_PEEK | FI_CLAIM | FI_DISCARD | FI_MULTI_RECV)) != 0)
		return -FI_EBADFLAGS;
	return post(ep, true, &p);
}

static ssize_t ep_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, void *context)
{
	struct fi_msg m = {.msg_iov = iov, .desc = desc, .iov_count = count, .addr = from, .context = context};

	return ep_recvmsg(ep, &m, flags_of(ep, true));
}

static ssize_t ep_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	struct iovec v = {buf, len};

	return ep_recvv(ep, &v, &desc, 1, from, context);
}

/* Sends. */

static ssize_t send_post(struct fid_ep *ep, const struct iovec *iov, void *const *desc, size_t count, void *context, uint64_t data, uint64_t flags)
{
	struct post p = {.iov = iov, .desc = desc, .count = count, .context = context, .flags = flags, .reports = FI_MSG | FI_SEND, .data = (uint32_t)data};

	if ((flags & FI_REMOTE_CQ_DATA) != 0 && data > UINT32_MAX)
		return -FI_EINVAL;
	return post(ep, false, &p);
}

static ssize_t ep_sendmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
	return send_post(ep, m->msg_iov, m->desc, m->iov_count, m->context, m->data, flags);
}

static ssize_t ep_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, void *context)
{
	(void)to;
	return send_post(ep, iov, desc, count, context, 0, flags_of(ep, false));
}

static ssize_t ep_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	struct iovec v = {(void *)buf, len};

	(void)to;
	return send_post(ep, &v, &desc, 1, context, 0, flags_of(ep, false));
}

static ssize_t ep_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, void *context)
{
	struct iovec v = {(void *)buf, len};

	(void)to;
	return send_post(ep, &v, &desc, 1, context, data, flags_of(ep, false) | FI_REMOTE_CQ_DATA);
}

static ssize_t inject_post(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, uint64_t flags)
{
	struct iovec v = {(void *)buf, len};
	struct post p = {.iov = &v, .count = 1, .flags = FI_INJECT | flags, .reports = FI_MSG | FI_SEND, .data = (uint32_t)data, .inject = true};

	if (data > UINT32_MAX)
		return -FI_EINVAL;
	return post(ep, false, &p);
}

static ssize_t ep_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to)
{
	(void)to;
	return inject_post(ep, buf, len, 0, 0);
}

static ssize_t ep_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	(void)to;
	return inject_post(ep, buf, len, data, FI_REMOTE_CQ_DATA);
}

struct fi_ops_msg msg_ops = {sizeof(msg_ops), ep_recv, ep_recvv, ep_recvmsg, ep_send, ep_sendv, ep_sendmsg, ep_inject, ep_senddata, ep_injectdata};

/* RMA. */

static ssize_t rma_post(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags, uint16_t op, bool inject)
{
	struct post p = {.iov = m->msg_iov, .desc = m->desc, .count = m->iov_count, .context = m->context, .flags = flags, .op = op,
		.reports = FI_RMA | (op == VIP_CONTROL_OP_RDMAREAD ? FI_READ : FI_WRITE), .data = (uint32_t)m->data,
		.address = m->rma_iov->addr, .key = m->rma_iov->key, .inject = inject};

	if (m->rma_iov_count != 1)
		return -FI_EINVAL;
	if ((flags & FI_REMOTE_CQ_DATA) != 0) {
		/* VIA's write with immediate data takes a receive, to which the user must have agreed. */
		if (!((struct ep *)fid)->remote_data || op == VIP_CONTROL_OP_RDMAREAD)
			return -FI_EOPNOTSUPP;
		if (m->data > UINT32_MAX)
			return -FI_EINVAL;
	}
	if (op == VIP_CONTROL_OP_RDMAREAD)
		p.flags &= ~(uint64_t)FI_INJECT;
	return post(fid, false, &p);
}

static ssize_t ep_readmsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
	return rma_post(ep, m, flags, VIP_CONTROL_OP_RDMAREAD, false);
}

static ssize_t ep_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov remote = {.addr = addr, .key = key};
	struct fi_msg_rma m = {.msg_iov = iov, .desc = desc, .iov_count = count, .addr = from, .rma_iov = &remote, .rma_iov_count = 1, .context = context};

	return ep_readmsg(ep, &m, flags_of(ep, false));
}

static ssize_t ep_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
	struct iovec v = {buf, len};

	return ep_readv(ep, &v, &desc, 1, from, addr, key, context);
}

static ssize_t ep_writemsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
	return rma_post(ep, m, flags, VIP_CONTROL_OP_RDMAWRITE, false);
}

static ssize_t ep_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov remote = {.addr = addr, .key = key};
	struct fi_msg_rma m = {.msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .rma_iov = &remote, .rma_iov_count = 1, .context = context};

	return ep_writemsg(ep, &m, flags_of(ep, false));
}

static ssize_t ep_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	struct iovec v = {(void *)buf, len};

	return ep_writev(ep, &v, &desc, 1, to, addr, key, context);
}

static ssize_t write_inject(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, uint64_t addr, uint64_t key, uint64_t flags)
{
	struct iovec v = {(void *)buf, len};
	struct fi_rma_iov remote = {.addr = addr, .key = key};
	struct fi_msg_rma m = {.msg_iov = &v, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1, .data = data};

	return rma_post(ep, &m, flags | FI_INJECT, VIP_CONTROL_OP_RDMAWRITE, true);
}

static ssize_t ep_writeinject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key)
{
	(void)to;
	return write_inject(ep, buf, len, 0, addr, key, 0);
}

static ssize_t ep_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	struct iovec v = {(void *)buf, len};
	struct fi_rma_iov remote = {.addr = addr, .key = key};
	struct fi_msg_rma m = {.msg_iov = &v, .desc = &desc, .iov_count = 1, .addr = to, .rma_iov = &remote, .rma_iov_count = 1, .context = context, .data = data};

	return ep_writemsg(ep, &m, flags_of(ep, false) | FI_REMOTE_CQ_DATA);
}

static ssize_t ep_writeinjectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key)
{
	(void)to;
	return write_inject(ep, buf, len, data, addr, key, FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma rma_ops = {sizeof(rma_ops), ep_read, ep_readv, ep_readmsg, ep_write, ep_writev, ep_writemsg, ep_writeinject, ep_writedata, ep_writeinjectdata};
