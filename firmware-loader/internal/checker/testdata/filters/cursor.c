/* A parser whose functions take bytes from the frame, or return null. */
#include "trapeze.h"

TRAPEZE_IMAGE("cursor", "1.0");

struct cursor {
	u8 *at, *end;
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_ARRAY);
	TRAPEZE_TYPE(key, u32);
	TRAPEZE_TYPE(value, u64);
	TRAPEZE_UINT(max_entries, 16);
} counts TRAPEZE_MAP;

TRAPEZE_INLINE u8 *take(struct cursor *c, u32 n)
{
	u8 *taken = c->at;

	if (c->at + n > c->end)
		return 0;
	c->at += n;
	return taken;
}

TRAPEZE_INLINE void count(u32 what)
{
	u64 *n = trapeze_lookup(&counts, &what);

	if (n)
		__sync_fetch_and_add(n, 1);
}

TRAPEZE_INLINE u16 number(const u8 *b) { return b[0] << 8 | b[1]; }

TRAPEZE_HOOK("filter/rx") u64 parse(struct trapeze_frame *f)
{
	struct cursor c = {TRAPEZE_DATA(f), TRAPEZE_END(f)};
	u8 *ethernet = take(&c, 14), *ip, *ports, protocol;
	u16 type;
	int i;

	if (!ethernet) {
		count(0);
		return TRAPEZE_DROP;
	}
	type = number(ethernet + 12);
#pragma unroll
	for (i = 0; i < 2; i++)
		if (type == 0x8100 || type == 0x88a8) {
			u8 *tag = take(&c, 4);

			if (!tag)
				return TRAPEZE_DROP;
			type = number(tag + 2);
		}
	if (type == 0x0800) {
		ip = take(&c, 20);
		if (!ip || (ip[0] & 15) < 5) {
			count(1);
			return TRAPEZE_DROP;
		}
		protocol = ip[9];
		c.at += ((ip[0] & 15) - 5) * 4;
	} else if (type == 0x86dd) {
		ip = take(&c, 40);
		if (!ip) {
			count(2);
			return TRAPEZE_DROP;
		}
		protocol = ip[6];
	} else {
		count(3);
		return TRAPEZE_PASS;
	}
	count(protocol == 6 ? 4 : protocol == 17 ? 5 : 6);
	ports = take(&c, 4);
	if (!ports)
		return TRAPEZE_DROP;
	return number(ports + 2) == 53 ? TRAPEZE_DROP : TRAPEZE_PASS;
}
