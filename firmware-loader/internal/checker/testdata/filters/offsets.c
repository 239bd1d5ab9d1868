/* The place in the frame is a number that is added to its start each time. */
#include "trapeze.h"

TRAPEZE_IMAGE("offsets", "1.0");

TRAPEZE_HOOK("filter/rx") u64 offsets(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), protocol;
	u32 at = 14;
	u16 type;

	if (data + 14 > end)
		return TRAPEZE_PASS;
	type = *(u16 *)(data + 12);
	if (type == 0x0081) {
		at += 4;
		if (data + at > end)
			return TRAPEZE_DROP;
		type = *(u16 *)(data + at - 2);
	}
	if (type != 0x0008)
		return TRAPEZE_PASS;
	if (data + at + 20 > end)
		return TRAPEZE_DROP;
	protocol = data[at + 9];
	at += (data[at] & 15) * 4;
	if (data + at + 8 > end)
		return TRAPEZE_DROP;
	return protocol == 17 && *(u16 *)(data + at + 2) == 0x3500 ? TRAPEZE_DROP : TRAPEZE_PASS;
}
