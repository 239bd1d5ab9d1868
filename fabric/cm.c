/*
 * Connections. Two ends find each other by TCP, for users of libfabric have IP addresses,
 * and connect their VIs then. The socket carries one message each way, with what VIA's
 * connecting has no room for: data of the user, and where the other end is on the wire. Its
 * end tells that the peer is gone.
 */
#include "provider.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <netinet/tcp.h>
#include <unistd.h>

enum { REQUEST = 1, ACCEPT = 2, REJECT = 3 };

/* A message of the socket; numbers are big endian. */
struct message {
	uint8_t magic[4];
	uint8_t type, zero;
	uint8_t size[2]; /* of data */
	uint8_t mac[MAC_SIZE];
	uint8_t point[POINT_SIZE]; /* where an accepting end waits; zero in others */
	uint8_t data[CM_DATA_SIZE];
};

/* "TFI" and the version of these messages. */
static const uint8_t magic[4] = {'T', 'F', 'I', 1};

enum {
	REQUEST_MS = 5000,    /* for the message of a socket that has connected */
	MOST_REQUESTS = 1024, /* that a passive end point keeps */
	SLICE_MS = 100,	      /* between two looks whether the end point is being closed */
	CONNECTOR_STACK = 256 << 10,
};

static void compose(struct message *m, uint8_t type, const uint8_t *mac, const void *data, size_t size)
{
	memset(m, 0, sizeof(*m));
	memcpy(m->magic, magic, sizeof(magic));
	m->type = type;
	m->size[0] = (uint8_t)(size >> 8);
	m->size[1] = (uint8_t)size;
	if (mac != NULL)
		memcpy(m->mac, mac, MAC_SIZE);
	if (size != 0)
		memcpy(m->data, data, size);
}

static size_t data_size(const struct message *m) { return (size_t)m->size[0] << 8 | m->size[1]; }

static bool valid(const struct message *m)
{
	return memcmp(m->magic, magic, sizeof(magic)) == 0 && m->type >= REQUEST && m->type <= REJECT && m->zero == 0 && data_size(m) <= CM_DATA_SIZE;
}

/* ready waits until a socket is, the end point is being closed, or the time is over. */
static int ready(const struct ep *ep, int fd, short events, int64_t deadline)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		int n;

		if (ep->closing)
			return -FI_ECANCELED;
		if (now_ms() > deadline)
			return -FI_ETIMEDOUT;
		n = poll(&p, 1, SLICE_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* exchange sends or receives all of a message. */
static int exchange(const struct ep *ep, int fd, struct message *m, bool out, int64_t deadline)
{
	size_t done = 0;

	while (done < sizeof(*m)) {
		uint8_t *at = (uint8_t *)m + done;
		ssize_t n = out ? send(fd, at, sizeof(*m) - done, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, sizeof(*m) - done, MSG_DONTWAIT);
		int r;

		if (n == 0)
			return -FI_ECONNREFUSED;
		if (n > 0)
			done += (size_t)n;
		else if (errno != EAGAIN && errno != EINTR)
			return errno == ECONNRESET || errno == EPIPE ? -FI_ECONNREFUSED : -errno;
		else if ((r = ready(ep, fd, out ? POLLOUT : POLLIN, deadline)) != 0)
			return r;
	}
	return out || valid(m) ? 0 : -FI_EIO;
}

/* An address of the wire: a station, and a connection point there. */
struct point {
	VIP_NET_ADDRESS address; /* has the first byte */
	uint8_t more[MAC_SIZE + POINT_SIZE];
};

static VIP_NET_ADDRESS *point(struct point *p, const uint8_t *mac, const uint8_t *name)
{
	p->address.HostAddressLen = MAC_SIZE;
	p->address.DiscriminatorLen = POINT_SIZE;
	memcpy(p->address.HostAddress, mac, MAC_SIZE);
	memcpy(p->address.HostAddress + MAC_SIZE, name, POINT_SIZE);
	return &p->address;
}

/* again reports whether connecting VIs is to be tried once more. */
static bool again(const struct ep *ep, VIP_RETURN r, int64_t deadline)
{
	return (r == VIP_TIMEOUT || r == VIP_NO_MATCH) && !ep->closing && now_ms() < deadline;
}

/* request_vi connects the VI with the one that waits at a point of a station. */
static int request_vi(struct ep *ep, const struct message *m, int64_t deadline)
{
	struct point local, remote;
	VIP_VI_ATTRIBUTES theirs;
	VIP_RETURN r;

	do
		r = vip.ConnectRequest(ep->vi, point(&local, ep->domain->mac, m->point), point(&remote, m->mac, m->point), 10 * SLICE_MS, &theirs);
	while (again(ep, r, deadline));
	return error_of(r);
}

/* await_vi waits at a point for the VI of the station that has asked, and accepts it. */
static int await_vi(struct ep *ep, const struct message *m, int64_t deadline)
{
	struct point local, remote;
	VIP_VI_ATTRIBUTES theirs;
	VIP_CONN_HANDLE c;
	VIP_RETURN r;

	for (;;) {
		memset(&remote, 0, sizeof(remote));
		remote.address.HostAddressLen = MAC_SIZE;
		remote.address.DiscriminatorLen = POINT_SIZE;
		r = vip.ConnectWait(ep->domain->nic, point(&local, ep->domain->mac, m->point), SLICE_MS, &remote.address, &theirs, &c);
		if (again(ep, r, deadline))
			continue;
		if (r != VIP_SUCCESS)
			return error_of(r);
		if (memcmp(remote.address.HostAddress, ep->peer, MAC_SIZE) != 0) {
			(void)vip.ConnectReject(c);
			continue;
		}
		r = vip.ConnectAccept(c, ep->vi);
		if (!again(ep, r, deadline))
			return error_of(r);
	}
}

/* socket_news tells that the peer is gone: a connected socket carries nothing more. */
static bool socket_news(struct watched *w)
{
	struct ep *ep = (struct ep *)((char *)w - offsetof(struct ep, socket));
	uint8_t b;
	ssize_t n = recv(w->fd, &b, 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	pthread_mutex_lock(&ep->domain->lock);
	progress(ep->domain, NULL, SIZE_MAX); /* what has come before its end */
	ended(ep);
	pthread_mutex_unlock(&ep->domain->lock);
	return false;
}

void ended(struct ep *ep)
{
	if (ep->state != EP_CONNECTED)
		return;
	ep->state = EP_ENDED;
	(void)eq_connection(ep->eq, FI_SHUTDOWN, &ep->ep.fid, NULL, NULL, 0);
}

/* connected tells how connecting has ended. The message has the peer's data, if there are any. */
static void connected(struct ep *ep, int error, const struct message *m)
{
	struct fabric *f = ep->domain->fabric;
	size_t size = m != NULL ? data_size(m) : 0;
	int r = error;

	pthread_mutex_lock(&f->lock);
	pthread_mutex_lock(&ep->domain->lock);
	if (r == 0 && ep->closing)
		r = -FI_ECANCELED;
	ep->state = r == 0 ? EP_CONNECTED : EP_ENDED;
	if (r == 0)
		r = eq_connection(ep->eq, FI_CONNECTED, &ep->ep.fid, NULL, m != NULL ? m->data : NULL, size);
	pthread_mutex_unlock(&ep->domain->lock);
	if (r == 0) {
		ep->socket.news = socket_news;
		r = watch(f, &ep->socket, EPOLLIN | EPOLLRDHUP);
		if (r != 0)
			FI_WARN(&provider, FI_LOG_EP_CTRL, "the end of a peer will be noticed late: %s\n", fi_strerror(-r));
	} else if (!ep->closing) {
		FI_INFO(&provider, FI_LOG_EP_CTRL, "connecting failed: %s\n", fi_strerror(-r));
		eq_failure(ep->eq, &ep->ep.fid, -r, m != NULL ? m->data : NULL, size);
	}
	pthread_mutex_unlock(&f->lock);
}

/* dial connects the socket. */
static int dial(struct ep *ep, int64_t deadline)
{
	const struct sockaddr *to = ep->info->dest_addr;
	int r, one = 1, error = 0;
	socklen_t n = sizeof(error);

	if (ep->socket.fd < 0) /* else it has the address of a passive end point */
		ep->socket.fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (ep->socket.fd < 0)
		return -errno;
	(void)setsockopt(ep->socket.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(ep->socket.fd, to, (socklen_t)ep->info->dest_addrlen) != 0 && errno != EINPROGRESS)
		return -errno;
	if ((r = ready(ep, ep->socket.fd, POLLOUT, deadline)) != 0)
		return r;
	(void)getsockopt(ep->socket.fd, SOL_SOCKET, SO_ERROR, &error, &n);
	return -error;
}

static void *connect_thread(void *argument)
{
	struct ep *ep = argument;
	int64_t deadline = now_ms() + CONNECT_MS;
	struct message m, answer;
	int r = dial(ep, deadline);

	compose(&m, REQUEST, ep->domain->mac, ep->data, ep->data_size);
	if (r == 0)
		r = exchange(ep, ep->socket.fd, &m, true, deadline);
	if (r == 0)
		r = exchange(ep, ep->socket.fd, &answer, false, deadline);
	if (r != 0) {
		connected(ep, r, NULL);
		return NULL;
	}
	if (answer.type == REJECT)
		r = -FI_ECONNREFUSED;
	else
		r = answer.type == ACCEPT ? request_vi(ep, &answer, deadline) : -FI_EIO;
	connected(ep, r, &answer);
	return NULL;
}

static void *accept_thread(void *argument)
{
	struct ep *ep = argument;
	int64_t deadline = now_ms() + CONNECT_MS;
	struct message m;
	int r;

	compose(&m, ACCEPT, ep->domain->mac, ep->data, ep->data_size);
	r = getrandom(m.point, sizeof(m.point), 0) == sizeof(m.point) ? 0 : -FI_EAGAIN;
	if (r == 0)
		r = exchange(ep, ep->socket.fd, &m, true, deadline);
	if (r == 0)
		r = await_vi(ep, &m, deadline);
	connected(ep, r, NULL);
	return NULL;
}

/* start starts what connects the end point, on a thread that takes no signals of the program. */
static int start(struct ep *ep, void *(*f)(void *), const void *data, size_t size)
{
	pthread_attr_t a;
	sigset_t all, before;
	int r;

	ep->data_size = size;
	if (size != 0)
		memcpy(ep->data, data, size);
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, CONNECTOR_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&ep->connector, &a, f, ep);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&a);
	ep->connecting = r == 0;
	return -r;
}

/* begin prepares an end point for connecting. */
static int begin(struct ep *ep, size_t size)
{
	int r;

	if (in_child())
		return -FI_EOPNOTSUPP;
	if (size > CM_DATA_SIZE)
		return -FI_EINVAL;
	if ((r = ep_enable(ep)) != 0)
		return r;
	pthread_mutex_lock(&ep->domain->lock);
	r = ep->state == EP_IDLE ? 0 : -FI_EOPBADSTATE;
	if (r == 0)
		ep->state = EP_CONNECTING;
	pthread_mutex_unlock(&ep->domain->lock);
	return r;
}

/* undo has an end point as it was before begin. */
static int undo(struct ep *ep, int r)
{
	pthread_mutex_lock(&ep->domain->lock);
	ep->state = EP_IDLE;
	pthread_mutex_unlock(&ep->domain->lock);
	return r;
}

static int ep_connect(struct fid_ep *fid, const void *addr, const void *data, size_t size)
{
	struct ep *ep = (struct ep *)fid;
	const struct sockaddr *to = addr != NULL ? addr : ep->info->dest_addr;
	size_t n;
	void *copy;
	int r;

	if (to == NULL || (to->sa_family != AF_INET && to->sa_family != AF_INET6) || ep->request != NULL)
		return -FI_EINVAL;
	n = to->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	if ((r = begin(ep, size)) != 0)
		return r;
	copy = malloc(n);
	if (copy == NULL)
		return undo(ep, -FI_ENOMEM);
	memcpy(copy, to, n);
	free(ep->info->dest_addr);
	ep->info->dest_addr = copy;
	ep->info->dest_addrlen = n;
	r = start(ep, connect_thread, data, size);
	return r != 0 ? undo(ep, r) : 0;
}

static int ep_accept(struct fid_ep *fid, const void *data, size_t size)
{
	struct ep *ep = (struct ep *)fid;
	struct fabric *f = ep->domain->fabric;
	int r;

	if (ep->request == NULL)
		return -FI_EINVAL;
	if ((r = begin(ep, size)) != 0)
		return r;
	pthread_mutex_lock(&f->lock);
	memcpy(ep->peer, ep->request->mac, MAC_SIZE);
	unwatch(f, &ep->request->socket);
	ep->socket.fd = ep->request->socket.fd;
	ep->request->socket.fd = -1;
	forget_request(ep->request);
	ep->request = NULL;
	pthread_mutex_unlock(&f->lock);
	r = start(ep, accept_thread, data, size);
	return r != 0 ? undo(ep, r) : 0;
}

void stop_connecting(struct ep *ep)
{
	struct fabric *f = ep->domain->fabric;

	ep->closing = true;
	if (ep->connecting) {
		pthread_join(ep->connector, NULL);
		ep->connecting = false;
	}
	pthread_mutex_lock(&f->lock);
	unwatch(f, &ep->socket);
	if (ep->socket.fd >= 0)
		close(ep->socket.fd);
	ep->socket.fd = -1;
	if (ep->request != NULL)
		forget_request(ep->request);
	ep->request = NULL;
	pthread_mutex_unlock(&f->lock);
}

static int ep_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct ep *ep = (struct ep *)fid;
	bool was;

	if (flags != 0)
		return -FI_EBADFLAGS;
	if (in_child())
		return -FI_EOPNOTSUPP;
	pthread_mutex_lock(&ep->domain->lock);
	was = ep->state == EP_CONNECTED;
	ended(ep);
	pthread_mutex_unlock(&ep->domain->lock);
	if (!was)
		return -FI_ENOTCONN;
	(void)vip.Disconnect(ep->vi);
	(void)shutdown(ep->socket.fd, SHUT_RDWR);
	return 0;
}

static int copy_name(const void *from, size_t n, void *addr, size_t *size)
{
	size_t room = *size;

	if (from == NULL)
		return -FI_EOPBADSTATE;
	memcpy(addr, from, room < n ? room : n);
	*size = n;
	return room < n ? -FI_ETOOSMALL : 0;
}

/* socket_name is the address that a socket is bound to. */
static int socket_name(int fd, void *addr, size_t *size)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &n) != 0)
		return -errno;
	return copy_name(&a, n, addr, size);
}

static int ep_getname(fid_t fid, void *addr, size_t *size)
{
	struct ep *ep = (struct ep *)fid;

	if (ep->socket.fd >= 0)
		return socket_name(ep->socket.fd, addr, size);
	return copy_name(ep->info->src_addr, ep->info->src_addrlen, addr, size);
}

static int ep_getpeer(struct fid_ep *fid, void *addr, size_t *size)
{
	struct ep *ep = (struct ep *)fid;

	return copy_name(ep->info->dest_addr, ep->info->dest_addrlen, addr, size);
}

static int no_setname(fid_t fid, void *addr, size_t size)
{
	(void)fid, (void)addr, (void)size;
	return -FI_ENOSYS;
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

static int no_listen(struct fid_pep *pep)
{
	(void)pep;
	return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *data, size_t size)
{
	(void)ep, (void)data, (void)size;
	return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *data, size_t size)
{
	(void)pep, (void)handle, (void)data, (void)size;
	return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags)
{
	(void)ep, (void)flags;
	return -FI_ENOSYS;
}

static int no_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)
{
	(void)ep, (void)addr, (void)flags, (void)mc, (void)context;
	return -FI_ENOSYS;
}

struct fi_ops_cm ep_cm_ops = {sizeof(ep_cm_ops), no_setname, ep_getname, ep_getpeer, ep_connect, no_listen, ep_accept, no_reject, ep_shutdown, no_join};

/* Passive end points. */

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
