/* Passive end points, and the requests for connections that they get. */
#include "message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <netinet/tcp.h>
#include <unistd.h>

enum {
	REQUEST_MS = 5000,    /* for the message of a socket that has connected */
	MOST_REQUESTS = 1024, /* that a passive end point keeps */
};

void forget_request(struct request *r)
{
	struct request **at;

	unwatch(r->pep->fabric, &r->socket);
	for (at = &r->pep->requests; *at != NULL; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	r->pep->request_count--;
	if (r->socket.fd >= 0)
		close(r->socket.fd);
	free(r->got);
	free(r);
}

/* offer tells the user of a request that has arrived whole. */
static int offer(struct request *r, const struct message *m)
{
	struct sockaddr_storage a;
	struct fi_info *i;
	socklen_t n = sizeof(a);
	int e;

	i = libfabric.dupinfo(r->pep->info);
	if (i == NULL)
		return -FI_ENOMEM;
	free(i->dest_addr);
	i->dest_addr = NULL;
	i->dest_addrlen = 0;
	if (getpeername(r->socket.fd, (struct sockaddr *)&a, &n) == 0 && (i->dest_addr = malloc(n)) != NULL) {
		memcpy(i->dest_addr, &a, n);
		i->dest_addrlen = n;
	}
	i->handle = &r->fid;
	memcpy(r->mac, m->mac, MAC_SIZE);
	e = eq_connection(r->pep->eq, FI_CONNREQ, &r->pep->pep.fid, i, m->data, data_size(m));
	if (e != 0)
		libfabric.freeinfo(i);
	return e;
}

/* request_news reads the message of a socket that has connected. */
static bool request_news(struct watched *w)
{
	struct request *r = (struct request *)((char *)w - offsetof(struct request, socket));
	ssize_t n = -1;

	if (w->id != 0) {
		n = recv(w->fd, r->got + r->have, sizeof(struct message) - r->have, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
	}
	if (n > 0) {
		const struct message *m = (const struct message *)r->got;

		r->have += (size_t)n;
		if (r->have < sizeof(*m))
			return true;
		if (valid(m) && m->type == REQUEST && offer(r, m) == 0)
			return false; /* accept or reject go on */
	}
	FI_INFO(&provider, FI_LOG_EP_CTRL, "a socket that has connected sent no request\n");
	forget_request(r);
	return false;
}

static struct fi_ops request_ops = {sizeof(request_ops), NULL, no_bind, no_control, no_ops_open, NULL, NULL};

/* pep_news takes a connection. */
static bool pep_news(struct watched *w)
{
	struct pep *p = (struct pep *)((char *)w - offsetof(struct pep, socket));
	struct request *r;
	int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;

	if (fd < 0)
		return true;
	r = p->request_count < MOST_REQUESTS ? calloc(1, sizeof(*r)) : NULL;
	if (r == NULL || (r->got = malloc(sizeof(struct message))) == NULL) {
		free(r);
		close(fd);
		return true;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	r->fid = (struct fid){.fclass = FI_CLASS_CONNREQ, .ops = &request_ops};
	r->pep = p;
	r->socket = (struct watched){.fd = fd, .news = request_news, .deadline = now_ms() + REQUEST_MS};
	r->next = p->requests;
	p->requests = r;
	p->request_count++;
	if (watch(p->fabric, &r->socket, EPOLLIN) != 0)
		forget_request(r);
	return true;
}

static int pep_listen(struct fid_pep *fid)
{
	struct pep *p = (struct pep *)fid;
	int r = 0;

	if (p->eq == NULL)
		return -FI_ENOEQ;
	if (p->listening || p->socket.fd < 0)
		return -FI_EOPBADSTATE;
	if (listen(p->socket.fd, SOMAXCONN) != 0)
		return -errno;
	pthread_mutex_lock(&p->fabric->lock);
	p->socket.news = pep_news;
	r = watch(p->fabric, &p->socket, EPOLLIN);
	pthread_mutex_unlock(&p->fabric->lock);
	p->listening = r == 0;
	return r;
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *data, size_t size)
{
	struct pep *p = (struct pep *)fid;
	struct request *r;
	struct message m;
	int e = -FI_EINVAL;

	if (size > CM_DATA_SIZE)
		return e;
	compose(&m, REJECT, NULL, data, size);
	pthread_mutex_lock(&p->fabric->lock);
	for (r = p->requests; r != NULL && &r->fid != handle; r = r->next)
		;
	if (r != NULL) {
		/* A socket that has sent nothing has room for it. */
		e = send(r->socket.fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(m) ? 0 : -FI_ENOTCONN;
		forget_request(r);
	}
	pthread_mutex_unlock(&p->fabric->lock);
	return e;
}

/* bind_socket gives a passive end point its address. */
static int bind_socket(struct pep *p, const void *addr, size_t size)
{
	int one = 1, fd;

	if (!known_address(addr, size))
		return -FI_EINVAL;
	fd = socket(((const struct sockaddr *)addr)->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 || bind(fd, addr, (socklen_t)size) != 0) {
		int r = -errno;

		FI_WARN(&provider, FI_LOG_EP_CTRL, "a passive end point cannot have its address: %s\n", fi_strerror(-r));
		close(fd);
		return r;
	}
	if (p->socket.fd >= 0)
		close(p->socket.fd);
	p->socket.fd = fd;
	return 0;
}

void take_address(struct ep *ep, struct pep *p)
{
	if (p->listening)
		return;
	ep->socket.fd = p->socket.fd;
	p->socket.fd = -1;
}

static int pep_setname(fid_t fid, void *addr, size_t size)
{
	struct pep *p = (struct pep *)fid;

	return p->listening ? -FI_EOPBADSTATE : bind_socket(p, addr, size);
}

static int pep_getname(fid_t fid, void *addr, size_t *size)
{
	struct pep *p = (struct pep *)fid;

	return p->socket.fd < 0 ? -FI_EOPBADSTATE : socket_name(p->socket.fd, addr, size);
}

static int pep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct pep *p = (struct pep *)fid;

	if (flags != 0 || other->fclass != FI_CLASS_EQ || p->eq != NULL)
		return -FI_EINVAL;
	p->eq = (struct eq *)other;
	__atomic_fetch_add(&p->eq->users, 1, __ATOMIC_ACQ_REL);
	return 0;
}

static int pep_close(struct fid *fid)
{
	struct pep *p = (struct pep *)fid;

	pthread_mutex_lock(&p->fabric->lock);
	unwatch(p->fabric, &p->socket);
	while (p->requests != NULL)
		forget_request(p->requests);
	pthread_mutex_unlock(&p->fabric->lock);
	if (p->socket.fd >= 0)
		close(p->socket.fd);
	if (p->eq != NULL)
		__atomic_fetch_sub(&p->eq->users, 1, __ATOMIC_ACQ_REL);
	__atomic_fetch_sub(&p->fabric->users, 1, __ATOMIC_ACQ_REL);
	libfabric.freeinfo(p->info);
	free(p);
	return 0;
}

static int no_peer(struct fid_ep *ep, void *addr, size_t *size)
{
	(void)ep, (void)addr, (void)size;
	return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *ep, const void *addr, const void *data, size_t size)
{
	(void)ep, (void)addr, (void)data, (void)size;
	return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *data, size_t size)
{
	(void)ep, (void)data, (void)size;
	return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags)
{
	(void)ep, (void)flags;
	return -FI_ENOSYS;
}

static struct fi_ops pep_fid_ops = {sizeof(pep_fid_ops), pep_close, pep_bind, no_control, no_ops_open, NULL, NULL};
static struct fi_ops_ep pep_ep_ops = {.size = sizeof(pep_ep_ops), .getopt = option_get};
static struct fi_ops_cm pep_cm_ops = {sizeof(pep_cm_ops), pep_setname, pep_getname, no_peer, no_connect, pep_listen, no_accept, pep_reject, no_shutdown, no_join};

int pep_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **made, void *context)
{
	struct pep *p;
	int r;

	if (info == NULL)
		return -FI_EINVAL;
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return -FI_ENOMEM;
	p->socket.fd = -1;
	p->info = libfabric.dupinfo(info);
	r = p->info == NULL ? -FI_ENOMEM : info->src_addr != NULL ? bind_socket(p, info->src_addr, info->src_addrlen) : 0;
	if (r != 0) {
		libfabric.freeinfo(p->info);
		free(p);
		return r;
	}
	p->fabric = (struct fabric *)fabric;
	p->pep.fid = (struct fid){.fclass = FI_CLASS_PEP, .context = context, .ops = &pep_fid_ops};
	p->pep.ops = &pep_ep_ops;
	p->pep.cm = &pep_cm_ops;
	__atomic_fetch_add(&p->fabric->users, 1, __ATOMIC_ACQ_REL);
	*made = &p->pep;
	return 0;
}
