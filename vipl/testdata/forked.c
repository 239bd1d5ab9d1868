/* A child of fork gets VIP_ERROR from every function, and does no harm to its parent's NICs:
 * DEVICE DEVICE. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "pair.h"

static struct side a, b;
static VIP_VI_HANDLE x, y;

static void never_error(VIP_PVOID c, VIP_ERROR_DESCRIPTOR *e)
{
	fprintf(stderr, "a handler was called: %p %p\n", c, (void *)e);
	exit(1);
}

/* Calls everything with what is good in the parent. */
static int in_child(VIP_CQ_HANDLE cq, VIP_CONN_HANDLE conn, const char *device)
{
	VIP_AUTODISCOVERY_LIST list = {0};
	union any_address here = {0}, there = {0};
	VIP_NIC_ATTRIBUTES about;
	VIP_VI_ATTRIBUTES v = {0};
	VIP_MEM_ATTRIBUTES m = {0};
	VIP_BOOLEAN f, g;
	VIP_VI_STATE state;
	VIP_DESCRIPTOR *d;
	VIP_ULONG length = 1;
	VIP_PVOID h;
	VIP_MEM_HANDLE mem;
	char name[1];

	set_address(&here, &a.about, "here");
	set_address(&there, &b.about, "server");
	IS(VipOpenNic(device, &h), VIP_ERROR);
	IS(VipQueryNic(a.nic, &about), VIP_ERROR);
	IS(VipErrorCallback(a.nic, NULL, never_error), VIP_ERROR);
	IS(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, &list), VIP_ERROR);
	IS(VipCreatePtag(a.nic, &h), VIP_ERROR);
	IS(VipDestroyPtag(a.nic, a.ptag), VIP_ERROR);
	IS(VipRegisterMem(a.nic, a.start, 4096, &m, &mem), VIP_ERROR);
	IS(VipQueryMem(a.nic, a.start, a.memory, &m), VIP_ERROR);
	IS(VipSetMemAttributes(a.nic, a.start, a.memory, &m), VIP_ERROR);
	IS(VipCreateVi(a.nic, &v, NULL, NULL, &h), VIP_ERROR);
	IS(VipQueryVi(x, &state, &v, &f, &g), VIP_ERROR);
	IS(VipSetViAttributes(x, &v), VIP_ERROR);
	IS(VipConnectWait(a.nic, &here.net, 1, &there.net, &v, &h), VIP_ERROR);
	IS(VipConnectAccept(conn, x), VIP_ERROR);
	IS(VipConnectReject(conn), VIP_ERROR);
	IS(VipConnectRequest(x, &here.net, &there.net, 1, &v), VIP_ERROR);
	IS(VipConnectPeerRequest(x, &here.net, &there.net, 1), VIP_ERROR);
	IS(VipConnectPeerDone(x, &v), VIP_ERROR);
	IS(VipConnectPeerWait(x, &v), VIP_ERROR);
	IS(VipPostRecv(x, describe(&a, 4, 0, 64), a.memory), VIP_ERROR);
	IS(VipPostSend(x, describe(&a, 5, 0, 64), a.memory), VIP_ERROR);
	IS(VipSendDone(x, &d), VIP_ERROR);
	IS(VipRecvDone(x, &d), VIP_ERROR);
	IS(VipSendWait(x, 1, &d), VIP_ERROR);
	IS(VipRecvWait(x, 1, &d), VIP_ERROR);
	IS(VipSendNotify(x, NULL, never), VIP_ERROR);
	IS(VipRecvNotify(x, NULL, never), VIP_ERROR);
	IS(VipCreateCQ(a.nic, 16, &h), VIP_ERROR);
	IS(VipResizeCQ(cq, 32), VIP_ERROR);
	IS(VipCQDone(cq, &h, &f), VIP_ERROR);
	IS(VipCQWait(cq, 1, &h, &f), VIP_ERROR);
	IS(VipCQNotify(cq, NULL, never_cq), VIP_ERROR);
	IS(VipDestroyCQ(cq), VIP_ERROR);
	IS(VipNSInit(a.nic, NULL), VIP_ERROR);
	IS(VipNSGetHostByName(a.nic, "name", &there.net, 0), VIP_ERROR);
	IS(VipNSGetHostByAddr(a.nic, &there.net, name, &length), VIP_ERROR);
	IS(VipNSShutdown(a.nic), VIP_ERROR);
	IS(VipDisconnect(x), VIP_ERROR);
	IS(VipDestroyVi(x), VIP_ERROR);
	IS(VipDeregisterMem(a.nic, a.start, a.memory), VIP_ERROR);
	IS(VipCloseNic(a.nic), VIP_ERROR);
	return failures != 0;
}

/* A child that fork has made, or the system call itself, which runs no handlers of atfork. */
static void have_child(int raw, VIP_CQ_HANDLE cq, const char *device)
{
	pid_t child = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
	int status;

	if (child == 0)
		_exit(in_child(cq, NULL, device));
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
	VIP_CQ_HANDLE cq;
	int i;

	if (argc != 3)
		return 2;
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	NEED(VipCreateCQ(a.nic, 16, &cq));
	connect_pair(&a, &b, NULL, NULL, &x, &y);
	for (i = 0; i < 2; i++) {
		exchange(&a, &b, x, y, 100);
		have_child(i, cq, argv[1]);
		exchange(&b, &a, y, x, 1000);
	}
	OK(VipDestroyCQ(cq));
	disconnect(x);
	disconnect(y);
	close_side(&a);
	close_side(&b);
	return failures != 0;
}
