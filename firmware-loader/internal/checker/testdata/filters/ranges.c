/* A binary search in read-only data, of as much of it as the host says. */
#include "trapeze.h"

TRAPEZE_IMAGE("ranges", "1.0");

const volatile struct {
	u16 from, to;
	u32 action;
} ranges[64] = {{1, 2, 1}};
const volatile u32 count = 1;

TRAPEZE_HOOK("filter/rx") u64 find(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f);
	u32 low = 0, high = count, i;
	u16 port;

	if (data + 38 > end || high > 64)
		return TRAPEZE_PASS;
	port = __builtin_bswap16(*(u16 *)(data + 36));
#pragma clang loop unroll(disable)
	for (i = 0; i < 7 && low < high; i++) {
		u32 middle = (low + high) / 2 & 63;

		if (port < ranges[middle].from)
			high = middle;
		else if (port > ranges[middle].to)
			low = middle + 1;
		else
			return ranges[middle].action;
	}
	return TRAPEZE_PASS;
}
