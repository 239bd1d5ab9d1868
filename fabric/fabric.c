/* Fabrics: the watcher of sockets, and waiting for several queues. */
#include "provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

/* watched_by is the entry of a number; the fabric's lock is held. */
static struct watched *watched_by(struct fabric *f, uint64_t id)
{
	struct watched *w;

	for (w = f->watched; w != NULL && w->id != id; w = w->next)
		;
	return w;
}

/* drop takes an entry off the list; the fabric's lock is held. */
static void drop(struct fabric *f, struct watched *w)
{
	struct watched **at;

	for (at = &f->watched; *at != NULL; at = &(*at)->next)
		if (*at == w) {
			*at = w->next;
			epoll_ctl(f->epoll, EPOLL_CTL_DEL, w->fd, NULL);
			w->id = 0;
			return;
		}
}

/* overdue tells those whose time is over, and says how long the others have. */
static int overdue(struct fabric *f)
{
	struct watched *w, *next;
	int64_t now = now_ms(), least = -1;

	for (w = f->watched; w != NULL; w = next) {
		next = w->next;
		if (w->deadline == 0)
			continue;
		if (w->deadline > now) {
			least = least < 0 || w->deadline - now < least ? w->deadline - now : least;
			continue;
		}
		drop(f, w);
		w->news(w);
		next = f->watched; /* the list may have changed */
	}
	return (int)least;
}

/* keep_alive has the NICs work whose programs have made no call since the last time. Their peers would
 * take them for dead. The fabric's lock is held. */
static void keep_alive(struct fabric *f)
{
	struct domain *d;

	for (d = f->domains; d != NULL; d = d->next) {
		if (pthread_mutex_trylock(&d->lock) != 0)
			continue; /* it is at work */
		if (d->polls == d->seen)
			progress(d, NULL, SIZE_MAX);
		d->seen = d->polls;
		pthread_mutex_unlock(&d->lock);
	}
}

static void *watch_all(void *argument)
{
	struct fabric *f = argument;
	int64_t rested = 0;

	do {
		struct epoll_event e;
		struct watched *w;
		int n, wait;

		pthread_mutex_lock(&f->lock);
		wait = overdue(f);
		if (now_ms() - rested >= REST_MS) {
			rested = now_ms();
			keep_alive(f);
		}
		wait = wait < 0 || wait > REST_MS ? REST_MS : wait;
		pthread_mutex_unlock(&f->lock);
		n = epoll_wait(f->epoll, &e, 1, wait);
		pthread_mutex_lock(&f->lock);
		if (n == 1 && e.data.u64 != 0 && (w = watched_by(f, e.data.u64)) != NULL) {
			uint64_t id = w->id;

			/* What news frees it has dropped itself. */
			if (!w->news(w) && (w = watched_by(f, id)) != NULL)
				drop(f, w);
		} else if (n == 1 && e.data.u64 == 0) {
			signal_clear(f->wake);
		}
		pthread_mutex_unlock(&f->lock);
	} while (__atomic_load_n(&f->watching, __ATOMIC_ACQUIRE));
	return NULL;
}

/* start starts the watcher with the first socket; the lock is held. */
static int start(struct fabric *f)
{
	struct epoll_event e = {.events = EPOLLIN};
	int r;

	if (f->watching)
		return 0;
	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (f->epoll < 0)
		return -errno;
	if ((r = signal_open(&f->wake)) != 0) {
		close(f->epoll);
		return r;
	}
	epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->wake, &e);
	f->watching = true;
	r = pthread_create(&f->watcher, NULL, watch_all, f);
	if (r != 0) {
		f->watching = false;
		close(f->wake);
		close(f->epoll);
		return -r;
	}
	return 0;
}

int watch(struct fabric *f, struct watched *w, uint32_t events)
{
	struct epoll_event e = {.events = events};
	int r = start(f);

	if (r != 0)
		return r;
	e.data.u64 = w->id = ++f->next_id;
	if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, w->fd, &e) != 0) {
		w->id = 0;
		return -errno;
	}
	w->next = f->watched;
	f->watched = w;
	signal_set(f->wake); /* for its deadline */
	return 0;
}

void unwatch(struct fabric *f, struct watched *w)
{
	if (w->id != 0)
		drop(f, w);
}

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static struct fabric *fabrics; /* that are open; guarded by all */

void end_watchers(void)
{
	struct timespec end;
	struct fabric *f;

	if (in_child())
		return; /* threads do not go along */
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec++; /* who calls exit in a signal handler may have a lock that a watcher waits for */
	pthread_mutex_lock(&all);
	for (f = fabrics; f != NULL; f = f->next)
		if (__atomic_exchange_n(&f->watching, false, __ATOMIC_ACQ_REL)) {
			signal_set(f->wake);
			(void)pthread_timedjoin_np(f->watcher, NULL, &end);
		}
	pthread_mutex_unlock(&all);
}

static int fabric_close(struct fid *fid)
{
	struct fabric *f = (struct fabric *)fid, **at;

	if (in_child())
		return -FI_EOPNOTSUPP;
	if (__atomic_load_n(&f->users, __ATOMIC_ACQUIRE) != 0)
		return -FI_EBUSY;
	pthread_mutex_lock(&all);
	for (at = &fabrics; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	pthread_mutex_unlock(&all);
	if (__atomic_exchange_n(&f->watching, false, __ATOMIC_ACQ_REL)) {
		signal_set(f->wake);
		pthread_join(f->watcher, NULL);
		close(f->wake);
		close(f->epoll);
	}
	pthread_mutex_destroy(&f->lock);
	free(f);
	return 0;
}

static int no_wait_open(struct fid_fabric *f, struct fi_wait_attr *a, struct fid_wait **w)
{
	(void)f, (void)a, (void)w;
	return -FI_ENOSYS;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int i, r;

	(void)fabric;
	for (i = 0; i < count; i++) {
		switch (fids[i]->fclass) {
		case FI_CLASS_CQ:
			r = ((struct cq *)fids[i])->fd < 0 ? -FI_ENOSYS : cq_arm((struct cq *)fids[i]);
			break;
		case FI_CLASS_CNTR:
			r = ((struct cntr *)fids[i])->fd < 0 ? -FI_ENOSYS : cntr_arm((struct cntr *)fids[i]);
			break;
		case FI_CLASS_EQ:
			r = eq_empty((struct eq *)fids[i]) ? 0 : -FI_EAGAIN;
			break;
		default:
			r = -FI_EINVAL;
		}
		if (r != 0)
			return r;
	}
	return 0;
}

static struct fi_ops fid_ops = {sizeof(fid_ops), fabric_close, no_bind, no_control, no_ops_open, NULL, NULL};
static struct fi_ops_fabric ops = {.size = sizeof(ops), .domain = domain_open, .passive_ep = pep_open, .eq_open = eq_open, .wait_open = no_wait_open,
	.trywait = trywait};

int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct fabric *f;

	if (attr->name != NULL && strcmp(attr->name, "trapeze") != 0)
		return -FI_ENODATA;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -FI_ENOMEM;
	f->fabric.fid = (struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fid_ops};
	f->fabric.ops = &ops;
	pthread_mutex_init(&f->lock, NULL);
	pthread_mutex_lock(&all);
	f->next = fabrics;
	fabrics = f;
	pthread_mutex_unlock(&all);
	*fabric = &f->fabric;
	return 0;
}
