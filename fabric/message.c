/* What message.h declares. */
#include "message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* "TFI" and the version of these messages. */
static const uint8_t magic[4] = {'T', 'F', 'I', 1};

void compose(struct message *m, uint8_t type, const uint8_t *mac, const void *data, size_t size)
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

size_t data_size(const struct message *m) { return (size_t)m->size[0] << 8 | m->size[1]; }

bool valid(const struct message *m)
{
	return memcmp(m->magic, magic, sizeof(magic)) == 0 && m->type >= REQUEST && m->type <= REJECT && m->zero == 0 && data_size(m) <= CM_DATA_SIZE;
}

int ready(const struct ep *ep, int fd, short events, int64_t deadline)
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

int exchange(const struct ep *ep, int fd, struct message *m, bool out, int64_t deadline)
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

int copy_name(const void *from, size_t n, void *addr, size_t *size)
{
	size_t room = *size;

	if (from == NULL)
		return -FI_EOPBADSTATE;
	memcpy(addr, from, room < n ? room : n);
	*size = n;
	return room < n ? -FI_ETOOSMALL : 0;
}

int socket_name(int fd, void *addr, size_t *size)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &n) != 0)
		return -errno;
	return copy_name(&a, n, addr, size);
}

int no_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)
{
	(void)ep, (void)addr, (void)flags, (void)mc, (void)context;
	return -FI_ENOSYS;
}
