/* One of each: program, map, variable, line of source. */
#include "trapeze.h"

TRAPEZE_IMAGE_FOR("small", "1.0", 0x12347250);

struct {
	TRAPEZE_UINT(type, TRAPEZE_HASH);
	TRAPEZE_TYPE(key, u64);
	TRAPEZE_TYPE(value, u64);
	TRAPEZE_UINT(max_entries, 4);
} flows TRAPEZE_MAP;

volatile u32 variables[2] = {0x04030201, 5};

TRAPEZE_HOOK("pulse/tx") u64 pulse_tx(struct trapeze_pulse *p)
{
	u64 key = 0;

	return trapeze_lookup(&flows, &key) ? variables[1] : 0; /* who is it */
}
