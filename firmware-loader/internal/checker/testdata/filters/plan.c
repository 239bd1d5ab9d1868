/* A pulse hook that looks sizes up by an index that a loop has left. */
#include "trapeze.h"

TRAPEZE_IMAGE("plan", "1.0");

static const u32 sizes[8] = {64, 128, 256, 512, 1024, 2048, 4096, 8192};
static u32 used[8];

TRAPEZE_HOOK("pulse/rx") u64 plan(struct trapeze_pulse *p)
{
	u32 i, want = 0, left = p->length - p->sent;

#pragma clang loop unroll(disable)
	for (i = 0; i < 8 && sizes[i] < left; i++)
		want = sizes[i];
	if (i < 8)
		used[i] += 1;
	return p->arrived - p->sent >= want ? want : 0;
}
