/* Threads with VIs of their own, and one that opens, makes and closes beside them:
 * DEVICE DEVICE. */
#include "pair.h"

#define THREADS 4
#define MESSAGES 500
#define BYTES 1000

static struct side a, b;
static const char *device;

struct flow {
	VIP_VI_HANDLE x, y;
	VIP_CQ_HANDLE cq;
	int number;
};

/* The n-th descriptor of a flow, with data of its own. */
static VIP_DESCRIPTOR *of(struct side *s, struct flow *f, int n)
{
	int i = f->number * 4 + n;

	return describe(s, i, BYTES * (size_t)i, BYTES);
}

static void *sender(void *argument)
{
	struct flow *f = argument;
	VIP_DESCRIPTOR *d;
	int i;

	for (i = 0; i < MESSAGES; i++) {
		d = of(&a, f, 0);
		memset(d->DS[0].Local.Data.Address, i + f->number, BYTES);
		NEED(VipPostSend(f->x, d, a.memory));
		NEED(VipSendWait(f->x, PATIENCE, &d));
	}
	return NULL;
}

static void *receiver(void *argument)
{
	struct flow *f = argument;
	VIP_DESCRIPTOR *d;
	VIP_BOOLEAN receive;
	VIP_VI_HANDLE vi;
	int i, j;

	for (i = 0; i < MESSAGES; i++) {
		NEED(VipCQWait(f->cq, PATIENCE, &vi, &receive));
		NEED(VipRecvDone(f->y, &d));
		if (vi != f->y || !receive || d->CS.Length != BYTES)
			exit(1);
		for (j = 0; j < BYTES; j += 99) {
			if (((char *)d->DS[0].Local.Data.Address)[j] != (char)(i + f->number)) {
				fprintf(stderr, "message %d of flow %d has changed\n", i, f->number);
				exit(1);
			}
		}
		d->CS.Status = 0;
		NEED(VipPostRecv(f->y, d, b.memory));
	}
	return NULL;
}

/* Makes objects with a handle of its own, and has one thread end them all. */
static void *maker(void *unused)
{
	VIP_NIC_HANDLE nic;
	VIP_VI_HANDLE vi[4];
	VIP_CQ_HANDLE cq;
	int round, i;

	(void)unused;
	for (round = 0; round < 20; round++) {
		NEED(VipOpenNic(device, &nic));
		NEED(VipCreateCQ(nic, 16, &cq));
		for (i = 0; i < 4; i++)
			NEED(VipCreateVi(nic, NULL, cq, cq, &vi[i]));
		for (i = 0; i < round % 5; i++)
			NEED(VipDestroyVi(vi[i]));
		NEED(VipCloseNic(nic));
		for (i = 0; i < 4; i++)
			IS(VipDestroyVi(vi[i]), VIP_INVALID_PARAMETER);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2 * THREADS + 1];
	struct flow flows[THREADS];
	int i;

	if (argc != 3)
		return 2;
	device = argv[1];
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	for (i = 0; i < THREADS; i++) {
		struct flow *f = &flows[i];

		f->number = i;
		NEED(VipCreateCQ(b.nic, 16, &f->cq));
		connect_pair(&a, &b, NULL, f->cq, &f->x, &f->y);
		NEED(VipPostRecv(f->y, of(&b, f, 1), b.memory));
		NEED(VipPostRecv(f->y, of(&b, f, 2), b.memory));
	}
	for (i = 0; i < THREADS; i++) {
		pthread_create(&threads[2 * i], NULL, sender, &flows[i]);
		pthread_create(&threads[2 * i + 1], NULL, receiver, &flows[i]);
	}
	pthread_create(&threads[2 * THREADS], NULL, maker, NULL);
	for (i = 0; i < 2 * THREADS + 1; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < THREADS; i++) {
		disconnect(flows[i].x);
		disconnect(flows[i].y);
		OK(VipDestroyCQ(flows[i].cq));
	}
	close_side(&a);
	close_side(&b);
	return failures != 0;
}
