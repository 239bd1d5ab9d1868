/* A program at every hook, with everything that an image may have. */
#include "trapeze.h"

TRAPEZE_IMAGE_FOR("everything", "1.2.3", 0x12347250);

struct flow {
	u32 peer;
	u16 port;
	u16 queue;
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_HASH);
	TRAPEZE_TYPE(key, struct flow);
	TRAPEZE_TYPE(value, u64);
	TRAPEZE_UINT(max_entries, 100);
} flows TRAPEZE_MAP;

struct {
	TRAPEZE_UINT(type, TRAPEZE_ARRAY);
	TRAPEZE_UINT(key_size, 4);
	TRAPEZE_UINT(value_size, 24);
	TRAPEZE_UINT(max_entries, 4);
	TRAPEZE_UINT(map_flags, TRAPEZE_READ_ONLY);
} table TRAPEZE_MAP;

u32 counter;
u32 threshold = 1500;
static u32 hidden = 3;
const volatile u32 limit = 9;

TRAPEZE_INLINE u64 pulse(struct trapeze_pulse *p)
{
	u32 ready = p->arrived - p->sent;

	if (p->arrived == p->length || ready >= threshold + limit)
		return ready;
	return 0;
}

TRAPEZE_HOOK("pulse/tx") u64 transmit(struct trapeze_pulse *p)
{
	counter += ++hidden;
	return pulse(p);
}

TRAPEZE_HOOK("pulse/rx") u64 receive(struct trapeze_pulse *p)
{
	return pulse(p);
}

TRAPEZE_HOOK("demux/rx") u64 demultiplex(struct trapeze_frame *f)
{
	u32 index = f->queue & 3;
	u32 *entry = trapeze_lookup(&table, &index);

	if (!entry)
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, entry[1]);
}

TRAPEZE_HOOK("filter/tx") u64 out(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f);
	struct flow flow = {.queue = (u16)f->queue};
	u64 now = trapeze_time();
	u64 *seen;

	if (data + 14 > end)
		return TRAPEZE_DROP;
	flow.peer = *(u32 *)data;
	seen = trapeze_lookup(&flows, &flow);
	if (seen)
		__sync_fetch_and_add(seen, 1);
	else
		trapeze_update(&flows, &flow, &now, TRAPEZE_ABSENT);
	return TRAPEZE_PASS;
}

TRAPEZE_HOOK("filter/rx") u64 in(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f);

	if (data + 14 > end)
		return TRAPEZE_ABORTED;
	return data[12] == 0x88 ? TRAPEZE_TO(1) : TRAPEZE_PASS;
}
