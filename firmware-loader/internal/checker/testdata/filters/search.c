/* Loops in loops over the frame, as long as the budget allows. */
#include "trapeze.h"

TRAPEZE_IMAGE("search", "1.0");

const volatile u8 patterns[4][8] = {"evil", "worse"};

TRAPEZE_HOOK("filter/rx") u64 search(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f);
	u32 i, j, k;

	if (data + 64 > end)
		return TRAPEZE_PASS;
#pragma clang loop unroll(disable)
	for (i = 0; i < 4; i++)
#pragma clang loop unroll(disable)
		for (k = 0; k < 16; k++) {
#pragma clang loop unroll(disable)
			for (j = 0; j < 8; j++)
				if (data[32 + k + j] != patterns[i][j])
					break;
			if (j == 8)
				return TRAPEZE_DROP;
		}
	return TRAPEZE_PASS;
}
