/* RDMA writes and reads, what is allowed, and what is refused: DEVICE DEVICE. */
#include "pair.h"

static struct side a, b;

static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *e)
{
	VIP_ERROR_DESCRIPTOR *last = context;

	if (e->ErrorCode != VIP_ERROR_CONN_LOST)
		*last = *e;
}

static void connect_rdma(VIP_BOOLEAN write, VIP_BOOLEAN read, VIP_VI_HANDLE *x, VIP_VI_HANDLE *y)
{
	VIP_VI_ATTRIBUTES v = {0};

	v.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	v.Ptag = a.ptag;
	OK(VipCreateVi(a.nic, &v, NULL, NULL, x));
	v.Ptag = b.ptag;
	v.EnableRdmaWrite = write;
	v.EnableRdmaRead = read;
	OK(VipCreateVi(b.nic, &v, NULL, NULL, y));
	connect_vis(&a, &b, *x, *y);
}

/* A descriptor of a's for bytes at its data's start and at there of b. */
static VIP_DESCRIPTOR *rdma(VIP_UINT16 control, VIP_UINT32 bytes, char *there, VIP_MEM_HANDLE handle)
{
	VIP_DESCRIPTOR *d = describe(&a, 0, 0, bytes);

	d->CS.SegCount = 2;
	d->CS.Control = control;
	d->DS[1] = d->DS[0];
	d->DS[0].Remote.Data.Address = there;
	d->DS[0].Remote.Handle = handle;
	d->DS[0].Remote.Reserved = 0;
	return d;
}

int main(int argc, char **argv)
{
	VIP_MEM_ATTRIBUTES open = {0}, shut = {0}, got;
	VIP_ERROR_DESCRIPTOR error = {0};
	VIP_MEM_HANDLE target, secret;
	VIP_VI_HANDLE x, y;
	VIP_DESCRIPTOR *d, *r;
	VIP_VI_STATE state;
	char *there;
	int i;

	if (argc != 3)
		return 2;
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	there = b.start + 40000;
	open.Ptag = shut.Ptag = b.ptag;
	open.EnableRdmaWrite = open.EnableRdmaRead = VIP_TRUE;
	OK(VipRegisterMem(b.nic, there, 1000, &open, &target));
	OK(VipRegisterMem(b.nic, there, 1000, &shut, &secret));
	OK(VipQueryMem(b.nic, there, target, &got));
	CHECK(got.EnableRdmaWrite == VIP_TRUE && got.EnableRdmaRead == VIP_TRUE);
	CHECK(a.about.RDMAReadSupport & VIP_SERVICE_RELIABLE_DELIVERY);
	CHECK(!(a.about.RDMAReadSupport & VIP_SERVICE_UNRELIABLE));

	/* A write takes no receive; a read brings the same back; the fence is in order. */
	connect_rdma(VIP_TRUE, VIP_TRUE, &x, &y);
	for (i = 0; i < 500; i++)
		a.start[DATA + i] = (char)(i * 3);
	d = rdma(VIP_CONTROL_OP_RDMAWRITE, 500, there + 100, target);
	OK(VipPostSend(x, d, a.memory));
	OK(VipSendWait(x, PATIENCE, &d));
	CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE) && d->CS.Length == 500);
	memset(a.start + DATA, 0, 500);
	d = rdma(VIP_CONTROL_OP_RDMAREAD, 500, there + 100, target);
	OK(VipPostSend(x, d, a.memory));
	OK(VipSendWait(x, PATIENCE, &d));
	CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ) && d->CS.Length == 500);
	CHECK(memcmp(a.start + DATA, there + 100, 500) == 0 && there[101] == 3);
	d = rdma(VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_QFENCE | VIP_CONTROL_IMMEDIATE, 10, there, target);
	d->CS.ImmediateData = 4711;
	r = describe(&b, 0, 0, 0);
	OK(VipPostRecv(y, r, b.memory));
	OK(VipPostSend(x, d, a.memory));
	OK(VipRecvWait(y, PATIENCE, &d));
	CHECK(d == r && r->CS.ImmediateData == 4711);
	CHECK(r->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE));
	OK(VipSendWait(x, PATIENCE, &d));
	exchange(&a, &b, x, y, 1000);

	/* Memory without the right: the target's handler is told, the connection breaks. */
	OK(VipErrorCallback(b.nic, &error, on_error));
	memcpy(b.start, there, 100);
	OK(VipPostSend(x, rdma(VIP_CONTROL_OP_RDMAWRITE, 500, there, secret), a.memory));
	IS(VipSendWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d->CS.Status & VIP_STATUS_RDMA_PROT_ERROR);
	CHECK(memcmp(b.start, there, 100) == 0);
	do /* It comes on a thread of the library. */
		state = state_of(y);
	while (state != VIP_STATE_ERROR || *(volatile VIP_ERROR_CODE *)&error.ErrorCode != VIP_ERROR_RDMAW_PROT);
	OK(VipErrorCallback(b.nic, NULL, NULL));
	disconnect(x);
	disconnect(y);

	/* A VI without the right: nothing is sent. */
	connect_rdma(VIP_FALSE, VIP_FALSE, &x, &y);
	OK(VipPostSend(x, rdma(VIP_CONTROL_OP_RDMAWRITE, 10, there, target), a.memory));
	IS(VipSendWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d->CS.Status & VIP_STATUS_RDMA_PROT_ERROR);
	disconnect(x);
	disconnect(y);

	OK(VipDeregisterMem(b.nic, there, target));
	OK(VipDeregisterMem(b.nic, there, secret));
	close_side(&a);
	close_side(&b);
	return failures != 0;
}
