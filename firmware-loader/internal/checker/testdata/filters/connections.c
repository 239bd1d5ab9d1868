/* A state for each connection: a value that is changed, made and deleted. */
#include "trapeze.h"

TRAPEZE_IMAGE("connections", "1.0");

struct key {
	u32 source, destination, ports;
};

struct connection {
	u64 packets, state;
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_HASH);
	TRAPEZE_TYPE(key, struct key);
	TRAPEZE_TYPE(value, struct connection);
	TRAPEZE_UINT(max_entries, 256);
} connections TRAPEZE_MAP;

TRAPEZE_HOOK("filter/rx") u64 track(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), flags;
	struct connection *c, new = {1, 0};
	struct key key;

	if (data + 54 > end || data[23] != 6)
		return TRAPEZE_PASS;
	__builtin_memcpy(&key, data + 26, sizeof(key));
	flags = data[47];
	c = trapeze_lookup(&connections, &key);
	if (!c) {
		if (!(flags & 2))
			return TRAPEZE_DROP;
		return trapeze_update(&connections, &key, &new, TRAPEZE_ABSENT) < 0 ? TRAPEZE_DROP : TRAPEZE_PASS;
	}
	c->packets++;
	switch (c->state) {
	case 0:
		if (flags & 16)
			c->state = 1;
		break;
	case 1:
		if (flags & 1)
			c->state = 2;
		break;
	default:
		trapeze_delete(&connections, &key);
	}
	return TRAPEZE_PASS;
}
