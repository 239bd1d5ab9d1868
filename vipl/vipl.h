/*
 * VIPL, the C interface of the Virtual Interface Architecture 1.0, over Trapeze.
 *
 * Names, values and layouts are VIA's. What this library does where VIA leaves a choice
 * is in README.md beside this file and in via/SEMANTICS.md. The ABI is that of 64-bit
 * Linux (LP64): a VIP_ULONG has 8 bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef _VIPL_H
#define _VIPL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#define VIPL_EXTENSION_ __extension__ /* unions without a name are newer than C89 */
#else
#define VIPL_EXTENSION_
#endif

/* Programs annotate their own declarations with these. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif

/* Base types. */

typedef void *VIP_PVOID;
typedef int VIP_BOOLEAN;
typedef char VIP_CHAR;
typedef unsigned char VIP_UCHAR;
typedef short VIP_SHORT;
typedef unsigned short VIP_USHORT;
typedef long VIP_LONG;
typedef unsigned long VIP_ULONG;
typedef uint8_t VIP_UINT8;
typedef uint16_t VIP_UINT16;
typedef uint32_t VIP_UINT32;
typedef uint64_t VIP_UINT64;

#define VIP_TRUE 1
#define VIP_FALSE 0

/* Timeouts are milliseconds; this one never ends. */
#define VIP_INFINITE (~(VIP_ULONG)0)

/*
 * Handles. They are names that the library looks up, not addresses: one that is NULL,
 * made up, of another kind or of an object that is gone is VIP_INVALID_PARAMETER. All
 * belong to the NIC handle with which they were made.
 */
typedef VIP_PVOID VIP_NIC_HANDLE;
typedef VIP_PVOID VIP_VI_HANDLE;
typedef VIP_PVOID VIP_CQ_HANDLE;
typedef VIP_PVOID VIP_CONN_HANDLE;
typedef VIP_PVOID VIP_PROTECTION_HANDLE; /* NULL: the default of the NIC handle */
typedef VIP_UINT32 VIP_MEM_HANDLE;       /* never 0 */

typedef VIP_PVOID VIP_QOS; /* NULL: there is one quality of service */

/* Return codes. */
typedef enum {
	VIP_SUCCESS = 0,
	VIP_NOT_DONE = 1,
	VIP_INVALID_PARAMETER = 2,
	VIP_ERROR_RESOURCE = 3,
	VIP_TIMEOUT = 4,
	VIP_REJECT = 5,
	VIP_INVALID_RELIABILITY_LEVEL = 6,
	VIP_INVALID_MTU = 7,
	VIP_INVALID_QOS = 8,
	VIP_INVALID_PTAG = 9,
	VIP_INVALID_RDMAREAD = 10,
	VIP_DESCRIPTOR_ERROR = 11,
	VIP_INVALID_STATE = 12,
	VIP_ERROR_NAMESERVICE = 13,
	VIP_NO_MATCH = 14,
	VIP_NOT_REACHABLE = 15,
	VIP_ERROR_NOT_SUPPORTED = 16,
	VIP_ERROR = 17 /* in a child of the process that has loaded the library */
} VIP_RETURN;

/* Descriptors lie on a boundary of so many bytes, in registered memory. */
#define VIP_DESCRIPTOR_ALIGNMENT 64

struct _VIP_DESCRIPTOR;

/* An address in 8 bytes, whatever a pointer has. */
typedef union {
	VIP_UINT64 AddressBits;
	VIP_PVOID Address;
	struct _VIP_DESCRIPTOR *Descriptor;
} VIP_PVOID64;

/* The first 32 bytes of a descriptor. */
typedef struct {
	VIP_PVOID64 Next;          /* the library's from the post to the completion, else yours */
	VIP_MEM_HANDLE NextHandle; /* as Next */
	VIP_UINT16 SegCount;       /* segments that follow, an address segment included */
	VIP_UINT16 Control;        /* VIP_CONTROL_... */
	VIP_UINT32 Reserved;       /* 0 */
	VIP_UINT32 ImmediateData;
	VIP_UINT32 Length; /* bytes: of the data segments at the post, moved at completion */
	volatile VIP_UINT32 Status; /* VIP_STATUS_...; 0 at the post */
} VIP_CONTROL_SEGMENT;

/* Remote memory; the first segment of RDMA descriptors and of no others. */
typedef struct {
	VIP_PVOID64 Data;
	VIP_MEM_HANDLE Handle;
	VIP_UINT32 Reserved; /* 0 */
} VIP_ADDRESS_SEGMENT;

/* A piece of local memory. */
typedef struct {
	VIP_PVOID64 Data;
	VIP_MEM_HANDLE Handle;
	VIP_UINT32 Length; /* bytes */
} VIP_DATA_SEGMENT;

typedef union {
	VIP_ADDRESS_SEGMENT Remote;
	VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

/*
 * A descriptor with two segments. Up to MaxSegmentsPerDesc may follow DS[0]. Headers of
 * other vendors call the parts Control and Data unless VIPL095 is defined; without it, both
 * names are known here.
 */
#ifdef VIPL095
typedef struct _VIP_DESCRIPTOR {
	VIP_CONTROL_SEGMENT CS;
	VIP_DESCRIPTOR_SEGMENT DS[2];
} VIP_DESCRIPTOR;
#else
VIPL_EXTENSION_ typedef struct _VIP_DESCRIPTOR {
	union {
		VIP_CONTROL_SEGMENT CS;
		VIP_CONTROL_SEGMENT Control;
	};
	union {
		VIP_DESCRIPTOR_SEGMENT DS[2];
		VIP_DATA_SEGMENT Data[2];
	};
} VIP_DESCRIPTOR;
#endif

/* Control. */
#define VIP_CONTROL_OP_SENDRECV 0x0000
#define VIP_CONTROL_OP_RDMAWRITE 0x0001
#define VIP_CONTROL_OP_RDMAREAD 0x0002
#define VIP_CONTROL_OP_RESERVED 0x0003
#define VIP_CONTROL_OP_MASK 0x0003
#define VIP_CONTROL_IMMEDIATE 0x0004
#define VIP_CONTROL_QFENCE 0x0008
#define VIP_CONTROL_RESERVED 0xFFF0

/* Status. */
#define VIP_STATUS_DONE 0x00000001
#define VIP_STATUS_FORMAT_ERROR 0x00000002
#define VIP_STATUS_PROTECTION_ERROR 0x00000004
#define VIP_STATUS_LENGTH_ERROR 0x00000008
#define VIP_STATUS_PARTIAL_ERROR 0x00000010
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x00000020
#define VIP_STATUS_TRANSPORT_ERROR 0x00000040
#define VIP_STATUS_RDMA_PROT_ERROR 0x00000080
#define VIP_STATUS_REMOTE_DESC_ERROR 0x00000100
#define VIP_STATUS_ERROR_MASK 0x000001FE
#define VIP_STATUS_OP_SEND 0x00000000
#define VIP_STATUS_OP_RECEIVE 0x00010000
#define VIP_STATUS_OP_RDMA_WRITE 0x00020000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x00030000
#define VIP_STATUS_OP_RDMA_READ 0x00040000
#define VIP_STATUS_OP_MASK 0x00070000
#define VIP_STATUS_IMMEDIATE 0x00080000
#define VIP_STATUS_RESERVED 0xFFF0FE00

/* Reliability levels; attributes of NICs are masks of them. */
typedef VIP_USHORT VIP_RELIABILITY_LEVEL;

#define VIP_SERVICE_UNRELIABLE 0x01
#define VIP_SERVICE_RELIABLE_DELIVERY 0x02
#define VIP_SERVICE_RELIABLE_RECEPTION 0x04

/*
 * A network address: HostAddressLen bytes that name a NIC, as VipQueryNic tells them,
 * and DiscriminatorLen bytes that name a connection point there, back to back. Where
 * the library returns one, the lengths say before the call how much room there is, and
 * what is longer is cut. A HostAddressLen of 0 is that of the NIC; if both are 0 there
 * must be room for an address of the NIC with MaxDiscriminatorLen.
 */
typedef struct _VIP_NET_ADDRESS {
	VIP_UINT16 HostAddressLen;
	VIP_UINT16 DiscriminatorLen;
	VIP_UINT8 HostAddress[1];
} VIP_NET_ADDRESS;

typedef struct _VIP_NIC_ATTRIBUTES {
	VIP_CHAR Name[64];
	VIP_ULONG HardwareVersion;
	VIP_ULONG ProviderVersion;
	VIP_UINT16 NicAddressLen;
	const VIP_UINT8 *LocalNicAddress; /* until VipCloseNic */
	VIP_BOOLEAN ThreadSafe;
	VIP_UINT16 MaxDiscriminatorLen;
	VIP_ULONG MaxRegisterBytes;
	VIP_ULONG MaxRegisterRegions;
	VIP_ULONG MaxRegisterBlockBytes;
	VIP_ULONG MaxVI;
	VIP_ULONG MaxDescriptorsPerQueue;
	VIP_ULONG MaxSegmentsPerDesc;
	VIP_ULONG MaxCQ;
	VIP_ULONG MaxCQEntries;
	VIP_ULONG MaxTransferSize;
	VIP_ULONG NativeMTU;
	VIP_ULONG MaxPtags;
	VIP_RELIABILITY_LEVEL ReliabilityLevelSupport;
	VIP_RELIABILITY_LEVEL RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

/* Zeroes, like a NULL pointer in place of the attributes, are defaults. */
typedef struct _VIP_VI_ATTRIBUTES {
	VIP_RELIABILITY_LEVEL ReliabilityLevel;
	VIP_ULONG MaxTransferSize;
	VIP_QOS QoS;
	VIP_PROTECTION_HANDLE Ptag;
	VIP_BOOLEAN EnableRdmaWrite;
	VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

typedef struct _VIP_MEM_ATTRIBUTES {
	VIP_PROTECTION_HANDLE Ptag;
	VIP_BOOLEAN EnableRdmaWrite;
	VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

typedef enum {
	VIP_STATE_IDLE = 0,
	VIP_STATE_CONNECTED = 1,
	VIP_STATE_CONNECT_PENDING = 2,
	VIP_STATE_ERROR = 3
} VIP_VI_STATE;

/* Asynchronous errors. */
typedef enum _VIP_ERROR_CODE {
	VIP_ERROR_POST_DESC = 0,
	VIP_ERROR_CONN_LOST = 1,
	VIP_ERROR_RECVQ_EMPTY = 2,
	VIP_ERROR_VI_OVERRUN = 3,
	VIP_ERROR_RDMAW_PROT = 4,
	VIP_ERROR_RDMAW_DATA = 5,
	VIP_ERROR_RDMAW_ABORT = 6,
	VIP_ERROR_RDMAR_PROT = 7,
	VIP_ERROR_COMP_PROT = 8,
	VIP_ERROR_RDMA_TRANSPORT = 9,
	VIP_ERROR_CATASTROPHIC = 10
} VIP_ERROR_CODE;

#define VIP_PEER_LOST ((VIP_ULONG)36)

typedef enum _VIP_RESOURCE_CODE {
	VIP_RESOURCE_NIC = 0,
	VIP_RESOURCE_VI = 1,
	VIP_RESOURCE_CQ = 2,
	VIP_RESOURCE_DESCRIPTOR = 3
} VIP_RESOURCE_CODE;

typedef struct _VIP_ERROR_DESCRIPTOR {
	VIP_NIC_HANDLE NicHandle;
	VIP_VI_HANDLE ViHandle;
	VIP_CQ_HANDLE CQHandle;
	VIP_DESCRIPTOR *DescriptorPtr;
	VIP_ULONG OpCode; /* the operation, as in VIP_STATUS_OP_MASK; with VIP_ERROR_CONN_LOST 0 if the peer has disconnected in order,
			     VIP_PEER_LOST if it no longer answers, else what broke the connection (SPEC.md 8.7) */
	VIP_RESOURCE_CODE ResourceCode;
	VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/*
 * Management information. The caller says in NumAdAddrs how many pointers to room for an
 * address ADAddrArray has, or gives NULL; the library says how many addresses there are.
 */
#define VIP_SMI_AUTODISCOVERY ((VIP_ULONG)1)

typedef struct {
	VIP_ULONG NumberOfHops;
	VIP_NET_ADDRESS **ADAddrArray;
	VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/* Handlers run on a thread of the library, and may call any function. */
typedef void (*VIP_ERROR_HANDLER)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR *ErrorDesc);
typedef void (*VIP_VI_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
				VIP_DESCRIPTOR *DescriptorPtr);
typedef void (*VIP_CQ_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
				VIP_BOOLEAN RecvQueue);

/* NICs. */
VIP_RETURN VipOpenNic(const VIP_CHAR *DeviceName, VIP_NIC_HANDLE *NicHandle);
VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle);
VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES *NicAttribs);
VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context, VIP_ERROR_HANDLER Handler);
VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType, VIP_PVOID SysManInfo);

/* Protection tags and memory. */
VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *Ptag);
VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE Ptag);
VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
			  VIP_MEM_ATTRIBUTES *MemAttribs, VIP_MEM_HANDLE *MemoryHandle);
VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID Address, VIP_MEM_HANDLE MemHandle,
		       VIP_MEM_ATTRIBUTES *MemAttribs);
VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID Address, VIP_MEM_HANDLE MemHandle,
			       VIP_MEM_ATTRIBUTES *MemAttribs);

/* VIs. */
VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttribs, VIP_CQ_HANDLE SendCQHandle,
		       VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE *ViHandle);

/*
 * VIPL has no call that says how deep the queues of a VI are to be, which this library has:
 * VipCreateViSized. A depth is 1 to MaxDescriptorsPerQueue descriptors, and that for 0, as with
 * VipCreateVi; for more it returns VIP_ERROR_RESOURCE. A queue may hold up to the next power of two.
 */
VIP_RETURN VipCreateViSized(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttribs, VIP_CQ_HANDLE SendCQHandle,
			    VIP_CQ_HANDLE RecvCQHandle, VIP_ULONG SendDepth, VIP_ULONG RecvDepth, VIP_VI_HANDLE *ViHandle);
VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle);
VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE *State, VIP_VI_ATTRIBUTES *ViAttribs,
		      VIP_BOOLEAN *ViSendQEmpty, VIP_BOOLEAN *ViRecvQEmpty);
VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *ViAttribs);

/* Connections. */
VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *LocalAddr, VIP_ULONG Timeout,
			  VIP_NET_ADDRESS *RemoteAddr, VIP_VI_ATTRIBUTES *RemoteViAttribs,
			  VIP_CONN_HANDLE *ConnHandle);
VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle);
VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle);
VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr, VIP_NET_ADDRESS *RemoteAddr,
			     VIP_ULONG Timeout, VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr,
				 VIP_NET_ADDRESS *RemoteAddr, VIP_ULONG Timeout);
VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle);

/* Work queues. */
VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, VIP_VI_CALLBACK Handler);
VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr, VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, VIP_VI_CALLBACK Handler);

/* Completion queues. */
VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE *CQHandle);
VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle);
VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount);
VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue);
VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG Timeout, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue);

/*
 * VIPL has no call for several completions, which this library has: VipCQPoll takes up to Count
 * from the CQ and from the work queues of its VIs, as VipCQDone with VipSendDone or VipRecvDone
 * does. ReturnCode is that of the work queue. *Taken is how many there are; VIP_NOT_DONE is for none.
 */
typedef struct {
	VIP_VI_HANDLE ViHandle;
	VIP_DESCRIPTOR *DescriptorPtr;
	VIP_BOOLEAN RecvQueue;
	VIP_RETURN ReturnCode;
} VIP_CQ_COMPLETION;

VIP_RETURN VipCQPoll(VIP_CQ_HANDLE CQHandle, VIP_CQ_COMPLETION *Completions, VIP_ULONG Count, VIP_ULONG *Taken);

VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context, VIP_CQ_CALLBACK Handler);

/*
 * Names of hosts. NSInitInfo is NULL, or the path of a file of names. *NameLen is how many
 * bytes Name has, a final zero byte included, and then how long the name is.
 */
VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, VIP_PVOID NSInitInfo);
VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, VIP_CHAR *Name, VIP_NET_ADDRESS *Address,
			      VIP_ULONG NameIndex);
VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *Address, VIP_CHAR *Name,
			      VIP_ULONG *NameLen);
VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle);

/* The ABI of this library: else an array of -1 elements stops the compiler. */
typedef char vipl_abi_[sizeof(VIP_ULONG) == 8 && sizeof(VIP_PVOID) == 8 && sizeof(VIP_PVOID64) == 8 &&
		       sizeof(VIP_CONTROL_SEGMENT) == 32 && offsetof(VIP_CONTROL_SEGMENT, SegCount) == 12 &&
		       offsetof(VIP_CONTROL_SEGMENT, Status) == 28 && sizeof(VIP_ADDRESS_SEGMENT) == 16 &&
		       sizeof(VIP_DATA_SEGMENT) == 16 && sizeof(VIP_DESCRIPTOR_SEGMENT) == 16 &&
		       sizeof(VIP_DESCRIPTOR) == 64 ? 1 : -1];

#ifdef __cplusplus
}
#endif

#endif /* _VIPL_H */
