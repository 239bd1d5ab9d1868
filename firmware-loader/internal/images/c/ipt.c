/* Incoming payload table: the payload of a message with immediate data goes to the
 * entry that the host has given that number. */
#include "trapeze.h"

TRAPEZE_IMAGE("ipt", "1.0");

struct entry {
	u32 valid;
	u32 number;
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_ARRAY);
	TRAPEZE_TYPE(key, u32);
	TRAPEZE_TYPE(value, struct entry);
	TRAPEZE_UINT(max_entries, 256);
} entries TRAPEZE_MAP;

/* The wire header of descriptors/SPEC.md 8.1, as far as it is looked at. */
struct header {
	u8 addresses[12];
	u16 ethertype;
	u8 version, type;
	u16 flags, length;
	u32 destination, source, key, psn, ack, credit, message, extent, offset;
	u32 immediate;
	u32 checksum;
} __attribute__((packed, aligned(4)));

#define OURS 0xb588 /* 88 b5 */
#define VERSION 1
#define DATA 1
#define HAS_IMMEDIATE 0x4

TRAPEZE_HOOK("demux/rx") u64 demultiplex(struct trapeze_frame *f)
{
	struct header *h = TRAPEZE_DATA(f);
	struct entry *e;
	u32 tag;

	if ((void *)(h + 1) > TRAPEZE_END(f))
		goto other;
	if (h->ethertype != OURS || h->version != VERSION || h->type != DATA || !(h->flags & HAS_IMMEDIATE))
		goto other;
	tag = h->immediate;
	e = trapeze_lookup(&entries, &tag);
	if (e && e->valid == 1)
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, e->number);
other:
	return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
}
