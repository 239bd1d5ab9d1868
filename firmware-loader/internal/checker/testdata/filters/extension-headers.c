/* A chain of headers, each with its length in the frame: IPv6. */
#include "trapeze.h"

TRAPEZE_IMAGE("extension-headers", "1.0");

TRAPEZE_HOOK("filter/rx") u64 extension_headers(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), *at, next;
	int i;

	if (data + 54 > end || *(u16 *)(data + 12) != 0xdd86)
		return TRAPEZE_PASS;
	next = data[20];
	at = data + 54;
#pragma clang loop unroll(disable)
	for (i = 0; i < 6; i++) {
		if (next != 0 && next != 43 && next != 60 && next != 135)
			break;
		if (at + 2 > end)
			return TRAPEZE_DROP;
		next = at[0];
		at += (at[1] + 1) * 8;
	}
	if (next != 6)
		return TRAPEZE_PASS;
	if (at + 20 > end)
		return TRAPEZE_DROP;
	return at[13] & 2 ? TRAPEZE_DROP : TRAPEZE_PASS;
}
