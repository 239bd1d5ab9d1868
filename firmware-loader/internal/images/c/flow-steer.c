/* Spreads TCP and UDP flows over receive queues by the Toeplitz hash (Microsoft,
 * "Verifying the RSS Hash Calculation"). */
#include "flow.h"

TRAPEZE_IMAGE("flow-steer", "1.0");

/* The usual key of receive-side scaling. */
#define KEY "\x6d\x5a\x56\xda\x25\x5b\x0e\xc2\x41\x67\x25\x3d\x43\xa3\x8f\xb0\xd0\xca\x2b\xcb" \
	"\xae\x7b\x30\xb4\x77\xcb\x2d\xa3\x80\x30\xf2\x0c\x6a\x42\xb7\x3b\xbe\xac\x01\xfa"

/* The hash is the XOR of the 32 bits of the key from bit n on, for each bit n of the
 * input that is set. So it is the XOR of the hashes of its bytes, which a table has:
 * HASH(I, V) is that of value V as byte I. KEY_n is the key's 40 bits from byte n on. */
#define KEY_BYTE(I) ((u64)(u8)KEY[I])
#define KEY_40(I) KEY_##I = KEY_BYTE(I) << 32 | KEY_BYTE(I + 1) << 24 | KEY_BYTE(I + 2) << 16 | KEY_BYTE(I + 3) << 8 | KEY_BYTE(I + 4)
#define BIT(I, V, N) ((V) & 0x80 >> N ? (u32)(KEY_##I >> (8 - N)) : 0)
#define HASH(I, V) (BIT(I, V, 0) ^ BIT(I, V, 1) ^ BIT(I, V, 2) ^ BIT(I, V, 3) ^ BIT(I, V, 4) ^ BIT(I, V, 5) ^ BIT(I, V, 6) ^ BIT(I, V, 7))
#define HASH_4(I, V) HASH(I, V), HASH(I, V + 1), HASH(I, V + 2), HASH(I, V + 3)
#define HASH_16(I, V) HASH_4(I, V), HASH_4(I, V + 4), HASH_4(I, V + 8), HASH_4(I, V + 12)
#define HASH_64(I, V) HASH_16(I, V), HASH_16(I, V + 16), HASH_16(I, V + 32), HASH_16(I, V + 48)
#define HASHES(I) {HASH_64(I, 0), HASH_64(I, 64), HASH_64(I, 128), HASH_64(I, 192)}

/* The longest input is two IPv6 addresses and two ports. */
#define EACH_BYTE(DO) \
	DO(0), DO(1), DO(2), DO(3), DO(4), DO(5), DO(6), DO(7), DO(8), DO(9), DO(10), DO(11), \
	DO(12), DO(13), DO(14), DO(15), DO(16), DO(17), DO(18), DO(19), DO(20), DO(21), DO(22), DO(23), \
	DO(24), DO(25), DO(26), DO(27), DO(28), DO(29), DO(30), DO(31), DO(32), DO(33), DO(34), DO(35)
enum { EACH_BYTE(KEY_40) };
static const u32 hashes[][256] = {EACH_BYTE(HASHES)};

#define QUEUES 128

struct {
	TRAPEZE_UINT(type, TRAPEZE_ARRAY);
	TRAPEZE_TYPE(key, u32);
	TRAPEZE_TYPE(value, u32);
	TRAPEZE_UINT(max_entries, QUEUES);
} queues TRAPEZE_MAP;

/* The hash of a word in network order whose first byte is byte i of the input. */
TRAPEZE_INLINE u32 hash_of(u32 word, int i)
{
	return hashes[i][(u8)word] ^ hashes[i + 1][(u8)(word >> 8)] ^ hashes[i + 2][(u8)(word >> 16)] ^ hashes[i + 3][word >> 24];
}

TRAPEZE_HOOK("demux/rx") u64 steer(struct trapeze_frame *f)
{
	struct flow flow;
	u32 hash = 0, *queue;
	int i;

	/* Without ports their word is 0, which adds nothing. */
	switch (flow_of(f, &flow)) {
	case 1:
		hash = hash_of(flow.source[3], 0) ^ hash_of(flow.destination[3], 4) ^ hash_of(flow.ports, 8);
		break;
	case 4:
#pragma clang loop unroll(full)
		for (i = 0; i < 4; i++)
			hash ^= hash_of(flow.source[i], 4 * i) ^ hash_of(flow.destination[i], 16 + 4 * i);
		hash ^= hash_of(flow.ports, 32);
		break;
	default:
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	}
	hash %= QUEUES;
	queue = trapeze_lookup(&queues, &hash);
	return TRAPEZE_DEMUX(queue && *queue ? *queue : TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
}
