/*
 * The functions of vipl.h. Handles and addresses go to Go as numbers, for it must not take
 * them for pointers of its own: a program may pass anything.
 */
#include "vipl.h"

#include <signal.h>
#include <sys/mman.h>

#include "_cgo_export.h"
#include "callbacks.h"

#define NUMBER(pointer) ((uintptr_t)(pointer))
#define HANDLE(number) ((VIP_PVOID)(number))

/*
 * A child that fork has made has the rings of its parent's NICs, which it must not touch,
 * and none of the threads of Go's runtime. Linux (4.14 or newer) clears this page there,
 * whatever has made the child.
 */
static const int unknown = 1;
static const int *ours = &unknown; /* 0 in a child */

static void __attribute__((constructor)) remember_process(void)
{
	int *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || madvise(p, sizeof(*p), MADV_WIPEONFORK) != 0)
		return;
	*p = 1;
	ours = p;
}

#define REFUSE_CHILD()                                                                         \
	do {                                                                                   \
		if (*(const volatile int *)ours == 0)                                          \
			return VIP_ERROR;                                                      \
	} while (0)

/*
 * Has the program's handlers of signals run on the stack for signals. Go runs on small
 * stacks of its own, which a handler would write past. Go's runtime does this too, but only
 * when the library is loaded, which is before the program begins.
 */
static void move_handlers(void)
{
	struct sigaction a;
	int i;

	for (i = 1; i < NSIG; i++) {
		if (sigaction(i, NULL, &a) != 0 || (a.sa_flags & SA_ONSTACK) != 0)
			continue;
		if ((a.sa_flags & SA_SIGINFO) == 0 && (a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN))
			continue;
		a.sa_flags |= SA_ONSTACK;
		sigaction(i, &a, NULL);
	}
}

VIP_RETURN VipOpenNic(const VIP_CHAR *DeviceName, VIP_NIC_HANDLE *NicHandle)
{
	REFUSE_CHILD();
	if (DeviceName == NULL || NicHandle == NULL)
		return VIP_INVALID_PARAMETER;
	move_handlers();
	struct trapezeOpenNic_return r = trapezeOpenNic((VIP_CHAR *)DeviceName);
	if (r.r0 == VIP_SUCCESS)
		*NicHandle = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle)
{
	REFUSE_CHILD();
	return trapezeCloseNic(NUMBER(NicHandle));
}

VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES *NicAttribs)
{
	REFUSE_CHILD();
	if (NicAttribs == NULL)
		return VIP_INVALID_PARAMETER;
	return trapezeQueryNic(NUMBER(NicHandle), NicAttribs);
}

VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context, VIP_ERROR_HANDLER Handler)
{
	REFUSE_CHILD();
	return trapezeErrorCallback(NUMBER(NicHandle), NUMBER(Context), NUMBER(Handler));
}

VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *Ptag)
{
	REFUSE_CHILD();
	if (Ptag == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeCreatePtag_return r = trapezeCreatePtag(NUMBER(NicHandle));
	if (r.r0 == VIP_SUCCESS)
		*Ptag = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE Ptag)
{
	REFUSE_CHILD();
	return trapezeDestroyPtag(NUMBER(NicHandle), NUMBER(Ptag));
}

VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
			  VIP_MEM_ATTRIBUTES *MemAttribs, VIP_MEM_HANDLE *MemoryHandle)
{
	REFUSE_CHILD();
	VIP_MEM_ATTRIBUTES none = {NULL, VIP_FALSE, VIP_FALSE}, *a = MemAttribs != NULL ? MemAttribs : &none;

	if (MemoryHandle == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeRegisterMem_return r = trapezeRegisterMem(NUMBER(NicHandle), NUMBER(VirtualAddress), Length,
								NUMBER(a->Ptag), a->EnableRdmaWrite, a->EnableRdmaRead);
	if (r.r0 == VIP_SUCCESS)
		*MemoryHandle = r.r1;
	return r.r0;
}

VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle)
{
	REFUSE_CHILD();
	return trapezeDeregisterMem(NUMBER(NicHandle), NUMBER(VirtualAddress), MemoryHandle);
}

VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID Address, VIP_MEM_HANDLE MemHandle,
		       VIP_MEM_ATTRIBUTES *MemAttribs)
{
	REFUSE_CHILD();
	if (MemAttribs == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeQueryMem_return r = trapezeQueryMem(NUMBER(NicHandle), NUMBER(Address), MemHandle);
	if (r.r0 == VIP_SUCCESS) {
		MemAttribs->Ptag = HANDLE(r.r1);
		MemAttribs->EnableRdmaWrite = r.r2;
		MemAttribs->EnableRdmaRead = r.r3;
	}
	return r.r0;
}

VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID Address, VIP_MEM_HANDLE MemHandle,
			       VIP_MEM_ATTRIBUTES *MemAttribs)
{
	REFUSE_CHILD();
	VIP_MEM_ATTRIBUTES none = {NULL, VIP_FALSE, VIP_FALSE}, *a = MemAttribs != NULL ? MemAttribs : &none;

	return trapezeSetMemAttributes(NUMBER(NicHandle), NUMBER(Address), MemHandle, NUMBER(a->Ptag),
				       a->EnableRdmaWrite, a->EnableRdmaRead);
}

/* The handle of the ptag in attributes, which Go must not read as a pointer. */
static uintptr_t ptag_of(const VIP_VI_ATTRIBUTES *a)
{
	return a != NULL ? NUMBER(a->Ptag) : 0;
}

/* Attributes without pointers but for whether there is a QoS; NULL stays NULL. */
static VIP_VI_ATTRIBUTES *plain(const VIP_VI_ATTRIBUTES *from, VIP_VI_ATTRIBUTES *to)
{
	static char some;

	if (from == NULL)
		return NULL;
	*to = *from;
	to->Ptag = NULL;
	if (to->QoS != NULL)
		to->QoS = &some;
	return to;
}

VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttribs, VIP_CQ_HANDLE SendCQHandle,
		       VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE *ViHandle)
{
	return VipCreateViSized(NicHandle, ViAttribs, SendCQHandle, RecvCQHandle, 0, 0, ViHandle);
}

VIP_RETURN VipCreateViSized(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttribs, VIP_CQ_HANDLE SendCQHandle,
			    VIP_CQ_HANDLE RecvCQHandle, VIP_ULONG SendDepth, VIP_ULONG RecvDepth, VIP_VI_HANDLE *ViHandle)
{
	REFUSE_CHILD();
	VIP_VI_ATTRIBUTES copy;

	if (ViHandle == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeCreateVi_return r = trapezeCreateVi(NUMBER(NicHandle), plain(ViAttribs, &copy), ptag_of(ViAttribs),
							  NUMBER(SendCQHandle), NUMBER(RecvCQHandle), SendDepth, RecvDepth);
	if (r.r0 == VIP_SUCCESS)
		*ViHandle = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle)
{
	REFUSE_CHILD();
	return trapezeDestroyVi(NUMBER(ViHandle));
}

VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE *State, VIP_VI_ATTRIBUTES *ViAttribs,
		      VIP_BOOLEAN *ViSendQEmpty, VIP_BOOLEAN *ViRecvQEmpty)
{
	REFUSE_CHILD();
	if (State == NULL || ViAttribs == NULL || ViSendQEmpty == NULL || ViRecvQEmpty == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeQueryVi_return r = trapezeQueryVi(NUMBER(ViHandle), State, ViAttribs);

	if (r.r0 != VIP_SUCCESS)
		return r.r0;
	ViAttribs->Ptag = HANDLE(r.r1);
	*ViSendQEmpty = r.r2;
	*ViRecvQEmpty = r.r3;
	return VIP_SUCCESS;
}

VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *ViAttribs)
{
	REFUSE_CHILD();
	VIP_VI_ATTRIBUTES copy;

	return trapezeSetViAttributes(NUMBER(ViHandle), plain(ViAttribs, &copy), ptag_of(ViAttribs));
}

VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *LocalAddr, VIP_ULONG Timeout,
			  VIP_NET_ADDRESS *RemoteAddr, VIP_VI_ATTRIBUTES *RemoteViAttribs,
			  VIP_CONN_HANDLE *ConnHandle)
{
	REFUSE_CHILD();
	if (LocalAddr == NULL || RemoteAddr == NULL || ConnHandle == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeConnectWait_return r =
		trapezeConnectWait(NUMBER(NicHandle), LocalAddr, Timeout, RemoteAddr, RemoteViAttribs);
	if (r.r0 == VIP_SUCCESS)
		*ConnHandle = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle)
{
	REFUSE_CHILD();
	return trapezeConnectAccept(NUMBER(ConnHandle), NUMBER(ViHandle));
}

VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle)
{
	REFUSE_CHILD();
	return trapezeConnectReject(NUMBER(ConnHandle));
}

VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr, VIP_NET_ADDRESS *RemoteAddr,
			     VIP_ULONG Timeout, VIP_VI_ATTRIBUTES *RemoteViAttribs)
{
	REFUSE_CHILD();
	return trapezeConnectRequest(NUMBER(ViHandle), LocalAddr, RemoteAddr, Timeout, RemoteViAttribs);
}

VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr,
				 VIP_NET_ADDRESS *RemoteAddr, VIP_ULONG Timeout)
{
	REFUSE_CHILD();
	return trapezeConnectPeerRequest(NUMBER(ViHandle), LocalAddr, RemoteAddr, Timeout);
}

VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs)
{
	REFUSE_CHILD();
	return trapezeConnectPeerDone(NUMBER(ViHandle), RemoteViAttribs);
}

VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs)
{
	REFUSE_CHILD();
	return trapezeConnectPeerWait(NUMBER(ViHandle), RemoteViAttribs);
}

VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle)
{
	REFUSE_CHILD();
	return trapezeDisconnect(NUMBER(ViHandle));
}

VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle)
{
	REFUSE_CHILD();
	return trapezePost(NUMBER(ViHandle), 0, NUMBER(DescriptorPtr), MemoryHandle);
}

VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle)
{
	REFUSE_CHILD();
	return trapezePost(NUMBER(ViHandle), 1, NUMBER(DescriptorPtr), MemoryHandle);
}

VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr)
{
	REFUSE_CHILD();
	if (DescriptorPtr == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeDone_return r = trapezeDone(NUMBER(ViHandle), 0);
	*DescriptorPtr = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr)
{
	REFUSE_CHILD();
	if (DescriptorPtr == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeDone_return r = trapezeDone(NUMBER(ViHandle), 1);
	*DescriptorPtr = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr)
{
	REFUSE_CHILD();
	if (DescriptorPtr == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeWait_return r = trapezeWait(NUMBER(ViHandle), 0, Timeout);
	*DescriptorPtr = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr)
{
	REFUSE_CHILD();
	if (DescriptorPtr == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeWait_return r = trapezeWait(NUMBER(ViHandle), 1, Timeout);
	*DescriptorPtr = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, VIP_VI_CALLBACK Handler)
{
	REFUSE_CHILD();
	return trapezeNotify(NUMBER(ViHandle), 0, NUMBER(Context), NUMBER(Handler));
}

VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, VIP_VI_CALLBACK Handler)
{
	REFUSE_CHILD();
	return trapezeNotify(NUMBER(ViHandle), 1, NUMBER(Context), NUMBER(Handler));
}

VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE *CQHandle)
{
	REFUSE_CHILD();
	if (CQHandle == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeCreateCQ_return r = trapezeCreateCQ(NUMBER(NicHandle), EntryCount);
	if (r.r0 == VIP_SUCCESS)
		*CQHandle = HANDLE(r.r1);
	return r.r0;
}

VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle)
{
	REFUSE_CHILD();
	return trapezeDestroyCQ(NUMBER(CQHandle));
}

VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount)
{
	REFUSE_CHILD();
	return trapezeResizeCQ(NUMBER(CQHandle), EntryCount);
}

VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue)
{
	REFUSE_CHILD();
	if (ViHandle == NULL || RecvQueue == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeCQDone_return r = trapezeCQDone(NUMBER(CQHandle));
	if (r.r0 == VIP_SUCCESS) {
		*ViHandle = HANDLE(r.r1);
		*RecvQueue = r.r2;
	}
	return r.r0;
}

VIP_RETURN VipCQPoll(VIP_CQ_HANDLE CQHandle, VIP_CQ_COMPLETION *Completions, VIP_ULONG Count, VIP_ULONG *Taken)
{
	REFUSE_CHILD();
	if (Completions == NULL || Count == 0 || Taken == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeCQPoll_return r = trapezeCQPoll(NUMBER(CQHandle), NUMBER(Completions), Count);
	*Taken = r.r1;
	return r.r0;
}

VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG Timeout, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue)
{
	REFUSE_CHILD();
	if (ViHandle == NULL || RecvQueue == NULL)
		return VIP_INVALID_PARAMETER;
	struct trapezeCQWait_return r = trapezeCQWait(NUMBER(CQHandle), Timeout);
	if (r.r0 == VIP_SUCCESS) {
		*ViHandle = HANDLE(r.r1);
		*RecvQueue = r.r2;
	}
	return r.r0;
}

VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context, VIP_CQ_CALLBACK Handler)
{
	REFUSE_CHILD();
	return trapezeCQNotify(NUMBER(CQHandle), NUMBER(Context), NUMBER(Handler));
}

VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType, VIP_PVOID SysManInfo)
{
	REFUSE_CHILD();
	VIP_AUTODISCOVERY_LIST *list = SysManInfo;
	VIP_ULONG i;
	int r;

	if (list == NULL || InfoType != VIP_SMI_AUTODISCOVERY)
		return VIP_INVALID_PARAMETER;
	struct trapezeDiscover_return d = trapezeDiscover(NUMBER(NicHandle));
	if (d.r0 != VIP_SUCCESS)
		return d.r0;
	if (list->ADAddrArray != NULL) {
		for (i = 0; i < d.r2 && i < list->NumAdAddrs; i++) {
			r = trapezeDiscovered(NUMBER(NicHandle), i, list->ADAddrArray[i]);
			if (r != VIP_SUCCESS)
				return r;
		}
	}
	list->NumberOfHops = d.r1;
	list->NumAdAddrs = d.r2;
	return VIP_SUCCESS;
}

VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, VIP_PVOID NSInitInfo)
{
	REFUSE_CHILD();
	return trapezeNSInit(NUMBER(NicHandle), NSInitInfo);
}

VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, VIP_CHAR *Name, VIP_NET_ADDRESS *Address, VIP_ULONG NameIndex)
{
	REFUSE_CHILD();
	if (Name == NULL || Address == NULL)
		return VIP_INVALID_PARAMETER;
	return trapezeNSGetHostByName(NUMBER(NicHandle), Name, Address, NameIndex);
}

VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *Address, VIP_CHAR *Name, VIP_ULONG *NameLen)
{
	REFUSE_CHILD();
	if (Address == NULL || Name == NULL || NameLen == NULL)
		return VIP_INVALID_PARAMETER;
	return trapezeNSGetHostByAddr(NUMBER(NicHandle), Address, Name, NameLen);
}

VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle)
{
	REFUSE_CHILD();
	return trapezeNSShutdown(NUMBER(NicHandle));
}

void trapeze_error(uintptr_t handler, uintptr_t context, uintptr_t nic, uintptr_t vi, uintptr_t cq,
		   uintptr_t descriptor, unsigned long operation, int resource, int code)
{
	VIP_ERROR_DESCRIPTOR e = {
		.NicHandle = HANDLE(nic),
		.ViHandle = HANDLE(vi),
		.CQHandle = HANDLE(cq),
		.DescriptorPtr = HANDLE(descriptor),
		.OpCode = operation,
		.ResourceCode = (VIP_RESOURCE_CODE)resource,
		.ErrorCode = (VIP_ERROR_CODE)code,
	};

	((VIP_ERROR_HANDLER)handler)(HANDLE(context), &e);
}

void trapeze_completed(uintptr_t handler, uintptr_t context, uintptr_t nic, uintptr_t vi, uintptr_t descriptor)
{
	((VIP_VI_CALLBACK)handler)(HANDLE(context), HANDLE(nic), HANDLE(vi), HANDLE(descriptor));
}

void trapeze_cq_completed(uintptr_t handler, uintptr_t context, uintptr_t nic, uintptr_t vi, int receive)
{
	((VIP_CQ_CALLBACK)handler)(HANDLE(context), HANDLE(nic), HANDLE(vi), receive);
}
