/* VLAN tags in a loop that is not unrolled, with a pointer that moves. */
#include "trapeze.h"

TRAPEZE_IMAGE("tags", "1.0");

struct tag {
	u16 value, type;
};

TRAPEZE_HOOK("filter/rx") u64 tags(struct trapeze_frame *f)
{
	void *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), *at = data + 14;
	u16 type;
	int i;

	if (at > end)
		return TRAPEZE_PASS;
	type = *(u16 *)(data + 12);
#pragma clang loop unroll(disable)
	for (i = 0; i < 8; i++) {
		struct tag *tag = at;

		if (type != 0x0081 && type != 0xa888)
			break;
		if ((void *)(tag + 1) > end)
			return TRAPEZE_DROP;
		type = tag->type;
		at = tag + 1;
	}
	if (at + 20 > end)
		return TRAPEZE_DROP;
	return type == 0x0008 && ((u8 *)at)[9] == 17 ? TRAPEZE_DROP : TRAPEZE_PASS;
}
