/* Indexes that are checked in one variable and used in another, a constant away. */
#include "trapeze.h"

TRAPEZE_IMAGE("indexes", "1.0");

static u8 table[128];

TRAPEZE_HOOK("filter/rx") u64 indexes(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f);
	u32 sum, j;
	u64 i;

	if (data + 16 > end)
		return TRAPEZE_PASS;
	i = *(u16 *)(data + 14);
	if (i + 4 > 128)
		return TRAPEZE_PASS;
	sum = table[i] + table[i + 1] + table[i + 3];
	j = data[3];
	if (j + 2 < 128)
		sum += table[j + 1];
	table[j & 127] = sum;
	return sum > 5 ? TRAPEZE_DROP : TRAPEZE_PASS;
}
