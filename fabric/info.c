/* What the provider offers: fi_getinfo, and the provider itself. */
#include "provider.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The wire that the NICs of all programs of a user on a host share. */
#define DEFAULT_DEVICE "emu:?wire=host:fabric&engine=inline"

/* The version of this provider. */
#define PROVIDER_VERSION FI_VERSION(0, 1)

/* The numbers of these protocols are a provider's own: FI_PROV_SPECIFIC. */
#define PROTOCOL (FI_PROV_SPECIFIC | 0x56494100) /* "VIA" */

#define TX_CAPS (FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE)
#define RX_CAPS (FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define CAPS (TX_CAPS | RX_CAPS | DOMAIN_CAPS)
#define MR_MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

/* Reliable VIs deliver in order, and complete in order. */
#define ORDER FI_ORDER_SAS

/* The largest message of a NIC of Trapeze (SPEC.md 1.2). One that takes less refuses longer ones. */
#define MAX_MESSAGE ((size_t)1 << 30)

const char *device_address(void)
{
	char *s = NULL;

	if (fi_param_get_str(&provider, "device", &s) == 0 && s != NULL && *s != 0)
		return s;
	return DEFAULT_DEVICE;
}

/* template_info is all that the provider can do. */
static struct fi_info *template_info(void)
{
	struct fi_info *i = libfabric.dupinfo(NULL);

	if (i == NULL)
		return NULL;
	i->caps = CAPS;
	i->addr_format = FI_SOCKADDR_IN;
	*i->tx_attr = (struct fi_tx_attr){.caps = TX_CAPS, .msg_order = ORDER, .comp_order = FI_ORDER_STRICT, .inject_size = INJECT_SIZE,
		.size = QUEUE_DEPTH, .iov_limit = SEGMENTS, .rma_iov_limit = 1};
	*i->rx_attr = (struct fi_rx_attr){.caps = RX_CAPS, .msg_order = ORDER, .comp_order = FI_ORDER_STRICT, .size = QUEUE_DEPTH,
		.iov_limit = SEGMENTS};
	*i->ep_attr = (struct fi_ep_attr){.type = FI_EP_MSG, .protocol = PROTOCOL, .protocol_version = 1, .max_msg_size = MAX_MESSAGE,
		.tx_ctx_cnt = 1, .rx_ctx_cnt = 1};
	*i->domain_attr = (struct fi_domain_attr){.threading = FI_THREAD_SAFE, .control_progress = FI_PROGRESS_AUTO,
		.data_progress = FI_PROGRESS_MANUAL, .resource_mgmt = FI_RM_ENABLED, .av_type = FI_AV_UNSPEC, .mr_mode = MR_MODE,
		.mr_key_size = sizeof(VIP_MEM_HANDLE), .cq_data_size = 4, .cq_cnt = 1024, .cntr_cnt = 1024, .ep_cnt = 4096, .tx_ctx_cnt = 4096, .rx_ctx_cnt = 4096,
		.max_ep_tx_ctx = 1, .max_ep_rx_ctx = 1, .mr_iov_limit = 1, .mr_cnt = 65536, .caps = DOMAIN_CAPS};
	i->fabric_attr->prov_version = PROVIDER_VERSION;
	i->fabric_attr->name = strdup("trapeze");
	i->domain_attr->name = strdup(device_address());
	if (i->fabric_attr->name == NULL || i->domain_attr->name == NULL) {
		libfabric.freeinfo(i);
		return NULL;
	}
	return i;
}

/* refused logs what a user asks for in vain. */
static bool refused(bool cannot, const char *what)
{
	if (cannot)
		FI_INFO(&provider, FI_LOG_CORE, "hints ask for %s, which trapeze does not have\n", what);
	return cannot;
}

/* names reports whether a hint names something else. */
static bool names(const char *hint, const char *name) { return hint != NULL && strcasecmp(hint, name) != 0; }

/* fits_ep compares the hints about end points. */
static bool fits_ep(const struct fi_ep_attr *e)
{
	return !refused(e->type != FI_EP_UNSPEC && e->type != FI_EP_MSG, "another type of end point than FI_EP_MSG") &&
	       !refused(e->protocol != FI_PROTO_UNSPEC && e->protocol != PROTOCOL, "a protocol") &&
	       !refused(e->protocol_version > 1, "a newer version of the protocol") &&
	       !refused(e->max_msg_size > MAX_MESSAGE, "messages of more than 1 GiB") &&
	       !refused(e->msg_prefix_size != 0, "a message prefix") &&
	       !refused(e->max_order_raw_size != 0 || e->max_order_war_size != 0 || e->max_order_waw_size != 0, "an order of RMA operations") &&
	       !refused(e->tx_ctx_cnt != 0 && e->tx_ctx_cnt != 1, "several or shared transmit contexts") &&
	       !refused(e->rx_ctx_cnt != 0 && e->rx_ctx_cnt != 1, "several or shared receive contexts") &&
	       !refused(e->auth_key_size != 0, "an authorization key");
}

/* fits_queues compares the hints about what is sent and received. */
static bool fits_queues(const struct fi_tx_attr *t, const struct fi_rx_attr *r)
{
	if (t != NULL &&
	    (refused((t->caps & ~(TX_CAPS | DOMAIN_CAPS)) != 0, "capabilities of sends") ||
	     refused((t->op_flags & ~TX_FLAGS) != 0, "flags of sends") || refused((t->msg_order & ~(uint64_t)ORDER) != 0, "an order of messages") ||
	     refused(t->inject_size > INJECT_SIZE, "larger injected messages") || refused(t->size > MAX_DEPTH, "a deeper send queue") ||
	     refused(t->iov_limit > SEGMENTS, "more segments of a send") || refused(t->rma_iov_limit > 1, "more segments of remote memory")))
		return false;
	return r == NULL ||
	       (!refused((r->caps & ~(RX_CAPS | DOMAIN_CAPS)) != 0, "capabilities of receives") &&
		!refused((r->op_flags & ~(uint64_t)FI_COMPLETION) != 0, "flags of receives") &&
		!refused((r->msg_order & ~(uint64_t)ORDER) != 0, "an order of messages") &&
		!refused(r->total_buffered_recv != 0, "buffered receives") && !refused(r->size > MAX_DEPTH, "a deeper receive queue") &&
		!refused(r->iov_limit > SEGMENTS, "more segments of a receive"));
}

/* mr_mode is what a user of some capabilities must do for his memory. */
static int mr_mode(uint64_t caps)
{
	return caps == 0 || (caps & (FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0 ? MR_MODE : FI_MR_LOCAL;
}

/* basic_mr reports whether the user has the modes of libfabric 1.4. */
static bool basic_mr(uint32_t version, const struct fi_domain_attr *d)
{
	return FI_VERSION_LT(version, FI_VERSION(1, 5)) || (d != NULL && d->mr_mode == FI_MR_BASIC);
}

/* fits_domain compares the hints about the domain. */
static bool fits_domain(uint32_t version, uint64_t caps, const struct fi_domain_attr *d)
{
	if (d == NULL)
		return true;
	return !refused(names(d->name, device_address()), "another domain: FI_TRAPEZE_DEVICE names it") &&
	       !refused(!basic_mr(version, d) && (mr_mode(caps) & ~d->mr_mode) != 0, "memory that needs no registration, or keys of their own") &&
	       !refused(d->data_progress == FI_PROGRESS_AUTO, "FI_PROGRESS_AUTO") &&
	       !refused(d->mr_key_size != 0 && d->mr_key_size < sizeof(VIP_MEM_HANDLE), "shorter keys") &&
	       !refused(d->cq_data_size > 4, "more than 4 bytes of remote CQ data") &&
	       !refused(d->mr_iov_limit > 1, "regions of several parts") && !refused((d->caps & ~(uint64_t)DOMAIN_CAPS) != 0, "capabilities of a domain") &&
	       !refused(d->av_type != FI_AV_UNSPEC && d->av_type != FI_AV_MAP && d->av_type != FI_AV_TABLE, "a type of address vector") &&
	       !refused(d->auth_key_size != 0, "an authorization key");
}

static bool fits(uint32_t version, const struct fi_info *h)
{
	if (h == NULL)
		return true;
	return !refused((h->caps & ~CAPS) != 0, "capabilities") &&
	       !refused(h->addr_format != FI_FORMAT_UNSPEC && h->addr_format != FI_SOCKADDR && h->addr_format != FI_SOCKADDR_IN && h->addr_format != FI_SOCKADDR_IN6,
			"another form of addresses than FI_SOCKADDR") &&
	       (h->ep_attr == NULL || fits_ep(h->ep_attr)) && fits_queues(h->tx_attr, h->rx_attr) && fits_domain(version, h->caps, h->domain_attr) &&
	       (h->fabric_attr == NULL ||
		(!refused(names(h->fabric_attr->name, "trapeze"), "another fabric") &&
		 !refused(h->fabric_attr->prov_name != NULL && strcasestr(h->fabric_attr->prov_name, "trapeze") == NULL, "another provider")));
}

/* take_hints has the answer follow what the hints leave to the user to choose. */
static void take_hints(uint32_t version, struct fi_info *i, const struct fi_info *h)
{
	if (basic_mr(version, h != NULL ? h->domain_attr : NULL)) {
		i->domain_attr->mr_mode = FI_MR_BASIC;
		i->mode |= FI_LOCAL_MR;
	}
	if (h == NULL)
		return;
	i->handle = h->handle;
	if (i->domain_attr->mr_mode == MR_MODE)
		i->domain_attr->mr_mode = mr_mode(h->caps);
	if (h->caps != 0)
		i->caps = (h->caps & ~(uint64_t)DOMAIN_CAPS) | DOMAIN_CAPS;
	if ((h->mode & FI_RX_CQ_DATA) != 0) {
		i->mode |= FI_RX_CQ_DATA;
		i->rx_attr->mode |= FI_RX_CQ_DATA;
	}
	if (h->tx_attr != NULL) {
		i->tx_attr->op_flags = h->tx_attr->op_flags;
		i->tx_attr->size = h->tx_attr->size != 0 ? h->tx_attr->size : i->tx_attr->size;
	}
	if (h->rx_attr != NULL) {
		i->rx_attr->op_flags = h->rx_attr->op_flags;
		i->rx_attr->size = h->rx_attr->size != 0 ? h->rx_attr->size : i->rx_attr->size;
	}
	if (h->domain_attr != NULL) {
		i->domain_attr->domain = h->domain_attr->domain;
		if (h->domain_attr->threading != FI_THREAD_UNSPEC)
			i->domain_attr->threading = h->domain_attr->threading;
		if (h->domain_attr->control_progress != FI_PROGRESS_UNSPEC)
			i->domain_attr->control_progress = h->domain_attr->control_progress;
		if (h->domain_attr->resource_mgmt != FI_RM_UNSPEC)
			i->domain_attr->resource_mgmt = h->domain_attr->resource_mgmt;
		i->domain_attr->av_type = h->domain_attr->av_type;
	}
	if (h->fabric_attr != NULL)
		i->fabric_attr->fabric = h->fabric_attr->fabric;
}

/* only_this_host reports whether no other host can be at the other end of the device's wire. */
static bool only_this_host(void)
{
	const char *d = device_address(), *w = strstr(d, "wire=");

	return strncmp(d, "emu:", 4) == 0 &&
	       (w == NULL || strncmp(w + 5, "host:", 5) == 0 || strncmp(w + 5, "shm:", 4) == 0 || strncmp(w + 5, "memif:", 6) == 0);
}

/* wire_interface finds the interface that the device's wire is at, of an address that names one. */
static bool wire_interface(char name[IF_NAMESIZE])
{
	const char *d = device_address(), *w = strstr(d, "wire=");

	w = w != NULL ? w + 5 : d;
	return sscanf(w, "eth:%15[^?&%]", name) == 1 || sscanf(w, "afxdp:%15[^?&%]", name) == 1;
}

/* wire_address finds the address that the device's wire has, if it is one of UDP. */
static bool wire_address(struct in_addr *a)
{
	const char *w = strstr(device_address(), "wire=udp://");
	char host[INET_ADDRSTRLEN];

	return w != NULL && sscanf(w, "wire=udp://%15[0-9.]", host) == 1 && inet_pton(AF_INET, host, a) == 1 && a->s_addr != htonl(INADDR_ANY);
}

/* routed_address finds the address from which the default route leads to other hosts, or 0.0.0.0. Nothing is sent. */
static struct in_addr routed_address(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xcb007101)}; /* 203.0.113.1: RFC 5737 */
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || getsockname(fd, (struct sockaddr *)&a, &n) != 0)
		a.sin_addr.s_addr = htonl(INADDR_ANY);
	if (fd >= 0)
		close(fd);
	return a.sin_addr;
}

/* own_address is where other programs reach this host: at FI_TRAPEZE_IFACE, else at the wire's own address or interface, else
 * where the default route begins, else at the first interface with a carrier. */
static int own_address(struct sockaddr_in *a)
{
	struct ifaddrs *all, *i;
	char *wanted = NULL, wire[IF_NAMESIZE] = "", text[INET_ADDRSTRLEN];
	struct in_addr routed = routed_address();
	int best = 0;

	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	(void)fi_param_get_str(&provider, "iface", &wanted);
	if (wanted == NULL && (only_this_host() || wire_address(&a->sin_addr)))
		return 0;
	(void)wire_interface(wire);
	if (getifaddrs(&all) != 0)
		return -errno;
	for (i = all; i != NULL; i = i->ifa_next) {
		struct in_addr at;
		int rank;

		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0)
			continue;
		at = ((struct sockaddr_in *)i->ifa_addr)->sin_addr;
		if (wanted != NULL || (i->ifa_flags & IFF_LOOPBACK) != 0)
			rank = wanted != NULL && strcmp(wanted, i->ifa_name) == 0;
		else if (strcmp(wire, i->ifa_name) == 0)
			rank = 4;
		else if ((i->ifa_flags & IFF_RUNNING) == 0)
			rank = 1;
		else
			rank = at.s_addr == routed.s_addr ? 3 : 2;
		if (rank > best) {
			best = rank;
			a->sin_addr = at;
		}
	}
	freeifaddrs(all);
	if (wanted != NULL && best == 0) {
		FI_WARN(&provider, FI_LOG_CORE, "FI_TRAPEZE_IFACE is %s, and no interface of that name is up with an IPv4 address\n", wanted);
		return -FI_ENODATA;
	}
	FI_INFO(&provider, FI_LOG_CORE, "peers connect to %s; FI_TRAPEZE_IFACE names another interface\n", inet_ntop(AF_INET, &a->sin_addr, text, sizeof(text)));
	return 0;
}

static int set_address(void **to, size_t *size, const void *from, size_t n)
{
	void *copy = malloc(n);

	if (copy == NULL)
		return -FI_ENOMEM;
	memcpy(copy, from, n);
	free(*to);
	*to = copy;
	*size = n;
	return 0;
}

/* resolve asks for the address of a node and a service. */
static int resolve(const char *node, const char *service, uint64_t flags, const struct fi_info *h, struct sockaddr_storage *a, size_t *n)
{
	struct addrinfo want = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = (flags & FI_SOURCE) != 0 ? AI_PASSIVE : 0}, *got;
	int r;

	if (h != NULL && h->addr_format == FI_SOCKADDR_IN6)
		want.ai_family = AF_INET6;
	else if (node != NULL && strchr(node, ':') != NULL)
		want.ai_family = AF_UNSPEC;
	if ((flags & FI_NUMERICHOST) != 0)
		want.ai_flags |= AI_NUMERICHOST;
	r = getaddrinfo(node, service, &want, &got);
	if (r != 0) {
		FI_INFO(&provider, FI_LOG_CORE, "%s %s: %s\n", node != NULL ? node : "", service != NULL ? service : "", gai_strerror(r));
		return -FI_ENODATA;
	}
	memcpy(a, got->ai_addr, got->ai_addrlen);
	*n = got->ai_addrlen;
	freeaddrinfo(got);
	return 0;
}

bool known_address(const void *address, size_t n)
{
	const struct sockaddr *a = address;

	return n >= sizeof(struct sockaddr_in) && (a->sa_family == AF_INET || (a->sa_family == AF_INET6 && n >= sizeof(struct sockaddr_in6)));
}

static int set_addresses(struct fi_info *i, const char *node, const char *service, uint64_t flags, const struct fi_info *h)
{
	struct sockaddr_storage a;
	struct sockaddr_in own;
	size_t n = 0;
	int r;

	if (h != NULL && ((h->src_addr != NULL && !known_address(h->src_addr, h->src_addrlen)) || (h->dest_addr != NULL && !known_address(h->dest_addr, h->dest_addrlen))))
		return -FI_ENODATA;
	if (node != NULL || service != NULL) {
		if ((r = resolve(node, service, flags, h, &a, &n)) != 0)
			return r;
		r = (flags & FI_SOURCE) != 0 ? set_address(&i->src_addr, &i->src_addrlen, &a, n) : set_address(&i->dest_addr, &i->dest_addrlen, &a, n);
		if (r != 0)
			return r;
	}
	if (i->dest_addr == NULL && h != NULL && h->dest_addr != NULL && (r = set_address(&i->dest_addr, &i->dest_addrlen, h->dest_addr, h->dest_addrlen)) != 0)
		return r;
	if (i->src_addr == NULL && h != NULL && h->src_addr != NULL && (r = set_address(&i->src_addr, &i->src_addrlen, h->src_addr, h->src_addrlen)) != 0)
		return r;
	if (i->src_addr == NULL) {
		if ((r = own_address(&own)) != 0 || (r = set_address(&i->src_addr, &i->src_addrlen, &own, sizeof(own))) != 0)
			return r;
	} else if (i->src_addrlen >= sizeof(own) && ((struct sockaddr_in *)i->src_addr)->sin_family == AF_INET &&
		   ((struct sockaddr_in *)i->src_addr)->sin_addr.s_addr == htonl(INADDR_ANY)) {
		/* Peers are told this address: one that stands for all is of no use to them. */
		if ((r = own_address(&own)) != 0)
			return r;
		((struct sockaddr_in *)i->src_addr)->sin_addr = own.sin_addr;
	}
	i->addr_format = ((struct sockaddr *)i->src_addr)->sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
	return 0;
}

int get_info(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **info)
{
	struct fi_info *i;
	int r;

	*info = NULL;
	if (!fits(version, hints))
		return -FI_ENODATA;
	i = template_info();
	if (i == NULL)
		return -FI_ENOMEM;
	i->fabric_attr->api_version = version;
	take_hints(version, i, hints);
	if (hints != NULL && hints->tx_attr != NULL && hints->tx_attr->comp_order != FI_ORDER_NONE)
		i->tx_attr->op_flags |= FI_TRANSMIT_COMPLETE;
	if ((i->tx_attr->op_flags & PLACED) == 0)
		i->tx_attr->comp_order = FI_ORDER_NONE; /* short sends complete before longer ones */
	r = set_addresses(i, node, service, flags, hints);
	if (r != 0) {
		libfabric.freeinfo(i);
		return r;
	}
	*info = i;
	return 0;
}

struct fi_provider provider = {
	.name = "trapeze",
	.version = PROVIDER_VERSION,
	.getinfo = get_info,
	.fabric = open_fabric,
	.cleanup = end_watchers,
};

FI_EXT_INI
{
	if (!find_libfabric())
		return NULL;
	provider.fi_version = libfabric.version(); /* programs that want a newer one than a provider has do not get it */
	fi_param_define(&provider, "device", FI_PARAM_STRING, "address of the NIC, or a name of libvipl (default: " DEFAULT_DEVICE ")");
	fi_param_define(&provider, "iface", FI_PARAM_STRING,
			"interface whose IPv4 address peers connect to (default: loopback where the wire stays on this host, else that of the wire, or of the default route)");
	return &provider;
}
