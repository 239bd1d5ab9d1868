/* Objects in their whole lives, and what is refused: DEVICE DEVICE, two on one wire. */
#include "pair.h"

static struct side a, b;

static void constants(void)
{
	VIP_DESCRIPTOR d;

	CHECK(sizeof(d) == 64 && sizeof(d.CS) == 32 && sizeof(d.DS[0]) == 16);
	CHECK((char *)&d.CS.NextHandle - (char *)&d == 8 && (char *)&d.CS.SegCount - (char *)&d == 12);
	CHECK((char *)&d.CS.Control - (char *)&d == 14 && (char *)&d.CS.Reserved - (char *)&d == 16);
	CHECK((char *)&d.CS.ImmediateData - (char *)&d == 20 && (char *)&d.CS.Length - (char *)&d == 24);
	CHECK((char *)&d.CS.Status - (char *)&d == 28 && (char *)&d.DS[0].Local.Handle - (char *)&d == 40);
	CHECK((char *)&d.DS[1].Local.Length - (char *)&d == 60);
	CHECK(VIP_DESCRIPTOR_ERROR == 11 && VIP_NO_MATCH == 14 && VIP_STATE_ERROR == 3 && VIP_ERROR_CATASTROPHIC == 10);
	CHECK((VIP_STATUS_ERROR_MASK & 1) == 0 && VIP_INFINITE == (VIP_ULONG)-1 && VIP_DESCRIPTOR_ALIGNMENT == 64);
}

/* The NIC says what a program needs to know. */
static void attributes(const char *device)
{
	const VIP_NIC_ATTRIBUTES *n = &a.about;

	CHECK(strncmp(n->Name, device, 63) == 0 && n->Name[63] == 0);
	CHECK(n->NicAddressLen == 6 && n->LocalNicAddress != NULL && n->ThreadSafe == VIP_TRUE);
	CHECK(n->MaxDiscriminatorLen >= 16 && n->MaxVI > 1 && n->MaxDescriptorsPerQueue >= 256);
	CHECK(n->MaxSegmentsPerDesc >= 252 && n->MaxTransferSize >= 32768 && n->NativeMTU > 0);
	CHECK(n->MaxCQ > 0 && n->MaxCQEntries >= 1024 && n->MaxPtags > 1 && n->MaxRegisterRegions > 1);
	CHECK(n->MaxRegisterBytes >= SIDE_BYTES && n->MaxRegisterBlockBytes >= SIDE_BYTES);
	CHECK((n->ReliabilityLevelSupport & VIP_SERVICE_UNRELIABLE) && (n->ReliabilityLevelSupport & VIP_SERVICE_RELIABLE_DELIVERY));
	CHECK(memcmp(n->LocalNicAddress, b.about.LocalNicAddress, 6) != 0);
}

/* Handles that are not of the kind that is asked for. */
static void handles(void)
{
	VIP_PVOID bad[6] = {NULL, (VIP_PVOID)1, (VIP_PVOID)~(size_t)0, &bad, b.ptag, a.start};
	VIP_NIC_ATTRIBUTES nic;
	VIP_VI_ATTRIBUTES vi;
	VIP_MEM_ATTRIBUTES mem = {0};
	VIP_DESCRIPTOR *d;
	VIP_PVOID out;
	VIP_MEM_HANDLE m;
	VIP_BOOLEAN flag;
	VIP_VI_STATE state;
	union any_address address;
	size_t i;

	set_address(&address, &a.about, "x");
	for (i = 0; i < 6; i++) {
		VIP_PVOID h = bad[i];

		IS(VipCloseNic(h), VIP_INVALID_PARAMETER);
		IS(VipQueryNic(h, &nic), VIP_INVALID_PARAMETER);
		IS(VipErrorCallback(h, NULL, NULL), VIP_INVALID_PARAMETER);
		IS(VipCreatePtag(h, &out), VIP_INVALID_PARAMETER);
		IS(VipDestroyPtag(h, a.ptag), VIP_INVALID_PARAMETER);
		IS(VipRegisterMem(h, a.start, 64, NULL, &m), VIP_INVALID_PARAMETER);
		IS(VipDeregisterMem(h, a.start, a.memory), VIP_INVALID_PARAMETER);
		IS(VipQueryMem(h, a.start, a.memory, &mem), VIP_INVALID_PARAMETER);
		IS(VipSetMemAttributes(h, a.start, a.memory, &mem), VIP_INVALID_PARAMETER);
		IS(VipCreateVi(h, NULL, NULL, NULL, &out), VIP_INVALID_PARAMETER);
		IS(VipDestroyVi(h), VIP_INVALID_PARAMETER);
		IS(VipQueryVi(h, &state, &vi, &flag, &flag), VIP_INVALID_PARAMETER);
		IS(VipSetViAttributes(h, &vi), VIP_INVALID_PARAMETER);
		IS(VipCreateCQ(h, 16, &out), VIP_INVALID_PARAMETER);
		IS(VipDestroyCQ(h), VIP_INVALID_PARAMETER);
		IS(VipResizeCQ(h, 16), VIP_INVALID_PARAMETER);
		IS(VipCQDone(h, &out, &flag), VIP_INVALID_PARAMETER);
		IS(VipCQWait(h, 0, &out, &flag), VIP_INVALID_PARAMETER);
		IS(VipCQNotify(h, NULL, never_cq), VIP_INVALID_PARAMETER);
		IS(VipConnectWait(h, &address.net, 1, &address.net, &vi, &out), VIP_INVALID_PARAMETER);
		IS(VipConnectAccept(h, h), VIP_INVALID_PARAMETER);
		IS(VipConnectReject(h), VIP_INVALID_PARAMETER);
		IS(VipConnectRequest(h, &address.net, &address.net, 1, &vi), VIP_INVALID_PARAMETER);
		IS(VipConnectPeerRequest(h, &address.net, &address.net, 1), VIP_INVALID_PARAMETER);
		IS(VipConnectPeerDone(h, &vi), VIP_INVALID_PARAMETER);
		IS(VipConnectPeerWait(h, &vi), VIP_INVALID_PARAMETER);
		IS(VipDisconnect(h), VIP_INVALID_PARAMETER);
		IS(VipPostSend(h, (VIP_DESCRIPTOR *)a.start, a.memory), VIP_INVALID_PARAMETER);
		IS(VipPostRecv(h, (VIP_DESCRIPTOR *)a.start, a.memory), VIP_INVALID_PARAMETER);
		d = (VIP_DESCRIPTOR *)&d;
		IS(VipSendDone(h, &d), VIP_INVALID_PARAMETER);
		CHECK(d == NULL);
		IS(VipRecvDone(h, &d), VIP_INVALID_PARAMETER);
		IS(VipSendWait(h, 0, &d), VIP_INVALID_PARAMETER);
		IS(VipRecvWait(h, 0, &d), VIP_INVALID_PARAMETER);
		IS(VipSendNotify(h, NULL, never), VIP_INVALID_PARAMETER);
		IS(VipRecvNotify(h, NULL, never), VIP_INVALID_PARAMETER);
		IS(VipQuerySystemManagementInfo(h, VIP_SMI_AUTODISCOVERY, &out), VIP_INVALID_PARAMETER);
		IS(VipNSInit(h, NULL), VIP_INVALID_PARAMETER);
		IS(VipNSShutdown(h), VIP_INVALID_PARAMETER);
		/* NULL is the default ptag, and no CQ. */
		if (h == NULL)
			continue;
		IS(VipDestroyPtag(a.nic, h), VIP_INVALID_PARAMETER);
		IS(VipCreateVi(a.nic, NULL, h, NULL, &out), VIP_INVALID_PARAMETER);
		IS(VipCreateVi(a.nic, NULL, NULL, h, &out), VIP_INVALID_PARAMETER);
		memset(&vi, 0, sizeof(vi));
		vi.Ptag = h;
		IS(VipCreateVi(a.nic, &vi, NULL, NULL, &out), VIP_INVALID_PTAG);
		mem.Ptag = h;
		IS(VipRegisterMem(a.nic, a.start, 64, &mem, &m), VIP_INVALID_PTAG);
		mem.Ptag = NULL;
	}
	IS(VipOpenNic(NULL, &out), VIP_INVALID_PARAMETER);
	IS(VipOpenNic("emu:?wire=loop", NULL), VIP_INVALID_PARAMETER);
	IS(VipOpenNic("no such NIC", &out), VIP_INVALID_PARAMETER);
	IS(VipOpenNic("", &out), VIP_INVALID_PARAMETER);
	IS(VipQueryNic(a.nic, NULL), VIP_INVALID_PARAMETER);
	IS(VipCreatePtag(a.nic, NULL), VIP_INVALID_PARAMETER);
	IS(VipCreateVi(a.nic, NULL, NULL, NULL, NULL), VIP_INVALID_PARAMETER);
	IS(VipCreateCQ(a.nic, 16, NULL), VIP_INVALID_PARAMETER);
	IS(VipCreateCQ(a.nic, 0, &out), VIP_INVALID_PARAMETER);
	IS(VipCreateCQ(a.nic, a.about.MaxCQEntries + 1, &out), VIP_ERROR_RESOURCE);
	IS(VipCreateCQ(a.nic, ~0UL, &out), VIP_ERROR_RESOURCE);
	IS(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, NULL), VIP_INVALID_PARAMETER);
	IS(VipQuerySystemManagementInfo(a.nic, 77, &nic), VIP_INVALID_PARAMETER);
}

static void memory(void)
{
	VIP_MEM_ATTRIBUTES attributes = {0}, got;
	VIP_PROTECTION_HANDLE tag;
	VIP_MEM_HANDLE m, again;
	char *bytes = malloc(3 * 4096);

	/* As malloc gave it, the same twice, and a part. */
	OK(VipRegisterMem(a.nic, bytes, 3 * 4096, NULL, &m));
	OK(VipRegisterMem(a.nic, bytes, 100, NULL, &again));
	CHECK(m != 0 && again != 0 && m != again);
	OK(VipQueryMem(a.nic, bytes, m, &got));
	CHECK(got.Ptag == NULL && !got.EnableRdmaWrite && !got.EnableRdmaRead);
	IS(VipQueryMem(a.nic, bytes + 1, m, &got), VIP_INVALID_PARAMETER);
	IS(VipQueryMem(a.nic, bytes, m ^ 1, &got), VIP_INVALID_PARAMETER);
	IS(VipQueryMem(b.nic, bytes, m, &got), VIP_INVALID_PARAMETER);
	IS(VipQueryMem(a.nic, bytes, m, NULL), VIP_INVALID_PARAMETER);

	OK(VipCreatePtag(a.nic, &tag));
	CHECK(tag != NULL && tag != a.ptag);
	attributes.Ptag = tag;
	OK(VipSetMemAttributes(a.nic, bytes, m, &attributes));
	OK(VipQueryMem(a.nic, bytes, m, &got));
	CHECK(got.Ptag == tag);
	IS(VipDestroyPtag(a.nic, tag), VIP_ERROR_RESOURCE);
	attributes.Ptag = b.ptag;
	IS(VipSetMemAttributes(a.nic, bytes, m, &attributes), VIP_INVALID_PTAG);
	OK(VipSetMemAttributes(a.nic, bytes, m, NULL));
	OK(VipDestroyPtag(a.nic, tag));
	IS(VipDestroyPtag(a.nic, tag), VIP_INVALID_PARAMETER);

	IS(VipDeregisterMem(a.nic, bytes + 64, m), VIP_INVALID_PARAMETER);
	IS(VipDeregisterMem(a.nic, bytes, 0), VIP_INVALID_PARAMETER);
	OK(VipDeregisterMem(a.nic, bytes, m));
	IS(VipDeregisterMem(a.nic, bytes, m), VIP_INVALID_PARAMETER);
	OK(VipDeregisterMem(a.nic, bytes, again));
	IS(VipRegisterMem(a.nic, NULL, 64, NULL, &m), VIP_INVALID_PARAMETER);
	IS(VipRegisterMem(a.nic, bytes, 0, NULL, &m), VIP_INVALID_PARAMETER);
	IS(VipRegisterMem(a.nic, bytes, ~0UL, NULL, &m), VIP_INVALID_PARAMETER);
	IS(VipRegisterMem(a.nic, bytes, ~0UL >> 1, NULL, &m), VIP_INVALID_PARAMETER);
	IS(VipRegisterMem(a.nic, (VIP_PVOID)64, 64, NULL, &m), VIP_INVALID_PARAMETER);
	IS(VipRegisterMem(a.nic, bytes, 64, NULL, NULL), VIP_INVALID_PARAMETER);
	free(bytes);
}

static void state_is(VIP_VI_HANDLE vi, VIP_VI_STATE want)
{
	VIP_VI_ATTRIBUTES got;
	VIP_BOOLEAN f;
	VIP_VI_STATE s;

	IS(VipQueryVi(vi, NULL, &got, &f, &f), VIP_INVALID_PARAMETER);
	IS(VipQueryVi(vi, &s, NULL, &f, &f), VIP_INVALID_PARAMETER);
	IS(VipQueryVi(vi, &s, &got, NULL, &f), VIP_INVALID_PARAMETER);
	IS(VipQueryVi(vi, &s, &got, &f, NULL), VIP_INVALID_PARAMETER);
	CHECK(state_of(vi) == want);
}

static void states(void)
{
	VIP_VI_ATTRIBUTES attributes = {0}, got;
	VIP_VI_HANDLE vi, x, y;
	VIP_BOOLEAN sends, receives;
	VIP_DESCRIPTOR *d;
	VIP_VI_STATE s;

	/* Defaults. */
	OK(VipCreateVi(a.nic, NULL, NULL, NULL, &vi));
	OK(VipQueryVi(vi, &s, &got, &sends, &receives));
	CHECK(s == VIP_STATE_IDLE && sends && receives);
	CHECK(got.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && got.MaxTransferSize == 32768);
	CHECK(got.Ptag == NULL && got.QoS == NULL && !got.EnableRdmaWrite && !got.EnableRdmaRead);
	attributes.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
	attributes.MaxTransferSize = 1000;
	attributes.Ptag = a.ptag;
	OK(VipSetViAttributes(vi, &attributes));
	OK(VipQueryVi(vi, &s, &got, &sends, &receives));
	CHECK(got.ReliabilityLevel == VIP_SERVICE_UNRELIABLE && got.MaxTransferSize == 1000 && got.Ptag == a.ptag);
	OK(VipDestroyVi(vi));
	IS(VipDestroyVi(vi), VIP_INVALID_PARAMETER);
	IS(VipQueryVi(vi, &s, &got, &sends, &receives), VIP_INVALID_PARAMETER);
	IS(VipRecvDone(vi, &d), VIP_INVALID_PARAMETER);

	attributes.QoS = &attributes;
	IS(VipCreateVi(a.nic, &attributes, NULL, NULL, &vi), VIP_INVALID_QOS);
	attributes.QoS = NULL;
	attributes.ReliabilityLevel = 3;
	IS(VipCreateVi(a.nic, &attributes, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
	attributes.ReliabilityLevel = 0x102;
	IS(VipCreateVi(a.nic, &attributes, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
	attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	attributes.MaxTransferSize = a.about.MaxTransferSize + 1;
	IS(VipCreateVi(a.nic, &attributes, NULL, NULL, &vi), VIP_INVALID_MTU);
	attributes.MaxTransferSize = (1UL << 32) + 5;
	IS(VipCreateVi(a.nic, &attributes, NULL, NULL, &vi), VIP_INVALID_MTU);

	/* Idle: receives are held, sends flushed. */
	x = make_vi(&a, NULL, NULL);
	y = make_vi(&b, NULL, NULL);
	OK(VipPostRecv(x, describe(&a, 2, 0, 10), a.memory));
	OK(VipPostSend(x, describe(&a, 3, 0, 10), a.memory));
	IS(VipSendWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == (VIP_DESCRIPTOR *)a.start + 3 && d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR));
	IS(VipRecvDone(x, &d), VIP_NOT_DONE);
	CHECK(d == NULL);
	IS(VipRecvWait(x, 0, &d), VIP_TIMEOUT);
	IS(VipRecvWait(x, 10, &d), VIP_TIMEOUT);
	IS(VipSendDone(x, &d), VIP_DESCRIPTOR_ERROR); /* nothing is posted */
	CHECK(d == NULL);
	IS(VipSendWait(x, VIP_INFINITE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == NULL);
	s = query_vi(x, &sends, &receives);
	CHECK(sends && !receives);
	IS(VipDestroyVi(x), VIP_ERROR_RESOURCE);
	IS(VipDeregisterMem(a.nic, a.start, a.memory), VIP_ERROR_RESOURCE);
	OK(VipDisconnect(x));
	IS(VipRecvWait(x, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == (VIP_DESCRIPTOR *)a.start + 2 && (d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR));

	/* Connected. */
	connect_vis(&a, &b, x, y);
	state_is(x, VIP_STATE_CONNECTED);
	state_is(y, VIP_STATE_CONNECTED);
	IS(VipDestroyVi(x), VIP_INVALID_STATE);
	IS(VipSetViAttributes(x, NULL), VIP_INVALID_STATE);
	exchange(&a, &b, x, y, 0);
	exchange(&a, &b, x, y, 32768);
	exchange(&b, &a, y, x, 1000);

	/* The other end disconnects: error, and out of it. */
	OK(VipPostRecv(y, describe(&b, 2, 0, 10), b.memory));
	OK(VipDisconnect(x));
	state_is(x, VIP_STATE_IDLE);
	IS(VipRecvWait(y, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	CHECK(d == (VIP_DESCRIPTOR *)b.start + 2 && (d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR));
	state_is(y, VIP_STATE_ERROR);
	OK(VipPostSend(y, describe(&b, 2, 0, 10), b.memory));
	IS(VipSendWait(y, PATIENCE, &d), VIP_DESCRIPTOR_ERROR);
	OK(VipDisconnect(y));
	state_is(y, VIP_STATE_IDLE);
	connect_vis(&b, &a, y, x);
	exchange(&a, &b, x, y, 100);
	disconnect(x);
	disconnect(y);
}

static void connections(void)
{
	VIP_VI_ATTRIBUTES other, attributes = {0};
	union any_address here, there, found = {0};
	struct request q = {.here = &a, .there = &b};
	VIP_VI_HANDLE x = make_vi(&a, NULL, NULL), y = make_vi(&b, NULL, NULL), small;
	VIP_CONN_HANDLE c;
	pthread_t client;

	set_address(&here, &a.about, "client");
	set_address(&there, &b.about, "nobody");
	IS(VipConnectRequest(x, &here.net, &there.net, 0, &other), VIP_INVALID_PARAMETER);
	IS(VipConnectRequest(x, NULL, &there.net, 10, &other), VIP_INVALID_PARAMETER);
	IS(VipConnectRequest(x, &here.net, NULL, 10, &other), VIP_INVALID_PARAMETER);
	IS(VipConnectRequest(x, &here.net, &there.net, PATIENCE, &other), VIP_NO_MATCH);
	IS(VipConnectRequest(x, &there.net, &there.net, 10, &other), VIP_INVALID_PARAMETER); /* not this NIC */
	there.net.HostAddressLen = 5;
	IS(VipConnectRequest(x, &here.net, &there.net, 10, &other), VIP_INVALID_PARAMETER);
	there.net.HostAddressLen = 6;
	there.net.DiscriminatorLen = 60000;
	IS(VipConnectRequest(x, &here.net, &there.net, 10, &other), VIP_INVALID_PARAMETER);
	IS(VipConnectWait(a.nic, &here.net, 10, &found.net, &other, &c), VIP_TIMEOUT);
	IS(VipConnectWait(a.nic, &here.net, 0, &found.net, &other, &c), VIP_TIMEOUT);
	IS(VipConnectWait(a.nic, NULL, 10, &found.net, &other, &c), VIP_INVALID_PARAMETER);
	IS(VipConnectWait(a.nic, &here.net, 10, NULL, &other, &c), VIP_INVALID_PARAMETER);
	IS(VipConnectWait(a.nic, &here.net, 10, &found.net, &other, NULL), VIP_INVALID_PARAMETER);

	/* Rejected. */
	q.vi = x;
	pthread_create(&client, NULL, request_connection, &q);
	memset(found.room, 0x55, sizeof(found.room));
	found.net.HostAddressLen = 4; /* 8 bytes in all */
	found.net.DiscriminatorLen = 0;
	set_address(&here, &b.about, "server");
	NEED(VipConnectWait(b.nic, &here.net, PATIENCE, &found.net, &other, &c));
	CHECK(found.net.HostAddressLen == 4 && found.net.DiscriminatorLen == 0 && found.room[8] == 0x55);
	CHECK(memcmp(found.net.HostAddress, a.about.LocalNicAddress, 4) == 0);
	set_address(&here, &a.about, "client");
	IS(VipDestroyVi(x), VIP_INVALID_STATE);
	OK(VipConnectReject(c));
	IS(VipConnectReject(c), VIP_INVALID_PARAMETER);
	IS(VipConnectAccept(c, y), VIP_INVALID_PARAMETER);
	pthread_join(client, NULL);
	IS(q.result, VIP_REJECT);

	/* A VI that does not fit leaves the request pending. */
	pthread_create(&client, NULL, request_connection, &q);
	c = await_connection(&b);
	attributes.MaxTransferSize = 1000;
	attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	OK(VipCreateVi(b.nic, &attributes, NULL, NULL, &small));
	IS(VipConnectAccept(c, small), VIP_INVALID_MTU);
	attributes.MaxTransferSize = 32768;
	attributes.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
	OK(VipSetViAttributes(small, &attributes));
	IS(VipConnectAccept(c, small), VIP_INVALID_RELIABILITY_LEVEL);
	IS(VipConnectAccept(c, x), VIP_INVALID_PARAMETER); /* of another NIC */
	IS(VipConnectAccept(c, NULL), VIP_INVALID_PARAMETER);
	OK(VipConnectAccept(c, y));
	pthread_join(client, NULL);
	OK(q.result);
	CHECK(q.other.MaxTransferSize == 32768 && q.other.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
	IS(VipConnectAccept(c, small), VIP_INVALID_PARAMETER);
	IS(VipConnectRequest(x, &here.net, &there.net, 10, &other), VIP_INVALID_PARAMETER);
	there.net.DiscriminatorLen = 6;
	IS(VipConnectRequest(x, &here.net, &there.net, 10, &other), VIP_INVALID_STATE);
	exchange(&a, &b, x, y, 77);
	OK(VipDestroyVi(small));
	disconnect(x);
	disconnect(y);

	/* A client that gives up. */
	q.vi = x = make_vi(&a, NULL, NULL);
	y = make_vi(&b, NULL, NULL);
	pthread_create(&client, NULL, request_connection, &q);
	c = await_connection(&b);
	OK(VipCloseNic(a.nic)); /* with everything that is its own */
	pthread_join(client, NULL);
	IS(q.result, VIP_INVALID_PARAMETER);
	IS(VipConnectAccept(c, y), VIP_TIMEOUT);
	IS(VipConnectReject(c), VIP_INVALID_PARAMETER);
	OK(VipDestroyVi(y));
	IS(VipDestroyVi(x), VIP_INVALID_PARAMETER);
	IS(VipDestroyPtag(a.nic, a.ptag), VIP_INVALID_PARAMETER);
	IS(VipDeregisterMem(a.nic, a.start, a.memory), VIP_INVALID_PARAMETER);
	IS(VipCloseNic(a.nic), VIP_INVALID_PARAMETER);
	free(a.start);
}

/* Two handles of one NIC have nothing in common but the NIC. */
static void opened_twice(const char *device)
{
	struct side second;
	VIP_VI_HANDLE x, y, of_first;
	VIP_CQ_HANDLE cq;
	VIP_VI_ATTRIBUTES attributes = {0};
	VIP_VI_HANDLE out;

	open_side(&second, device);
	CHECK(second.nic != a.nic && memcmp(second.about.LocalNicAddress, a.about.LocalNicAddress, 6) == 0);
	of_first = make_vi(&a, NULL, NULL);
	OK(VipCreateCQ(second.nic, 16, &cq));
	IS(VipCreateVi(a.nic, NULL, cq, NULL, &out), VIP_INVALID_PARAMETER);
	attributes.Ptag = second.ptag;
	IS(VipCreateVi(a.nic, &attributes, NULL, NULL, &out), VIP_INVALID_PTAG);
	IS(VipPostRecv(of_first, (VIP_DESCRIPTOR *)second.start, second.memory), VIP_INVALID_PARAMETER);
	IS(VipDeregisterMem(a.nic, second.start, second.memory), VIP_INVALID_PARAMETER);
	x = make_vi(&second, NULL, NULL);
	y = make_vi(&b, NULL, NULL);
	connect_vis(&second, &b, x, y);
	exchange(&second, &b, x, y, 1000);
	/* One is closed with all it has; the other goes on. */
	OK(VipPostRecv(x, describe(&second, 0, 0, 100), second.memory));
	OK(VipCloseNic(second.nic));
	IS(VipDisconnect(x), VIP_INVALID_PARAMETER);
	IS(VipDestroyCQ(cq), VIP_INVALID_PARAMETER);
	free(second.start);
	disconnect(y);
	y = make_vi(&b, NULL, NULL);
	connect_vis(&a, &b, of_first, y);
	exchange(&a, &b, of_first, y, 1000);
	disconnect(of_first);
	disconnect(y);
}

/* VIs that name no ptag use the memory of a program that has one. */
static void no_ptag(void)
{
	VIP_VI_HANDLE x, y;
	VIP_VI_ATTRIBUTES attributes = {0};

	attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
	attributes.MaxTransferSize = 32768;
	OK(VipCreateVi(a.nic, &attributes, NULL, NULL, &x));
	OK(VipCreateVi(b.nic, NULL, NULL, NULL, &y));
	connect_vis(&a, &b, x, y);
	exchange(&a, &b, x, y, 500);
	disconnect(x);
	disconnect(y);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	constants();
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	attributes(argv[1]);
	handles();
	memory();
	states();
	opened_twice(argv[1]);
	no_ptag();
	connections(); /* closes a */
	close_side(&b);
	return failures != 0;
}
