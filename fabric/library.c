/* Finding libvipl, and what depends on the process. */
#include "provider.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct library vip;
struct libfabric libfabric;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

/* Linux clears this page in a child, whatever has made it: see madvise(2). */
static const int unknown = 1;
static const volatile int *ours = &unknown;

bool find_libfabric(void)
{
	void *l = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED && madvise(p, sizeof(*p), MADV_WIPEONFORK) == 0) {
		*p = 1;
		ours = p;
	}
	if (l == NULL)
		return false;
	libfabric.dupinfo = (__typeof__(libfabric.dupinfo))dlsym(l, "fi_dupinfo");
	libfabric.freeinfo = (__typeof__(libfabric.freeinfo))dlsym(l, "fi_freeinfo");
	libfabric.version = (__typeof__(libfabric.version))dlsym(l, "fi_version");
	return libfabric.dupinfo != NULL && libfabric.freeinfo != NULL && libfabric.version != NULL;
}

static int find(void)
{
	void *l = dlopen("libvipl.so.1", RTLD_NOW | RTLD_LOCAL);

	if (l == NULL) {
		FI_WARN(&provider, FI_LOG_CORE, "libvipl.so.1 cannot be loaded: %s; install libvipl1, or name its folder in LD_LIBRARY_PATH\n",
			dlerror());
		return -FI_ENODATA;
	}
#define F(name)                                                                            \
	if ((vip.name = (__typeof__(&Vip##name))dlsym(l, "Vip" #name)) == NULL) {          \
		FI_WARN(&provider, FI_LOG_CORE, "libvipl.so.1 has no Vip" #name "; install the version that belongs to this provider\n"); \
		return -FI_ENOSYS;                                                         \
	}
	LIBRARY(F)
#undef F
	return 0;
}

int load_library(void)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!loaded) {
		r = find();
		loaded = r == 0;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

bool in_child(void) { return *ours == 0; }

int error_of(VIP_RETURN r)
{
	switch (r) {
	case VIP_SUCCESS:
		return 0;
	case VIP_NOT_DONE:
		return -FI_EAGAIN;
	case VIP_ERROR_RESOURCE:
		return -FI_ENOMEM;
	case VIP_TIMEOUT:
		return -FI_ETIMEDOUT;
	case VIP_REJECT:
	case VIP_NO_MATCH:
		return -FI_ECONNREFUSED;
	case VIP_NOT_REACHABLE:
		return -FI_EHOSTUNREACH;
	case VIP_INVALID_STATE:
		return -FI_EOPBADSTATE;
	case VIP_INVALID_PTAG:
		return -FI_EACCES;
	case VIP_ERROR_NOT_SUPPORTED:
		return -FI_EOPNOTSUPP;
	case VIP_ERROR:
		return -FI_EOPNOTSUPP; /* in a child */
	default:
		return -FI_EINVAL;
	}
}

int signal_open(int *fd)
{
	*fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return *fd < 0 ? -errno : 0;
}

void signal_set(int fd)
{
	uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		return; /* it is set as often as can be */
}

void signal_clear(int fd)
{
	uint64_t n;

	if (fd >= 0 && read(fd, &n, sizeof(n)) < 0)
		return; /* it was not set */
}

int signal_wait(int fd, int milliseconds)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n = poll(&p, 1, milliseconds);

	return n > 0 ? 0 : n == 0 ? -FI_EAGAIN : -errno;
}

int wait_object(int fd, int command, void *arg)
{
	switch (command) {
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)arg = fd >= 0 ? FI_WAIT_FD : FI_WAIT_NONE;
		return 0;
	case FI_GETWAIT:
		if (fd < 0)
			return -FI_ENOSYS;
		*(int *)arg = fd;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

int no_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}
