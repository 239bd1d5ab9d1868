/* Spreads TCP and UDP flows over receive queues by the Toeplitz hash. The image that
 * we ship looks the hash of each byte up in a table; this one computes it bit by
 * bit, which takes some ten times as many instructions. */
#include "flow.h"

TRAPEZE_IMAGE("flow-steer", "1.0");

/* The usual key of receive-side scaling, in words of network order. */
static const u32 key[10] = {
	0x6d5a56da, 0x255b0ec2, 0x4167253d, 0x43a38fb0, 0xd0ca2bcb,
	0xae7b30b4, 0x77cb2da3, 0x8030f20c, 0x6a42b73b, 0xbeac01fa,
};

#define QUEUES 128

struct {
	TRAPEZE_UINT(type, TRAPEZE_ARRAY);
	TRAPEZE_TYPE(key, u32);
	TRAPEZE_TYPE(value, u32);
	TRAPEZE_UINT(max_entries, QUEUES);
} queues TRAPEZE_MAP;

/* The XOR of the 32 bits of the key from bit n on, for each bit n of the input that
 * is set. The loops stay loops: unrolled they would need more stack than there is. */
TRAPEZE_INLINE u32 toeplitz(const u32 *input, int words)
{
	u32 hash = 0;
	int i, bit;

#pragma clang loop unroll(disable)
	for (i = 0; i < words; i++) {
		u64 window = (u64)key[i] << 32 | key[i + 1];
		u32 word = __builtin_bswap32(input[i]);

#pragma clang loop unroll(disable)
		for (bit = 0; bit < 32; bit++) {
			hash ^= (u32)(window >> 32) & -(word >> 31);
			window <<= 1;
			word <<= 1;
		}
	}
	return hash;
}

TRAPEZE_HOOK("demux/rx") u64 steer(struct trapeze_frame *f)
{
	struct flow flow;
	u32 hash, *queue;

	/* Without ports their word is 0, which adds nothing. */
	switch (flow_of(f, &flow)) {
	case 1: {
		u32 input[3] = {flow.source[3], flow.destination[3], flow.ports};

		hash = toeplitz(input, 3);
		break;
	}
	case 4: {
		u32 input[9];

		__builtin_memcpy(input, &flow, sizeof(input));
		hash = toeplitz(input, 9);
		break;
	}
	default:
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	}
	hash %= QUEUES;
	queue = trapeze_lookup(&queues, &hash);
	return TRAPEZE_DEMUX(queue && *queue ? *queue : TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
}
