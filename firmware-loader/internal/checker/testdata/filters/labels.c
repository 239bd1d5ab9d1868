/* A key of variable length, byte by byte from the frame to the stack. */
#include "trapeze.h"

TRAPEZE_IMAGE("labels", "1.0");

struct name {
	u8 text[32];
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_HASH);
	TRAPEZE_TYPE(key, struct name);
	TRAPEZE_TYPE(value, u64);
	TRAPEZE_UINT(max_entries, 64);
} blocked TRAPEZE_MAP;

TRAPEZE_HOOK("filter/rx") u64 labels(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), *at = data + 54;
	struct name name;
	u64 *hits;
	int i;

	__builtin_memset(&name, 0, sizeof(name));
#pragma clang loop unroll(disable)
	for (i = 0; i < 32; i++) {
		if (at + 1 > end || !*at)
			break;
		name.text[i] = *at++;
	}
	hits = trapeze_lookup(&blocked, &name);
	if (!hits)
		return TRAPEZE_PASS;
	++*hits;
	return TRAPEZE_DROP;
}
