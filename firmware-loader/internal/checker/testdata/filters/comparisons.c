/* All ways to compare with the end of the frame. */
#include "trapeze.h"

TRAPEZE_IMAGE("comparisons", "1.0");

TRAPEZE_HOOK("filter/rx") u64 comparisons(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), *at;
	u32 sum = 0, by;

	if (end >= data + 20)
		sum += data[19];
	if (end > data + 30)
		sum += data[30];
	if (data + 40 < end)
		sum += data[40];
	if (data + 41 <= end)
		sum += data[40];
	if (!(data + 64 > end)) {
		sum += data[63];
		data[63] = sum;
	}
	by = data + 15 <= end ? data[14] & 31 : 0;
	at = data + by;
	if (at + 3 <= end)
		sum += at[2];
	if (at + by * 2 + 1 <= end)
		sum += at[by * 2];
	return sum & 1 ? TRAPEZE_DROP : TRAPEZE_PASS;
}
