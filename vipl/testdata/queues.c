/* Descriptors, good and bad, completion queues and handlers: DEVICE DEVICE. */
#include "pair.h"

static struct side a, b;

static VIP_DESCRIPTOR *at(struct side *s, int i)
{
	return (VIP_DESCRIPTOR *)(s->start + 64 * i);
}

static VIP_DESCRIPTOR *blank(struct side *s, int i)
{
	return memset(at(s, i), 0, 64);
}

/* Posts a send that fails at y's first receive, and checks its status. */
static void send_fails(VIP_RELIABILITY_LEVEL level, void (*spoil)(VIP_DESCRIPTOR *), VIP_UINT32 want)
{
	VIP_VI_ATTRIBUTES attributes = {0};
	VIP_VI_HANDLE x, y;
	VIP_DESCRIPTOR *d, *s;
	VIP_VI_STATE state;

	attributes.ReliabilityLevel = level;
	attributes.MaxTransferSize = 32768;
	OK(VipCreateVi(a.nic, &attributes, NULL, NULL, &x));
	OK(VipCreateVi(b.nic, &attributes, NULL, NULL, &y));
	connect_vis(&a, &b, x, y);
	OK(VipPostRecv(y, describe(&b, 0, 0, 32768), b.memory));
	s = describe(&a, 0, 0, 100);
	spoil(s);
	OK(VipPostSend(x, s, a.memory));
	IS(VipSendWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == s && (s->CS.Status & VIP_STATUS_DONE));
	if ((s->CS.Status & VIP_STATUS_ERROR_MASK & want) == 0) {
		fprintf(stderr, "status %#x, want one of %#x\n", s->CS.Status, want);
		failures++;
	}
	state = state_of(x);
	CHECK(state == (level == VIP_SERVICE_UNRELIABLE ? VIP_STATE_CONNECTED : VIP_STATE_ERROR));
	disconnect(x);
	disconnect(y);
}

static void more_segments(VIP_DESCRIPTOR *d) { d->CS.SegCount = 254; }
static void most_segments(VIP_DESCRIPTOR *d) { d->CS.SegCount = 0xffff; }
static void no_segments(VIP_DESCRIPTOR *d) { d->CS.SegCount = 0; } /* and a length */
static void longer(VIP_DESCRIPTOR *d) { d->CS.Length++; }
static void shorter(VIP_DESCRIPTOR *d) { d->CS.Length--; }
static void over_limit(VIP_DESCRIPTOR *d) { d->CS.Length = d->DS[0].Local.Length = 32769; }
static void reserved(VIP_DESCRIPTOR *d) { d->CS.Control = VIP_CONTROL_RESERVED; }
static void operation(VIP_DESCRIPTOR *d) { d->CS.Control = VIP_CONTROL_OP_RESERVED; }
static void foreign_handle(VIP_DESCRIPTOR *d) { d->DS[0].Local.Handle = b.memory ^ 0x5a5a5a5a; }
static void null_address(VIP_DESCRIPTOR *d) { d->DS[0].Local.Data.Address = NULL; }
static void past_the_end(VIP_DESCRIPTOR *d) { d->DS[0].Local.Data.Address = a.start + SIDE_BYTES - 99; }
static void wraps(VIP_DESCRIPTOR *d) { d->DS[0].Local.Data.AddressBits = ~0UL - 50; }

static VIP_MEM_HANDLE other_ptag;
static void ptag_mismatch(VIP_DESCRIPTOR *d) { d->DS[0].Local.Handle = other_ptag; }

static void bad_descriptors(void)
{
	static const struct {
		void (*spoil)(VIP_DESCRIPTOR *);
		VIP_UINT32 want;
	} cases[] = {
		{more_segments, VIP_STATUS_FORMAT_ERROR},
		{most_segments, VIP_STATUS_FORMAT_ERROR},
		{no_segments, VIP_STATUS_FORMAT_ERROR | VIP_STATUS_LENGTH_ERROR},
		{longer, VIP_STATUS_FORMAT_ERROR | VIP_STATUS_LENGTH_ERROR},
		{shorter, VIP_STATUS_FORMAT_ERROR | VIP_STATUS_LENGTH_ERROR},
		{over_limit, VIP_STATUS_FORMAT_ERROR | VIP_STATUS_LENGTH_ERROR},
		{reserved, VIP_STATUS_FORMAT_ERROR},
		{operation, VIP_STATUS_FORMAT_ERROR},
		{foreign_handle, VIP_STATUS_PROTECTION_ERROR},
		{null_address, VIP_STATUS_PROTECTION_ERROR},
		{past_the_end, VIP_STATUS_PROTECTION_ERROR},
		{wraps, VIP_STATUS_PROTECTION_ERROR},
		{ptag_mismatch, VIP_STATUS_PROTECTION_ERROR},
	};
	VIP_MEM_ATTRIBUTES attributes = {0};
	VIP_PROTECTION_HANDLE tag;
	size_t i;

	OK(VipCreatePtag(a.nic, &tag));
	attributes.Ptag = tag;
	OK(VipRegisterMem(a.nic, a.start, SIDE_BYTES, &attributes, &other_ptag));
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		send_fails(VIP_SERVICE_RELIABLE_DELIVERY, cases[i].spoil, cases[i].want);
		send_fails(VIP_SERVICE_UNRELIABLE, cases[i].spoil, cases[i].want);
	}
	OK(VipDeregisterMem(a.nic, a.start, other_ptag));
	OK(VipDestroyPtag(a.nic, tag));
}

/* What a post refuses, and that it changes nothing. */
static void posts(void)
{
	VIP_VI_HANDLE x, y, other = make_vi(&b, NULL, NULL);
	VIP_MEM_ATTRIBUTES attributes = {0};
	VIP_PROTECTION_HANDLE tag;
	VIP_MEM_HANDLE m, gone;
	VIP_DESCRIPTOR *d, *r;
	VIP_BOOLEAN sends, receives;
	char *bytes = aligned_alloc(64, 4096);

	connect_pair(&a, &b, NULL, NULL, &x, &y);
	IS(VipPostRecv(y, NULL, b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, blank(&b, 0), 0), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, blank(&b, 0), b.memory ^ 0x100000), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)(b.start + 32), b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)(b.start + 1), b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)(b.start + SIDE_BYTES), b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)(b.start - 64), b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)~63UL, b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)a.start, b.memory), VIP_INVALID_PARAMETER);
	memset(bytes, 0, 4096);
	OK(VipCreatePtag(b.nic, &tag));
	attributes.Ptag = tag;
	OK(VipRegisterMem(b.nic, bytes, 4096, &attributes, &m));
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)bytes, m), VIP_INVALID_PARAMETER); /* ptag */
	OK(VipDeregisterMem(b.nic, bytes, m));
	IS(VipPostRecv(y, (VIP_DESCRIPTOR *)bytes, m), VIP_INVALID_PARAMETER); /* gone */
	OK(VipDestroyPtag(b.nic, tag));
	/* A descriptor that ends behind its region completes with an error. */
	OK(VipRegisterMem(b.nic, bytes, 64, NULL, &m));
	OK(VipDeregisterMem(b.nic, bytes, m));
	query_vi(y, &sends, &receives);
	CHECK(sends && receives);

	/* Posted once, on one queue. */
	r = describe(&b, 1, 0, 100);
	OK(VipPostRecv(y, r, b.memory));
	IS(VipPostRecv(y, r, b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostSend(y, r, b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostRecv(other, r, b.memory), VIP_INVALID_PARAMETER);
	IS(VipPostSend(other, r, b.memory), VIP_INVALID_PARAMETER);
	OK(VipPostSend(x, describe(&a, 0, 0, 50), a.memory));
	OK(VipRecvWait(y, PATIENCE, &d));
	CHECK(d == r && r->CS.Length == 50);
	OK(VipSendWait(x, PATIENCE, &d));
	/* It may be posted again with its old status; on another VI too. */
	r->CS.Length = 100;
	OK(VipPostRecv(other, r, b.memory));
	OK(VipDisconnect(other));
	IS(VipRecvWait(other, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == r);
	OK(VipDestroyVi(other));

	/* Memory that goes while a descriptor names it. */
	OK(VipRegisterMem(a.nic, bytes, 4096, NULL, &gone));
	d = describe(&a, 0, 0, 100);
	d->DS[0].Local.Data.Address = bytes;
	d->DS[0].Local.Handle = gone;
	OK(VipPostSend(x, d, a.memory)); /* waits for a receive */
	OK(VipDeregisterMem(a.nic, bytes, gone));
	OK(VipPostRecv(y, describe(&b, 1, 0, 100), b.memory));
	IS(VipSendWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d->CS.Status & VIP_STATUS_PROTECTION_ERROR);
	disconnect(x);
	disconnect(y);
	free(bytes);
}

/* Segments, immediate data, and Next, which is the program's while it has the descriptor. */
static void good_descriptors(void)
{
	VIP_VI_HANDLE x, y;
	VIP_DESCRIPTOR *s, *r, *d, *list = NULL;
	int i;

	connect_pair(&a, &b, NULL, NULL, &x, &y);
	s = blank(&a, 0);
	s->CS.SegCount = 2;
	s->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
	s->CS.ImmediateData = 0xfeedf00d;
	s->CS.Length = 30;
	for (i = 0; i < 2; i++) {
		s->DS[i].Local.Data.Address = a.start + DATA + 1000 * i;
		s->DS[i].Local.Handle = a.memory;
		s->DS[i].Local.Length = 10 + 10 * (VIP_UINT32)i;
		memset(a.start + DATA + 1000 * i, 'a' + i, 100);
	}
	r = describe(&b, 0, 0, 100);
	OK(VipPostRecv(y, r, b.memory));
	OK(VipPostSend(x, s, a.memory));
	OK(VipRecvWait(y, PATIENCE, &d));
	CHECK(r->CS.Length == 30 && r->CS.ImmediateData == 0xfeedf00d);
	CHECK(r->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE));
	CHECK(memcmp(b.start + DATA, "aaaaaaaaaabbbbbbbbbbbbbbbbbbbb", 30) == 0);
	OK(VipSendWait(x, PATIENCE, &d));
	/* Immediate data alone. */
	s->CS.SegCount = 0;
	s->CS.Length = 0;
	s->CS.Status = 0;
	r = blank(&b, 0);
	OK(VipPostRecv(y, r, b.memory));
	OK(VipPostSend(x, s, a.memory));
	OK(VipRecvWait(y, PATIENCE, &d));
	CHECK(d == r && r->CS.Length == 0 && (r->CS.Status & VIP_STATUS_IMMEDIATE));
	OK(VipSendWait(x, PATIENCE, &d));

	for (i = 0; i < 4; i++) {
		d = describe(&b, i, 100 * (size_t)i, 100);
		d->CS.Next.Address = list;
		list = d;
	}
	for (i = 0; i < 4; i++) {
		d = list;
		list = d->CS.Next.Address;
		d->CS.Next.AddressBits = 0xdeadbeef; /* is nobody's business */
		OK(VipPostRecv(y, d, b.memory));
	}
	for (i = 0; i < 4; i++) {
		OK(VipPostSend(x, describe(&a, i, 0, 10), a.memory));
		OK(VipRecvWait(y, PATIENCE, &d));
		CHECK(d == at(&b, 3 - i));
		d->CS.Next.Address = list;
		list = d;
	}
	/* A receive too small. */
	OK(VipPostRecv(y, describe(&b, 0, 0, 9), b.memory));
	OK(VipPostSend(x, describe(&a, 4, 0, 10), a.memory));
	IS(VipRecvWait(y, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d->CS.Status & VIP_STATUS_LENGTH_ERROR);
	for (i = 0; i < 4; i++)
		OK(VipSendWait(x, PATIENCE, &d));
	IS(VipSendWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == at(&a, 4) && (d->CS.Status & VIP_STATUS_REMOTE_DESC_ERROR));
	disconnect(x);
	disconnect(y);
}

/* More posts than the queue holds. */
static void full(void)
{
	VIP_VI_HANDLE vi = make_vi(&b, NULL, NULL);
	VIP_ULONG n = b.about.MaxDescriptorsPerQueue, i;
	char *many = aligned_alloc(4096, 64 * (n + 64));
	VIP_MEM_HANDLE m;
	VIP_DESCRIPTOR *d;

	memset(many, 0, 64 * (n + 64));
	OK(VipRegisterMem(b.nic, many, 64 * (n + 64), NULL, &m));
	for (i = 0; i < n; i++)
		OK(VipPostRecv(vi, (VIP_DESCRIPTOR *)(many + 64 * i), m));
	IS(VipPostRecv(vi, (VIP_DESCRIPTOR *)(many + 64 * n), m), VIP_ERROR_RESOURCE);
	OK(VipDisconnect(vi));
	for (i = 0; i < n; i++) {
		IS(VipRecvWait(vi, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
		CHECK(d == (VIP_DESCRIPTOR *)(many + 64 * i));
	}
	IS(VipRecvDone(vi, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == NULL);
	OK(VipDestroyVi(vi));
	OK(VipDeregisterMem(b.nic, many, m));
	free(many);
}

/* Queues that are to hold fewer. */
static void sized(void)
{
	VIP_VI_ATTRIBUTES wants = {0}, has;
	VIP_ULONG most = b.about.MaxDescriptorsPerQueue;
	VIP_VI_HANDLE vi;
	VIP_VI_STATE state;
	VIP_BOOLEAN s, r;
	VIP_DESCRIPTOR *d;
	int i;

	wants.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	wants.MaxTransferSize = 4096;
	wants.Ptag = b.ptag;
	IS(VipCreateViSized(b.nic, &wants, NULL, NULL, most + 1, 1, &vi), VIP_ERROR_RESOURCE);
	IS(VipCreateViSized(b.nic, &wants, NULL, NULL, 1, (VIP_ULONG)-1, &vi), VIP_ERROR_RESOURCE);
	IS(VipCreateViSized(b.nic, &wants, NULL, NULL, 1, 1, NULL), VIP_INVALID_PARAMETER);
	OK(VipCreateViSized(b.nic, &wants, NULL, NULL, 2, 4, &vi));
	wants.MaxTransferSize = 8192;
	OK(VipSetViAttributes(vi, &wants)); /* the depths stay */
	for (i = 0; i < 4; i++)
		OK(VipPostRecv(vi, describe(&b, i, 0, 8), b.memory));
	IS(VipPostRecv(vi, describe(&b, 4, 0, 8), b.memory), VIP_ERROR_RESOURCE);
	OK(VipQueryVi(vi, &state, &has, &s, &r));
	CHECK(has.MaxTransferSize == 8192 && s == VIP_TRUE && r == VIP_FALSE);
	OK(VipDisconnect(vi));
	for (i = 0; i < 4; i++)
		IS(VipRecvDone(vi, &d), VIP_DESCRIPTOR_ERROR);
	OK(VipDestroyVi(vi));
}

#define MANY 20

/* One call takes what several VIs have completed, and no more than there is room for. */
static void several_completions(VIP_CQ_HANDLE cq, const VIP_VI_HANDLE *x, const VIP_VI_HANDLE *y)
{
	VIP_CQ_COMPLETION done[8];
	VIP_ULONG taken = 1, all = 0, tries, k;
	VIP_DESCRIPTOR *d;
	int i, who, seen[MANY] = {0};

	IS(VipCQPoll(cq, done, 8, &taken), VIP_NOT_DONE);
	CHECK(taken == 0);
	IS(VipCQPoll(cq, NULL, 8, &taken), VIP_INVALID_PARAMETER);
	IS(VipCQPoll(cq, done, 0, &taken), VIP_INVALID_PARAMETER);
	IS(VipCQPoll(cq, done, 8, NULL), VIP_INVALID_PARAMETER);
	IS(VipCQPoll(NULL, done, 8, &taken), VIP_INVALID_PARAMETER);
	for (i = 0; i < MANY; i++) {
		OK(VipSendWait(x[i], PATIENCE, &d));
		OK(VipPostRecv(y[i], describe(&b, i, 0, 100), b.memory));
		OK(VipPostSend(x[i], describe(&a, i, 0, 10), a.memory));
	}
	for (tries = 0; all < MANY && tries < PATIENCE; tries++) {
		if (VipCQPoll(cq, done, 8, &taken) == VIP_NOT_DONE)
			usleep(1000);
		CHECK(taken <= 8);
		for (k = 0; k < taken; k++) {
			for (who = 0; who < MANY && y[who] != done[k].ViHandle; who++)
				;
			CHECK(who < MANY && seen[who]++ == 0 && done[k].RecvQueue == VIP_TRUE && done[k].ReturnCode == VIP_SUCCESS);
			CHECK(done[k].DescriptorPtr == at(&b, who) && done[k].DescriptorPtr->CS.Length == 10);
		}
		all += taken;
	}
	CHECK(all == MANY);
}

/* A CQ of 16 entries takes the completions of many VIs. */
static void completion_queues(void)
{
	VIP_VI_HANDLE x[MANY], y[MANY], vi;
	VIP_CQ_HANDLE cq;
	VIP_BOOLEAN receive;
	VIP_DESCRIPTOR *d;
	int i, seen[MANY] = {0};

	OK(VipCreateCQ(b.nic, 16, &cq));
	IS(VipCQDone(cq, &vi, &receive), VIP_NOT_DONE);
	IS(VipCQWait(cq, 0, &vi, &receive), VIP_TIMEOUT);
	IS(VipCQWait(cq, 10, &vi, &receive), VIP_TIMEOUT);
	IS(VipCQDone(cq, NULL, &receive), VIP_INVALID_PARAMETER);
	IS(VipCQDone(cq, &vi, NULL), VIP_INVALID_PARAMETER);
	for (i = 0; i < MANY; i++) {
		connect_pair(&a, &b, cq, cq, &x[i], &y[i]);
		OK(VipPostRecv(y[i], describe(&b, i, 0, 100), b.memory));
		OK(VipPostSend(x[i], describe(&a, i, 0, 10), a.memory));
	}
	IS(VipDestroyCQ(cq), VIP_ERROR_RESOURCE);
	IS(VipResizeCQ(cq, 0), VIP_INVALID_PARAMETER);
	OK(VipResizeCQ(cq, 16));
	for (i = 0; i < MANY; i++) {
		int who;

		OK(VipCQWait(cq, PATIENCE, &vi, &receive));
		CHECK(receive == VIP_TRUE);
		for (who = 0; who < MANY && y[who] != vi; who++)
			;
		CHECK(who < MANY && seen[who]++ == 0);
		OK(VipRecvDone(vi, &d));
		CHECK(d == at(&b, who) && d->CS.Length == 10);
	}
	several_completions(cq, x, y);
	IS(VipCQDone(cq, &vi, &receive), VIP_NOT_DONE);
	IS(VipRecvWait(y[0], 10, &d), VIP_INVALID_PARAMETER); /* the CQ is waited for */
	IS(VipSendWait(y[0], 10, &d), VIP_INVALID_PARAMETER);
	IS(VipRecvNotify(y[0], NULL, never), VIP_INVALID_PARAMETER);
	OK(VipPostRecv(x[0], describe(&a, 30, 0, 100), a.memory));
	OK(VipPostSend(y[0], describe(&b, 30, 0, 10), b.memory));
	OK(VipCQWait(cq, VIP_INFINITE, &vi, &receive));
	CHECK(vi == y[0] && receive == VIP_FALSE);
	OK(VipSendDone(y[0], &d));
	for (i = 0; i < MANY; i++) {
		disconnect(x[i]);
		disconnect(y[i]);
	}
	OK(VipDestroyCQ(cq));
	IS(VipCQDone(cq, &vi, &receive), VIP_INVALID_PARAMETER);
}

/* What handlers were called with. */
struct call {
	VIP_NIC_HANDLE nic;
	VIP_VI_HANDLE vi;
	VIP_DESCRIPTOR *descriptor;
	VIP_BOOLEAN receive;
	VIP_ERROR_CODE error;
	VIP_RESOURCE_CODE resource;
	VIP_ULONG operation;
	pthread_t thread;
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t more;
	int count;
	struct call calls[16];
} noted = {.mutex = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void note(struct call c)
{
	c.thread = pthread_self();
	pthread_mutex_lock(&noted.mutex);
	if (noted.count < 16)
		noted.calls[noted.count++] = c;
	pthread_cond_broadcast(&noted.more);
	pthread_mutex_unlock(&noted.mutex);
}

/* Waits for the n-th call since the last reset. */
static struct call noted_call(int n)
{
	struct call c;

	pthread_mutex_lock(&noted.mutex);
	while (noted.count <= n)
		pthread_cond_wait(&noted.more, &noted.mutex);
	c = noted.calls[n];
	pthread_mutex_unlock(&noted.mutex);
	return c;
}

static void forget_calls(void)
{
	pthread_mutex_lock(&noted.mutex);
	noted.count = 0;
	pthread_mutex_unlock(&noted.mutex);
}

static void on_completion(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
	note((struct call){.nic = nic, .vi = vi, .descriptor = d, .receive = context == (VIP_PVOID)7});
}

static void on_cq(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN receive)
{
	CHECK(context == (VIP_PVOID)9);
	note((struct call){.nic = nic, .vi = vi, .receive = receive});
}

static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *e)
{
	CHECK(context == (VIP_PVOID)3);
	note((struct call){.nic = e->NicHandle, .vi = e->ViHandle, .error = e->ErrorCode, .resource = e->ResourceCode, .operation = e->OpCode});
}

static void handlers(void)
{
	VIP_VI_HANDLE x, y;
	VIP_CQ_HANDLE cq;
	VIP_DESCRIPTOR *d;
	struct call c;
	int i;

	connect_pair(&a, &b, NULL, NULL, &x, &y);
	IS(VipRecvNotify(y, NULL, NULL), VIP_INVALID_PARAMETER);
	OK(VipRecvNotify(y, (VIP_PVOID)7, on_completion));
	OK(VipRecvNotify(y, (VIP_PVOID)8, on_completion));
	OK(VipSendNotify(x, NULL, on_completion));
	for (i = 0; i < 2; i++)
		OK(VipPostRecv(y, describe(&b, i, 0, 100), b.memory));
	for (i = 0; i < 2; i++)
		OK(VipPostSend(x, describe(&a, i, 0, 10), a.memory));
	for (i = 0; i < 3; i++) {
		c = noted_call(i);
		CHECK(!pthread_equal(c.thread, pthread_self()));
		if (c.vi == x)
			CHECK(c.nic == a.nic && c.descriptor == at(&a, 0));
		else
			CHECK(c.vi == y && c.nic == b.nic && c.descriptor == at(&b, c.receive ? 0 : 1));
	}
	OK(VipSendWait(x, PATIENCE, &d)); /* for which there was no handler */
	CHECK(d == at(&a, 1));
	disconnect(x);
	disconnect(y);

	forget_calls();
	OK(VipCreateCQ(b.nic, 16, &cq));
	connect_pair(&a, &b, NULL, cq, &x, &y);
	IS(VipCQNotify(cq, NULL, NULL), VIP_INVALID_PARAMETER);
	OK(VipCQNotify(cq, (VIP_PVOID)9, on_cq));
	OK(VipPostRecv(y, describe(&b, 0, 0, 100), b.memory));
	OK(VipPostSend(x, describe(&a, 0, 0, 10), a.memory));
	c = noted_call(0);
	CHECK(c.vi == y && c.nic == b.nic && c.receive == VIP_TRUE);
	OK(VipRecvDone(y, &d));
	CHECK(d == at(&b, 0));

	/* The other end goes: the handler of errors is told, with a context that is no pointer. */
	forget_calls();
	OK(VipSendWait(x, PATIENCE, &d));
	OK(VipErrorCallback(b.nic, (VIP_PVOID)3, on_error));
	OK(VipDisconnect(x));
	c = noted_call(0);
	CHECK(c.vi == y && c.nic == b.nic && c.error == VIP_ERROR_CONN_LOST && c.resource == VIP_RESOURCE_VI && c.operation == 0);
	OK(VipErrorCallback(b.nic, NULL, NULL));
	disconnect(x);
	disconnect(y);
	OK(VipDestroyCQ(cq));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	good_descriptors();
	posts();
	full();
	sized();
	bad_descriptors();
	completion_queues();
	handlers();
	close_side(&a);
	close_side(&b);
	return failures != 0;
}
