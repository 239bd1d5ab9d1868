/*
 * Connections. Two ends find each other by TCP, for users of libfabric have IP addresses,
 * and connect their VIs then. The socket carries one message each way, with what VIA's
 * connecting has no room for: data of the user, and where the other end is on the wire. Its
 * end tells that the peer is gone.
 */
#include "message.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <netinet/tcp.h>
#include <unistd.h>

enum { CONNECTOR_STACK = 256 << 10 };

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
		/* VIPL has no other code for a peer that has withdrawn its request, or stands still meanwhile: it asks again. */
		if (!again(ep, r == VIP_ERROR_RESOURCE ? VIP_TIMEOUT : r, deadline))
			return error_of(r);
	}
}

/* socket_news tells that the peer is gone: a connected socket carries nothing more. One that stands although the NIC
 * has lost the peer is of a process that lives: messages may be missing that nobody has been told of. */
static bool socket_news(struct watched *w)
{
	struct ep *ep = (struct ep *)((char *)w - offsetof(struct ep, socket));
	uint8_t b;
	ssize_t n = recv(w->fd, &b, 1, MSG_DONTWAIT);
	bool stands = n < 0 && (errno == EAGAIN || errno == EINTR);

	if (stands && (w->deadline == 0 || now_ms() < w->deadline))
		return true;
	pthread_mutex_lock(&ep->domain->lock);
	progress(ep->domain, NULL, SIZE_MAX); /* what has come before its end */
	if (stands) {
		FI_WARN(&provider, FI_LOG_EP_CTRL, "a peer lives, but its NIC no longer answers: the connection is lost\n");
		cq_lost(ep->receive.cq);
		cq_lost(ep->send.cq);
	}
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
	linger(ep);
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

static int no_listen(struct fid_pep *pep)
{
	(void)pep;
	return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *data, size_t size)
{
	(void)pep, (void)handle, (void)data, (void)size;
	return -FI_ENOSYS;
}

struct fi_ops_cm ep_cm_ops = {sizeof(ep_cm_ops), no_setname, ep_getname, ep_getpeer, ep_connect, no_listen, ep_accept, no_reject, ep_shutdown, no_join};
