/* Counts frames and bytes of each flow, for the host to read. */
#include "flow.h"

TRAPEZE_IMAGE("count", "1.0");

struct counters {
	u64 frames, bytes;
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_HASH);
	TRAPEZE_TYPE(key, struct flow);
	TRAPEZE_TYPE(value, struct counters);
	TRAPEZE_UINT(max_entries, 1024);
} flows TRAPEZE_MAP;

/* What was of no flow, or for which there was no room. */
struct {
	TRAPEZE_UINT(type, TRAPEZE_ARRAY);
	TRAPEZE_TYPE(key, u32);
	TRAPEZE_TYPE(value, struct counters);
	TRAPEZE_UINT(max_entries, 1);
} rest TRAPEZE_MAP;

TRAPEZE_HOOK("filter/rx") u64 count(struct trapeze_frame *f)
{
	u64 bytes = TRAPEZE_END(f) - TRAPEZE_DATA(f);
	struct counters *c = 0;
	struct flow flow;
	u32 zero = 0;

	if (flow_of(f, &flow)) {
		c = trapeze_lookup(&flows, &flow);
		if (!c) {
			struct counters new = {};

			trapeze_update(&flows, &flow, &new, TRAPEZE_ANY);
			c = trapeze_lookup(&flows, &flow);
		}
	}
	if (!c)
		c = trapeze_lookup(&rest, &zero);
	if (c) {
		__sync_fetch_and_add(&c->frames, 1);
		__sync_fetch_and_add(&c->bytes, bytes);
	}
	return TRAPEZE_PASS;
}
